"""Clients of one's own, with numpy: what methods find with them, and what is said of those that are broken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kinfolk

WIDTH = 4


class Regression:
    """Linear regression on rows of its own; every step sees a batch."""

    def __init__(self, number: int, told: bool = True, stateful: bool = True) -> None:
        draws = np.random.default_rng(number)
        self.truth = number % 2
        slopes = np.full(WIDTH, 1.0 if self.truth else -1.0)
        self.x = draws.normal(size=(30, WIDTH))
        self.y = self.x @ slopes + 0.1 * draws.normal(size=30)
        self.rows = 20
        self.told = told
        self.calls = 0
        if not stateful:
            self.save = self.load = None  # type: ignore[assignment]

    def loss(self, parameters: Any) -> float:
        return float(np.mean((self.x[:20] @ parameters - self.y[:20]) ** 2))

    def train(self, parameters: Any, plan: kinfolk.Plan) -> Any:
        before = self.loss(parameters)
        self.calls += 1
        draws = np.random.default_rng([plan.seed, self.calls])
        assert plan.steps is not None and plan.epochs is None and plan.optimiser == "descent"
        for _ in range(plan.steps):
            picked = draws.choice(20, plan.batch or 20, replace=False)
            parameters -= plan.step * self.slope(parameters, picked)
        return (parameters, before) if self.told else parameters

    def gradient(self, parameters: Any, plan: kinfolk.Plan) -> Any:
        return self.slope(parameters, np.arange(20))

    def slope(self, parameters: Any, rows: Any) -> Any:
        x, y = self.x[rows], self.y[rows]
        return 2 * x.T @ (x @ parameters - y) / len(rows)

    def score(self, parameters: Any) -> kinfolk.Score:
        residuals = self.x[20:] @ parameters - self.y[20:]
        return kinfolk.Score(rows=10, loss=float(np.mean(residuals**2)), hits=int(np.sum(np.abs(residuals) < 0.5)))

    def save(self) -> bytes:
        return str(self.calls).encode()

    def load(self, state: bytes) -> None:
        self.calls = int(state)


METHODS: dict[str, dict[str, Any]] = {
    "ifca": {"clusters": 2, "rounds": 6, "local_steps": 5, "step": 0.1, "batch": 10},
    "odcl": {"steps": 60, "step": 0.1},
    "sr-fca": {"rounds": 3, "refinements": 1, "one_shot_steps": 60, "step": 0.1},
    "fedavg": {"rounds": 4, "step": 0.1},
    "cfl": {"rounds": 12, "step": 0.1},
}


GRADIENTS = {"name": "ifca", "clusters": 2, "rounds": 3, "step": 0.1, "averaging": "gradients"}


def clients(count: int = 8, **options: Any) -> dict[str, Any]:
    return {f"clinic-{number}": Regression(number, **options) for number in range(count)}


def start(seed: int) -> Any:
    return np.random.default_rng(seed).normal(size=WIDTH)


def run(*names: str, own: dict[str, Any] | None = None, **options: Any) -> kinfolk.Run:
    methods = [GRADIENTS if name == "gradients" else {"name": name, **METHODS[name]} for name in names]
    options = {"clients": own or clients(), "start": start, "progress": False, **options}
    return kinfolk.run({"name": "own", "method": methods}, **options)


def models_of(result: kinfolk.Run) -> list[bytes]:
    return [path.read_bytes() for path in sorted(result.folder.glob("models/**/*.safetensors"))]


def test_methods_find_who_is_alike() -> None:
    result = run(*METHODS)
    for method in result.summary["methods"]:
        found = method["repeats"][0]
        assert found["metric"]["name"] == "loss"
        if method["name"] == "fedavg":
            assert found["metric"]["mean"] > 1
        else:
            assert method["status"] == "done" and found["misclustering"] == 0, method["name"]
            assert found["metric"]["mean"] < 0.2, method["name"]
    assert result.summary["data"]["true_clusters"] == 2
    assert set(result.clients["samples"]) == {20}


def test_settings_are_filled_in_and_kept() -> None:
    written = (run("fedavg").folder / "experiment.toml").read_text()
    for line in ['source = "own"', 'kind = "own"', "parameters = 4", 'precision = "f64"']:
        assert line in written
    assert 'precision = "f32"' in (run("fedavg", start=np.zeros(WIDTH, np.float32)).folder / "experiment.toml").read_text()


def test_an_experiment_in_a_file(folder: Path) -> None:
    (folder / "mine.toml").write_text('[[method]]\nname = "ifca"\nclusters = 2\nrounds = 2\nstep = 0.1\n')
    result = kinfolk.run(folder / "mine.toml", clients=clients(), start=start, progress=False)
    assert result.summary["methods"][0]["status"] == "done"


@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_parameters_come_as_fresh_arrays_of_the_precision(precision: type) -> None:
    seen: list[Any] = []

    class Watching(Regression):
        def loss(self, parameters: Any) -> float:
            seen.append((type(parameters), parameters.dtype, parameters.shape))
            loss = super().loss(parameters)
            parameters[:] = np.nan
            return loss

    run("ifca", own={f"c{number}": Watching(number) for number in range(4)}, start=np.ones(WIDTH, precision))
    assert set(seen) == {(np.ndarray, np.dtype(precision), (WIDTH,))}


def test_the_same_bits_on_any_number_of_threads() -> None:
    one, three = run(*METHODS, threads=1), run(*METHODS, threads=3)
    assert models_of(one) == models_of(three)
    assert list(one.clients["metric"]) == list(three.clients["metric"])


def test_a_loss_that_is_not_told_is_asked_for() -> None:
    told, asked = run("ifca", "fedavg"), run("ifca", "fedavg", own=clients(told=False))
    np.testing.assert_array_equal(told.rounds["loss"], asked.rounds["loss"])


def test_accuracy_counts_hits() -> None:
    found = run("ifca", metric="accuracy").summary["methods"][0]["repeats"][0]["metric"]
    assert found["name"] == "accuracy" and found["mean"] > 0.9


def test_clients_without_a_score_are_not_scored() -> None:
    own = clients()
    for client in own.values():
        client.score = None
    found = run("ifca", own=own).summary["methods"][0]["repeats"][0]
    assert "metric" not in found and "no client has test rows, so there is nothing to score" in found["notes"]


def in_records(vector: Any) -> Any:
    """A view whose steps are no multiple of its numbers."""
    records = np.zeros(len(vector), dtype=[("value", "f8"), ("other", "f4")])
    records["value"] = vector
    return records["value"]


LAYOUTS = [
    in_records,
    lambda v: np.stack([v, v], 1)[:, 0],
    lambda v: v.astype(">f8"),
    lambda v: np.ascontiguousarray(v[::-1])[::-1],
    lambda v: np.frombuffer(b"?" + v.tobytes(), np.uint8)[1:].view(np.float64),
]


@pytest.mark.parametrize("odd", LAYOUTS)
def test_arrays_of_any_layout_are_taken(odd: Any) -> None:
    class Odd(Regression):
        def train(self, parameters: Any, plan: kinfolk.Plan) -> Any:
            trained, loss = super().train(parameters, plan)
            return odd(trained), np.float32(loss) if loss == np.float32(loss) else loss

    result = run("fedavg", own={f"clinic-{number}": Odd(number) for number in range(8)})
    assert models_of(result) == models_of(run("fedavg"))


def test_whole_numbers_are_numbers() -> None:
    class Whole(Regression):
        def train(self, parameters: Any, plan: kinfolk.Plan) -> Any:
            return np.array([3, 1, 4, 1], np.int16), 5

    result = run("fedavg", own={"a": Whole(0)})
    assert list(result.models["fedavg"]["global"]["parameters"]) == [3, 1, 4, 1]


TRAINED: list[tuple[Any, str]] = [
    (np.zeros(5), "got an array of 5 numbers, want 4"),
    (np.zeros((4, 1)), "got an array of shape [4, 1], want [4]"),
    (np.float64(1), "got numpy.float64, want a numpy array of 4 numbers"),
    ([0.0, 0.0, 0.0, 0.0], "got list, want a numpy array of 4 numbers"),
    (None, "got NoneType, want a numpy array of 4 numbers"),
    (np.zeros(4, object), "got an array of object, want numbers"),
    (np.zeros(4, complex), "got an array of complex128, want numbers"),
    (np.zeros(4, bool), "got an array of bool, want numbers"),
    (np.array(list("abcd")), "got an array of <U1, want numbers"),
    ((np.zeros(4), "low"), "got str, want a number"),
    ((np.zeros(4), 1j), "got complex, want a number"),
    ((np.zeros(4), 1.0, 2.0), "got a tuple of 3, want an array, or an array and a loss"),
]


@pytest.mark.parametrize(("answer", "message"), TRAINED)
def test_what_is_not_parameters_is_refused(answer: Any, message: str) -> None:
    own = clients()
    own["clinic-3"].train = lambda parameters, plan: answer
    with pytest.raises(kinfolk.Error) as raised:
        run("fedavg", own=own)
    assert str(raised.value).startswith(f"client clinic-3: train: {message}")
    assert raised.value.kind == "client"


BROKEN: list[tuple[str, Any, str]] = [
    ("loss", "high", "got str, want a number"),
    ("loss", np.zeros(2), "got numpy.ndarray, want a number"),
    ("score", 0.5, "got float, want a kinfolk.Score"),
    ("score", kinfolk.Score(-1, 0.5), "rows: got -1, want a whole number of at least 0"),
    ("score", kinfolk.Score(3, 0.5, 4), "hits: got 4, want at most the rows, 3"),
    ("gradient", np.zeros(3), "got an array of 3 numbers, want 4"),
]


@pytest.mark.parametrize(("verb", "answer", "message"), BROKEN)
def test_every_verb_is_looked_at(verb: str, answer: Any, message: str) -> None:
    own = clients()
    setattr(own["clinic-5"], verb, lambda *given: answer)
    with pytest.raises(kinfolk.Error) as raised:
        run("gradients" if verb == "gradient" else "ifca", own=own)
    assert str(raised.value).startswith(f"client clinic-5: {verb}: {message}")


def test_accuracy_without_hits() -> None:
    own = clients()
    own["clinic-2"].score = lambda parameters: kinfolk.Score(3, 0.5)
    result = run("ifca", own=own, metric="accuracy")
    unscored = result.clients["client"][np.isnan(result.clients["metric"])]
    assert list(unscored) == ["clinic-2"], "who counts no hits has no accuracy"
    for client in own.values():
        client.score = lambda parameters: kinfolk.Score(3, 0.5)
    failed = run("ifca", own=own, metric="accuracy").summary["methods"][0]
    assert failed["status"] == "failed"
    assert failed["repeats"][0]["reason"].startswith('client clinic-0: score: no hits, which metric = "accuracy" counts')


def test_an_attribute_that_raises_is_not_taken_for_none() -> None:
    class Shy(Regression):
        def __getattribute__(self, name: str) -> Any:
            if name == "truth" and "calls" in vars(self):
                raise LookupError("not today")
            return super().__getattribute__(name)

    with pytest.raises(kinfolk.Error, match="client shy: truth: LookupError: not today"):
        run("fedavg", own={"shy": Shy(0)})


def test_another_start_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(event: dict[str, Any]) -> None:
        if event["event"] == "round":
            raise LookupError("enough")

    def train(**options: Any) -> kinfolk.Run:
        method = {"name": "fedavg", "rounds": 3000, "step": 0.1}
        options = {"start": start, "progress": False, "out": tmp_path / "run", **options}
        return kinfolk.run({"method": [method]}, clients=clients(2), **options)

    monkeypatch.setenv("KINFOLK_CHECKPOINT_SECONDS", "0")
    with pytest.raises(LookupError, match="enough"):
        train(progress=leave)
    with pytest.raises(kinfolk.Error, match="the data or the program has changed since this run began"):
        train(resume=True, start=np.ones(WIDTH))


def test_a_verb_that_is_not_there() -> None:
    own = clients()
    own["clinic-1"].gradient = None
    with pytest.raises(kinfolk.Error, match="client clinic-1: gradient: the method asks for it, but the object has no"):
        run("gradients", own=own)


def test_an_exception_names_client_and_verb_and_is_the_cause() -> None:
    def fail(parameters: Any, plan: kinfolk.Plan) -> Any:
        raise LookupError("the ward is closed")

    said = []
    for broken, threads in [(["clinic-3"], 2), (["clinic-3", "clinic-6"], 1), (["clinic-3", "clinic-6"], 3)]:
        own = clients()
        for name in broken:
            own[name].train = fail
        with pytest.raises(kinfolk.Error) as raised:
            run("fedavg", "ifca", own=own, threads=threads)
        said.append(str(raised.value))
        assert isinstance(raised.value.__cause__, LookupError)
    lines = said[0].splitlines()
    assert lines[0] == "client clinic-3: train: LookupError: the ward is closed"
    assert "test_clients.py" in lines[1] and "in fail" in lines[1]
    assert said[1] == said[2], "whom it names must not depend on the number of threads"


def test_everything_is_looked_at_before_work_starts(folder: Path) -> None:
    class Empty:
        rows = 0
        truth = "left"

    class Half(Regression):
        load = None  # type: ignore[assignment]

    with pytest.raises(kinfolk.Error) as raised:
        kinfolk.run(
            {"method": [{"name": "ifca", "clusters": 2}]},
            clients={"a": Empty(), 3: Regression(0), "": Regression(1), "b": Half(2)},  # type: ignore[dict-item]
        )
    for fault in [
        "client a: test_clients.test_everything_is_looked_at_before_work_starts.<locals>.Empty has no method loss",
        "Empty has no method train",
        "client a: rows: got 0, want a whole number of at least 1",
        "client a: truth: got 'left', want the number of a cluster, from 0",
        "clients: got the id 3, want a text",
        "clients: got the id '', want a text",
        "client b: save without load, want both or none",
        "start: missing, want an array of parameters, or a function of a seed",
    ]:
        assert fault in str(raised.value)
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clients": None}, "start: is for clients of your own, want also clients"),
        ({"clients": {}}, "clients: got none, want at least 1"),
        ({"clients": [1]}, "clients: got list, want a dict of objects by id"),
        ({"start": np.zeros((2, 2))}, "start: got an array of shape [2, 2], want one axis and at least 1 number"),
        ({"start": [1.0, np.nan, 0, 0]}, "start: got NaN at place 1, want finite numbers"),
        ({"start": ["a"]}, "start: got an array of <U1, want numbers"),
        ({"start": lambda seed: 1 / 0}, "start: ZeroDivisionError: division by zero"),
        ({"start": lambda seed: np.zeros(4 + (seed > 0))}, "start: got 5 numbers, want 4 (model.parameters)"),
        ({"data": {"source": "digits"}}, 'data.source: got "digits", but the clients are given'),
        ({"model": {"parameters": 7}}, "start: got 4 numbers, want 7 (model.parameters)"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"clients": clients(), "start": start, "progress": False, **options}
    with pytest.raises(kinfolk.Error) as raised:
        kinfolk.run({"method": [{"name": "fedavg", "rounds": 1}]}, **given)
    assert message in str(raised.value)


def test_another_model_is_refused() -> None:
    experiment = {"model": {"kind": "linear"}, "method": [{"name": "fedavg", "rounds": 1}]}
    with pytest.raises(kinfolk.Error, match="linear reads numbers, but the rows of this data are known to the clients"):
        kinfolk.run(experiment, clients=clients(), start=start, progress=False)


def test_settings_that_need_single_rows_are_refused() -> None:
    with pytest.raises(kinfolk.Error, match="method.ifca.resample: clients of your own"):
        kinfolk.run(
            {"method": {"name": "ifca", "clusters": 2, "resample": True}}, clients=clients(), start=start, progress=False
        )


def test_a_start_is_exact_for_one_model_and_near_for_several() -> None:
    class Still(Regression):
        def train(self, parameters: Any, plan: kinfolk.Plan) -> Any:
            return parameters, 0.0

    own = {f"c{number}": Still(number) for number in range(4)}
    given = np.array([1.0, 2.0, 3.0, 6.0])
    result = run("fedavg", "ifca", own=own, start=given)
    np.testing.assert_allclose(result.models["fedavg"]["global"]["parameters"], given, rtol=1e-12)
    near = [result.models["ifca"][f"cluster-{number}"]["parameters"] for number in range(2)]
    assert not np.array_equal(*near)
    # The spread is 1.87, and a tenth of it is how far a number is moved; nobody draws ten times that.
    assert all(0 < np.abs(model - given).max() < 1.87 for model in near)


INTERRUPTED = """
    import sys
    sys.path.insert(0, {tests!r})
    from test_clients import Regression, clients, run
    import threading, os, signal

    class Slow(Regression):
        def train(self, parameters, plan):
            if {kill} and self.calls == 3:
                os.kill(os.getpid(), signal.SIGINT)
                threading.Event().wait(0.3)
            return super().train(parameters, plan)

    own = {{f"clinic-{{number}}": Slow(number, stateful={stateful}) for number in range(8)}}
    run("ifca", "fedavg", own=own, out={out!r}, resume={resume})
