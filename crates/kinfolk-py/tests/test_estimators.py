"""Estimators: scikit-learn's own checks and tools, frames of all kinds, and the same model as from the command line."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import kinfolk
from conftest import ROOT
from kinfolk import FamilyClassifier, FamilyMixture, FamilyRegressor
from kinfolk.cluster import Auto, ConvexClustering, KMeans

EXAMPLES = ROOT / "examples"
NAMES = {"client": "bakery", "target": "sold"}


@pytest.fixture(scope="module")
def bakeries() -> pd.DataFrame:
    """Forty bakeries of two kinds."""
    return pd.read_csv(EXAMPLES / "bakeries.csv")


@pytest.fixture(scope="module")
def fitted(bakeries: pd.DataFrame) -> FamilyRegressor:
    """A model of them."""
    return FamilyRegressor(quick=True, **NAMES).fit(bakeries)


@pytest.fixture
def routing() -> Iterator[None]:
    """Metadata is handed on to whoever asked for it."""
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def planted(clients: int = 24, rows: int = 15) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two families with opposite slopes."""
    random = np.random.default_rng(0)
    owners = np.repeat(np.arange(clients), rows)
    x = random.normal(size=(len(owners), 2))
    y = np.where(owners % 2, 3.0, -3.0) * x[:, 0] + x[:, 1] + 0.3 * random.normal(size=len(owners))
    return x, y, owners


def expected_failures(estimator: Any) -> dict[str, str]:
    """A row of weight 2 is one row in cross-validation, and in one of its folds; the same row twice is in two."""
    weighted = isinstance(estimator, (FamilyRegressor, FamilyClassifier))
    return {"check_sample_weight_equivalence_on_dense_data": "rows are not drawn by their weights"} if weighted else {}


@parametrize_with_checks(
    [FamilyRegressor(), FamilyClassifier(), FamilyMixture(), KMeans(), ConvexClustering(), Auto()],
    expected_failed_checks=expected_failures,
)
def test_what_scikit_learn_expects(estimator: Any, check: Any) -> None:
    check(estimator)


def test_weights_are_relative_and_noise_counts_less() -> None:
    x, y, owners = planted()
    plain = FamilyRegressor(quick=True).fit(x, y, owners)
    assert FamilyRegressor(quick=True).fit(x, y, owners, sample_weight=np.full(len(y), 3.0)).predict(x, owners).tolist() == (
        plain.predict(x, owners).tolist()
    )
    spoiled = np.arange(len(y)) % 5 == 0
    noisy = y + np.where(spoiled, 30.0 * np.random.default_rng(1).normal(size=len(y)), 0.0)
    light = FamilyRegressor(quick=True).fit(x, noisy, owners, sample_weight=np.where(spoiled, 1e-4, 1.0))
    heavy = FamilyRegressor(quick=True).fit(x, noisy, owners)
    assert light.score(x, y, owners) > 0.98 > heavy.score(x, y, owners)


def test_families_of_an_array_and_names_of_any_kind() -> None:
    x, y, owners = planted()
    models = [
        FamilyRegressor(quick=True).fit(x, y, clients=clients)
        for clients in (owners, owners.astype(float), owners.astype(str).tolist(), pd.Series(owners), pl.Series(owners))
    ]
    assert models[0].clients_["client"].tolist() == [str(client) for client in range(24)]
    assert models[0].families_["clients"].tolist() == [12, 12]
    families = models[0].clients_["family"]
    assert kinfolk.cluster.ari(families, np.arange(24) % 2) == 1
    texts = {model.model_.file("model.json") for model in models}
    assert len(texts) == 1
    words = FamilyRegressor(quick=True).fit(x, y, clients=[f"school {owner}" for owner in owners])
    assert words.clients_["client"][3] == "school 3"
    # Folds are drawn by the names of clients.
    assert words.predict(x[:5], clients=["school 0"] * 5) == pytest.approx(models[0].predict(x[:5], clients=[0] * 5), abs=0.1)
    # The other family's slope has the other sign.
    assert np.corrcoef(words.predict(x, ["school 0"] * len(x)), words.predict(x, ["school 1"] * len(x)))[0, 1] < -0.5


def test_kinds_of_rows(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    owners = np.repeat(np.arange(24), 40)
    kinds = (random.random(len(owners)) < np.where(owners % 2, 0.85, 0.2)).astype(int)
    x = np.array([[0.0, 100.0], [8.0, 160.0]])[kinds] + random.normal(size=(len(owners), 2)) * [1.0, 10.0]
    model = FamilyMixture().fit(x, clients=owners)
    assert model.weights_.shape == (2,) and model.means_.shape == (2, 2) and model.covariances_.shape == (2, 2, 2)
    assert sorted(model.means_[:, 1].round(-1).tolist()) == [100, 160]
    assert kinfolk.cluster.ari(model.predict(x, clients=owners), kinds) > 0.98
    assert kinfolk.cluster.ari(model.clients_["family"], np.arange(24) % 2) == 1
    assert model.predict_proba(x, owners).sum(axis=1) == pytest.approx(1)
    assert model.score(x, clients=owners) == pytest.approx(model.score_samples(x, owners).mean())
    assert model.heterogeneity_.weights is not None and model.heterogeneity_.weights < 0.01
    assert model.predict_outliers([[4.0, 900.0]], clients=[0]).tolist() == [True]
    again = kinfolk.load(model.save(tmp_path / "kinds"))
    assert isinstance(again, FamilyMixture)
    assert again.predict_table(x, clients=owners)["log_density"].tolist() == model.score_samples(x, owners).tolist()
    assert pickle.loads(pickle.dumps(model)).show() == model.show()
    new = model.assign(x[kinds == 0][:30], clients=["new"] * 30)
    assert new["client"].tolist() == ["new"]
    frame = pd.DataFrame(x, columns=["length", "weight"]).assign(shop=owners)
    by_name = FamilyMixture(client="shop", components=2, families=2).fit(frame)
    assert by_name.feature_names_in_.tolist() == ["length", "weight"]
    with pytest.raises(kinfolk.Error, match="components: got 0"):
        FamilyMixture(components=0).fit(x)


def test_frames_of_all_kinds(bakeries: pd.DataFrame, fitted: FamilyRegressor) -> None:
    tomorrow = pd.read_csv(EXAMPLES / "tomorrow.csv")
    frames = {
        "pandas": (bakeries, tomorrow),
        "shuffled index": (bakeries.set_index(bakeries.index[::-1]), tomorrow.set_index("bakery", drop=False)),
        "polars": (pl.from_pandas(bakeries), pl.from_pandas(tomorrow)),
        "pyarrow": (pa.Table.from_pandas(bakeries), pa.Table.from_pandas(tomorrow)),
        "categories": (bakeries.astype({"bakery": "category", "weekend": "category"}), tomorrow),
        "dates": (bakeries.assign(date=pd.to_datetime(bakeries["date"])), tomorrow),
    }
    simple = FamilyRegressor(families=2, curves=False, **NAMES)
    expected = simple.fit(bakeries).predict(tomorrow).tolist()
    for name, (rows, new) in frames.items():
        model = clone(simple).fit(rows)
        assert model.predict(new).tolist() == expected, name
        assert model.feature_names_in_.tolist() == ["date", "weekend", "rain", "price"], name
    wanted, table = fitted.predict(tomorrow), fitted.predict_table(tomorrow)
    assert pl.DataFrame(table).columns == ["prediction", "low", "high", "served_by"]
    assert pa.table(table)["prediction"].to_pylist() == wanted.tolist()
    assert pd.DataFrame.from_arrow(table)["served_by"].tolist()[-1] == "families by share"
    interval = fitted.predict_interval(tomorrow)
    assert np.all((interval[:, 0] < wanted) & (wanted < interval[:, 1]))


def test_pandas_without_arrow(bakeries: pd.DataFrame, fitted: FamilyRegressor, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_arrow(*_: object, **__: object) -> None:
        raise ImportError("no pyarrow")

    monkeypatch.setattr(pd.DataFrame, "__arrow_c_stream__", no_arrow)
    model = FamilyRegressor(quick=True, **NAMES).fit(bakeries)
    assert model.model_.file("model.json") == fitted.model_.file("model.json")


def without_notation(model: str) -> str:
    """A model but for how the cells of a text were written, which rows in memory are not."""
    return json.dumps({key: value for key, value in json.loads(model).items() if key != "notation"})


@pytest.fixture
def command(program: str) -> Callable[..., str]:
    """Calls the command line, and returns what it prints."""

    def call(*arguments: str) -> str:
        ended = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    return call


def test_the_same_model_as_from_the_command_line(fitted: FamilyRegressor, command: Callable[..., str], folder: Path) -> None:
    table = str(EXAMPLES / "bakeries.csv")
    shown = command("fit", table, "--client", "bakery", "--target", "sold", "--quick", "--out", "theirs")
    assert fitted.save("ours") == folder / "ours"
    for name in ("clients.csv", "families.csv", "coefficients.csv", "report.html"):
        assert Path("ours", name).read_bytes() == Path("theirs", name).read_bytes(), name
    assert without_notation(Path("ours/model.json").read_text()) == without_notation(Path("theirs/model.json").read_text())
    assert str(fitted.show()) == shown
    assert str(fitted.show(client="B05")) == command("show", "ours", "--client", "B05")
    assert str(fitted.show(family=2)) == command("show", "ours", "--family", "2")
    new, lines = pd.read_csv(EXAMPLES / "tomorrow.csv"), command("predict", "ours", str(EXAMPLES / "tomorrow.csv"))
    assert [float(line.split(",")[1]) for line in lines.splitlines()[1:]] == fitted.predict(new).tolist()
    loaded = kinfolk.load("theirs")
    assert (loaded.client, loaded.target) == ("bakery", "sold")
    assert loaded.predict(new).tolist() == fitted.predict(new).tolist()
    with pytest.raises(kinfolk.Error, match="(?s)ours.*replace=True"):
        fitted.save("ours")
    fitted.save("ours", replace=True)


def test_new_clients(fitted: FamilyRegressor) -> None:
    new = pd.read_csv(EXAMPLES / "new-bakeries.csv")
    assigned = fitted.assign(new)
    assert assigned["family"].tolist()[:2] == [1, 2]
    assert assigned["fits_none"].tolist() == [False, False, True]
    both = assigned["probability_1"] + assigned["probability_2"]
    assert both == pytest.approx(np.ones(3))
    again = fitted.assign(new.drop(columns="sold"), new["sold"])
    assert again["p"].tolist() == assigned["p"].tolist()
    # Predictions may learn from what the rows say of their clients; a score must not.
    assert any("near family 1" in by for by in fitted.predict_table(new)["served_by"])
    assert fitted.score(new) == fitted.score(new.drop(columns="sold"), new["sold"])


def test_clients_added_later(fitted: FamilyRegressor, command: Callable[..., str], folder: Path) -> None:
    new = pd.read_csv(EXAMPLES / "new-bakeries.csv")
    model = copy.deepcopy(fitted)
    said = model.assign(new, add=True)
    assert said["known"].tolist() == [False] * 3 and model.assign(new)["known"].tolist() == [True] * 3
    features = new.drop(columns="sold")
    assert model.predict(features).tolist() == fitted.predict(new).tolist() != fitted.predict(features).tolist()
    assert model.predict_interval(features).tolist() == fitted.predict_interval(new).tolist()
    fitted.save("plain")
    command("assign", "plain", str(EXAMPLES / "new-bakeries.csv"), "--add", "--out", "theirs")
    model.save("ours")
    assert Path("ours/model.json").read_bytes() == Path("theirs/model.json").read_bytes()


def test_refit(fitted: FamilyRegressor, bakeries: pd.DataFrame, command: Callable[..., str], folder: Path) -> None:
    later = bakeries[~bakeries["bakery"].isin(["B01", "B02"])]
    model = copy.deepcopy(fitted).refit(later)
    assert "2 clients left: B01, B02" in model.show()
    before = dict(zip(fitted.clients_["client"], fitted.clients_["family"].tolist(), strict=True))
    assert all(before[name] == family for name, family in zip(model.clients_["client"], model.clients_["family"], strict=True))
    later.to_csv("later.csv", index=False)
    fitted.save("before")
    command("fit", "later.csv", "--refit", "before", "--out", "theirs")
    assert model.model_.file("clients.csv") == Path("theirs/clients.csv").read_text()


@pytest.mark.filterwarnings("error")
def test_names_of_columns_are_scikit_learns(bakeries: pd.DataFrame) -> None:
    features = bakeries[["rain", "price"]]
    model = FamilyRegressor(families=1).fit(features, bakeries["sold"], clients=bakeries["bakery"])
    assert model.feature_names_in_.tolist() == ["rain", "price"]
    assert (model.model_.client, model.model_.target) == ("bakery", "sold")
    with pytest.raises(ValueError, match="same order as they were in fit"):
        model.predict(features[["price", "rain"]], clients=bakeries["bakery"])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(features.to_numpy(), clients=bakeries["bakery"])


def test_what_is_fitted_says_so(fitted: FamilyRegressor) -> None:
    assert fitted.n_features_in_ == 4
    heterogeneity = fitted.heterogeneity_
    assert heterogeneity.p is not None and heterogeneity.p < 0.05 and 0.5 < heterogeneity.between < 1
    coefficients = fitted.coef_
    rain = (coefficients["model"] == "family") & (coefficients["term"] == "rain")
    assert len(coefficients["value"][rain]) == 2 and np.all(coefficients["standard_error"][rain] > 0)
    assert "There are 2 families" in repr(fitted.show())
    assert any(line.split()[0] == "date" for line in fitted.understood_)
    with pytest.raises(AttributeError):
        FamilyRegressor().families_  # noqa: B018


def test_copies(bakeries: pd.DataFrame, fitted: FamilyRegressor) -> None:
    wanted = fitted.predict(bakeries[:50]).tolist()
    for other in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        assert other.predict(bakeries[:50]).tolist() == wanted
    plain = clone(fitted)
    assert plain.get_params() == fitted.get_params() and not hasattr(plain, "model_")
    assert plain.set_params(families=1, quick=True).fit(bakeries).families_["clients"].tolist() == [40]


def test_cross_validation(routing: None) -> None:
    x, y, owners = planted()
    model = FamilyRegressor(quick=True).set_fit_request(clients=True).set_score_request(clients=True)
    rows = KFold(3, shuffle=True, random_state=0)
    known = cross_val_score(model, x, y, params={"clients": owners}, cv=rows)
    assert known.min() > 0.95
    model = make_pipeline(StandardScaler(), model)
    assert cross_val_score(model, x, y, params={"clients": owners}, cv=rows).min() > 0.95
    # Of a client that nobody has seen, the slope may have either sign.
    unseen = cross_val_score(model, x, y, params={"clients": owners, "groups": owners}, cv=GroupKFold(3))
    assert unseen.max() < 0.5


def test_a_search(bakeries: pd.DataFrame) -> None:
    # The column goes along with the rows: nothing has to be routed.
    shuffled = bakeries.sample(frac=1, random_state=0)
    search = GridSearchCV(FamilyRegressor(client="bakery", quick=True), {"families": [1, 2]}, cv=2)
    search.fit(shuffled.drop(columns="sold"), shuffled["sold"])
    assert search.best_score_ > 0.8
    assert search.best_estimator_.predict(shuffled[:3]).shape == (3,)


def test_faults(bakeries: pd.DataFrame, fitted: FamilyRegressor) -> None:
    x, y, owners = planted(4, 5)
    features, sold = bakeries.drop(columns="sold"), bakeries["sold"]

    def refused(message: str, call: Any) -> None:
        with pytest.raises((ValueError, kinfolk.Error), match=message):
            call()

    refused(r"inconsistent numbers of samples: \[20, 20, 19\]", lambda: FamilyRegressor().fit(x, y, clients=owners[:-1]))
    refused(r"inconsistent numbers of samples: \[20, 19\]", lambda: FamilyRegressor().fit(x, y[:-1]))
    refused("Input y contains NaN", lambda: FamilyRegressor().fit(x, np.where(y > 0, y, np.nan)))
    refused("clients: got the shape", lambda: FamilyRegressor().fit(x, y, clients=np.zeros((20, 2))))
    refused("row 3: column `client` has no value", lambda: FamilyRegressor().fit(x, y, clients=["a", "a", None, *"b" * 17]))
    refused("want a frame", lambda: FamilyRegressor(client="bakery").fit(x, y))
    refused("client: X has no column 'bakeri'; did you mean 'bakery'?", lambda: FamilyRegressor(client="bakeri").fit(features, sold))
    refused("drop: X has no column 'colour'; its columns are", lambda: FamilyRegressor(drop=["colour"], **NAMES).fit(bakeries))
    refused("y: the column 'sold' is the target already", lambda: FamilyRegressor(**NAMES).fit(bakeries, sold))
    refused("clients: the column 'bakery' names", lambda: FamilyRegressor(client="bakery").fit(features, sold, sold))
    refused("requires y to be passed", lambda: FamilyRegressor(client="bakery").fit(features))
    refused("no column `rain`", lambda: fitted.predict(bakeries.drop(columns="rain")))
    refused("fitted to 40 clients; say whose", lambda: fitted.predict(bakeries.drop(columns="bakery")))
    refused("clients: the column 'bakery' names", lambda: fitted.predict(bakeries, clients=bakeries["bakery"]))
    refused("families: got 0, want at least 1", lambda: FamilyRegressor(families=0, **NAMES).fit(bakeries))
    refused("threads: got 0", lambda: FamilyRegressor(threads=0, **NAMES).fit(bakeries))
    refused("the model has no client `B5`", lambda: fitted.show(client="B5"))
    refused("no new client has a value", lambda: fitted.assign(bakeries, add=True))
    model = FamilyRegressor(quick=True).fit(x, y, clients=owners)
    refused("fitted to 4 clients; say whose", lambda: model.predict(x))
    refused("want the targets", lambda: model.score(x, clients=owners))


def test_classes(folder: Path, program: str) -> None:
    x, slopes, owners = planted(30, 40)
    random = np.random.default_rng(1)
    y = random.random(len(x)) < 1 / (1 + np.exp(-slopes))
    models = {
        name: FamilyClassifier(quick=True).fit(x, labels, clients=owners)
        for name, labels in (("flags", y), ("numbers", np.where(y, 7, 2)), ("words", np.where(y, "yes", "no")))
    }
    chances = models["words"].predict_proba(x, owners)
    assert chances.sum(1) == pytest.approx(np.ones(len(x)))
    for name, classes in (("flags", [False, True]), ("numbers", [2, 7]), ("words", ["no", "yes"])):
        model = models[name]
        assert model.classes_.tolist() == classes, name
        assert model.predict_proba(x, owners) == pytest.approx(chances), name
        assert model.predict(x, owners).tolist() == [classes[place] for place in chances.argmax(1)], name
    assert models["numbers"].score(x, np.where(y, 7, 2), owners) > 0.8
    frame = pd.DataFrame(x, columns=["a", "b"]).assign(owner=owners, bought=np.where(y, "yes", "no"))
    named = FamilyClassifier(client="owner", target="bought", quick=True).fit(frame)
    assert named.score(frame) == np.mean(named.predict(frame) == frame["bought"]) > 0.8
    frame.to_csv("sales.csv", index=False)
    command = [program, "fit", "sales.csv", "--client", "owner", "--target", "bought", "--quick", "--out", "theirs"]
    subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert without_notation(Path("theirs/model.json").read_text()) == without_notation(named.model_.file("model.json"))
    loaded = kinfolk.load("theirs")
    assert isinstance(loaded, FamilyClassifier)
    assert loaded.predict(frame).tolist() == named.predict(frame).tolist()
    assert list(named.predict_table(frame)) == ["prediction", "p(no)", "p(yes)", "served_by"]
    assert pickle.loads(pickle.dumps(models["flags"])).predict(x[:9], owners[:9]).dtype == bool
    with pytest.raises(ValueError, match="class"):
        FamilyClassifier().fit(x, np.ones(len(x)), clients=owners)


def test_clusterers() -> None:
    points = np.repeat([[0.0, 0.0], [100.0, 0.0], [0.0, 1.0]], 20, axis=0) + np.random.default_rng(0).normal(0, 0.05, (60, 2))
    truth = np.repeat([0, 1, 2], 20)
    kmeans = KMeans(3, standardise=True).fit(points)
    assert kmeans.labels_.tolist() == truth.tolist() == kmeans.predict(points).tolist()
    assert kmeans.clustering_.labels.tolist() == kinfolk.cluster.kmeans(points, 3, standardise=True).labels.tolist()
    # In units of the columns the first would outweigh the second, in deviations it does not.
    assert kmeans.predict([[30.0, 0.95]]).tolist() == [2]
    assert KMeans(2).fit(points).predict([[30.0, 0.95]]).tolist() == [0]
    for clusterer in (Auto(standardise=True), ConvexClustering(standardise=True)):
        assert kinfolk.cluster.ari(clusterer.fit_predict(points), truth) > 0.5
    assert clone(KMeans(4, seed=2)).get_params()["clusters"] == 4


def test_without_scikit_learn(folder: Path) -> None:
    script = """
import sys
sys.modules["sklearn"] = None
import numpy as np
import pandas as pd
from kinfolk import FamilyRegressor
from kinfolk.cluster import KMeans
x = np.random.default_rng(0).normal(size=(60, 2))
y, clients = x @ [2.0, -1.0], np.arange(60) % 6
model = FamilyRegressor(quick=True).fit(x, y, clients=clients)
assert model.score(x, y, clients) > 0.99 and repr(model) == "FamilyRegressor(quick=True)", model
frame = pd.DataFrame(x, columns=["a", "b"])
assert FamilyRegressor().fit(frame, y).feature_names_in_.tolist() == ["a", "b"]
assert model.set_params(seed=3).get_params()["seed"] == 3
assert KMeans(2).fit_predict(x).shape == (60,)
for wrong in (lambda: model.predict(x[:, :1], clients), lambda: model.fit(x, y[1:]), lambda: model.set_params(sed=3)):
    try:
        wrong()
    except ValueError:
        continue
    raise AssertionError
try:
    FamilyRegressor().predict(x)
except AttributeError:
    pass
else:
    raise AssertionError
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr


def waves(seed: int = 0, shops: int = 16, rows: int = 80) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two families of shops: a wave along a column, with a sign that is the family's."""
    random = np.random.default_rng(seed)
    owners = np.repeat([f"s{shop:02}" for shop in range(shops)], rows)
    X = random.normal(size=(shops * rows, 2))
    sign = np.repeat(np.where(np.arange(shops) % 2, -1.0, 1.0), rows)
    return X, 100 + 10 * sign * np.sin(2 * X[:, 0]) + random.normal(size=len(X)), owners


def test_networks(tmp_path: Path) -> None:
    X, y, owners = waves()
    model = kinfolk.FamilyRegressor(model="mlp").fit(X, y, clients=owners)
    linear = kinfolk.FamilyRegressor(model="linear").fit(X, y, clients=owners)
    fresh, truth, _ = waves(1)
    assert model.score(fresh, truth, clients=owners) > 0.8 > linear.score(fresh, truth, clients=owners)
    interval = model.predict_interval(fresh, clients=owners)
    assert 0.8 < np.mean((interval[:, 0] <= truth) & (truth <= interval[:, 1])) < 0.97
    assert "network for every family" in model.show()
    assert set(model.effects_["term"]) == {"x0", "x1"}
    with pytest.raises(AttributeError, match="effects_ says what columns do"):
        model.coef_  # noqa: B018
    with pytest.raises(AttributeError, match="coef_ has the coefficients"):
        linear.effects_  # noqa: B018
    assert np.isnan(model.heterogeneity_.between)
    # Pickled, saved and read, they predict the same.
    wanted = model.predict(fresh, clients=owners)
    for other in (pickle.loads(pickle.dumps(model)), kinfolk.load(model.save(tmp_path / "networks"))):
        assert np.array_equal(other.predict(fresh, clients=owners), wanted)
    assert kinfolk.load(tmp_path / "networks").get_params()["model"] == "mlp"
    # A new client is put into a family, and known from then on.
    strange = np.repeat("new", 80)
    assigned = model.assign(fresh[:80], truth[:80], clients=strange, add=True)
    assert assigned["client"] == ["new"] and not assigned["known"][0]
    assert "new" in model.clients_["client"]
    with pytest.raises(kinfolk.Error, match="weight: networks count all rows alike"):
        kinfolk.FamilyRegressor(model="mlp").fit(X, y, clients=owners, sample_weight=np.ones(len(y)))
    with pytest.raises(kinfolk.Error, match="want \"linear\", \"mlp\""):
        kinfolk.FamilyRegressor(model="forest").fit(X, y, clients=owners)


def test_networks_of_classes() -> None:
    X, y, owners = waves()
    model = kinfolk.FamilyClassifier(model="mlp", quick=True).fit(X, y > 100, clients=owners)
    probabilities = model.predict_proba(X, clients=owners)
    assert np.allclose(probabilities.sum(1), 1)
    assert model.score(X, y > 100, clients=owners) > 0.85