"""


def interrupted(out: Path, *, kill: bool, resume: bool, stateful: bool) -> subprocess.CompletedProcess[str]:
    tests = str(Path(__file__).parent)
    code = INTERRUPTED.format(tests=tests, out=str(out), kill=kill, resume=resume, stateful=stateful)
    environment = {**os.environ, "KINFOLK_CHECKPOINT_SECONDS": "0"}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_ctrl_c_stops_and_a_resumed_run_has_the_same_bits(folder: Path) -> None:
    stopped = interrupted(folder / "out", kill=True, resume=False, stateful=True)
    assert "KeyboardInterrupt: stopped; go on with" in stopped.stderr
    assert not (folder / "out" / "summary.json").exists()
    resumed = interrupted(folder / "out", kill=False, resume=True, stateful=True)
    assert resumed.returncode == 0, resumed.stderr
    straight = run("ifca", "fedavg", out=folder / "straight")
    assert models_of(kinfolk.load(folder / "out")) == models_of(straight)


def test_without_save_and_load_no_run_is_resumed(folder: Path) -> None:
    stopped = interrupted(folder / "out", kill=True, resume=False, stateful=False)
    assert stopped.returncode == -signal.SIGINT or "KeyboardInterrupt" in stopped.stderr
    refused = interrupted(folder / "out", kill=False, resume=True, stateful=False)
    assert "client clinic-0: has no save and load, so no run with it can be resumed" in refused.stderr


def test_every_method_finds_clients_as_they_were() -> None:
    twice = run("fedavg", "ifca")
    alone = run("ifca")
    assert [twice.models["ifca"][name]["parameters"].tolist() for name in ("cluster-0", "cluster-1")] == [
        alone.models["ifca"][name]["parameters"].tolist() for name in ("cluster-0", "cluster-1")
    ]


def test_the_digits_that_come_along() -> None:
    digits = kinfolk.digits()
    assert digits.train_images.shape == (1440, 8, 8) and digits.test_images.shape == (357, 8, 8)
    assert digits.train_images.dtype == np.uint8 and list(digits.train_labels[:4]) == [0, 1, 2, 3]
    assert list(digits.train_images[0, 0]) == [0, 0, 80, 207, 143, 16, 0, 0]
