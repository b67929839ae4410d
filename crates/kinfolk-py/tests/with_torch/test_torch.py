"""PyTorch modules as clients."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import kinfolk
from kinfolk.torch import TorchClient, load_vector, to_vector

ROOT = Path(__file__).parents[4]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def line() -> nn.Module:
    """One weight and no constant: small enough to work by hand."""
    module = nn.Linear(1, 1, bias=False)
    load_vector(module, [0.0])
    return module


def square_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(outputs[:, 0], targets)


def on_a_line(rows: int = 1) -> TorchClient:
    """Loss (w − 1)² at every row, and gradient 2(w − 1)."""
    return TorchClient(line(), (np.ones((rows, 1), np.float32), np.ones(rows, np.float32)), loss=square_error)


def test_a_vector_has_all_numbers_of_a_state_dict() -> None:
    module = network()
    vector = to_vector(module)
    # 3·4 + 4 and 4·2 + 2 learned, 2·4 of the normalisation, and its 2·4 statistics; its count of batches is whole.
    assert vector.shape == (16 + 10 + 8 + 8,) and vector.dtype == np.float32
    assert np.array_equal(vector, to_vector(module.state_dict()))
    other = network()
    load_vector(other, vector + 1)
    np.testing.assert_array_equal(to_vector(other), vector + 1)
    with pytest.raises(ValueError, match=r"got a vector of shape \(3,\), want \(42,\) for Sequential"):
        load_vector(module, np.zeros(3))


def test_plans_are_carried_out_as_by_hand() -> None:
    def trained(**plan: Any) -> float:
        vector, loss = on_a_line(3).train(np.zeros(1, np.float32), kinfolk.Plan(**plan))
        assert loss == 1.0
        return round(float(vector[0]), 5)

    assert trained(steps=1, step=0.1) == 0.2
    assert trained(steps=2, step=0.1) == 0.36
    assert trained(steps=None, epochs=2, batch=2, step=0.1) == round(1 - 0.8**4, 5), "two batches in a pass of three rows"
    assert trained(steps=2, step=0.1, momentum=0.5) == 0.46
    assert trained(steps=2, step=0.1, weight_decay=1.0) == 0.34
    assert trained(steps=1, step=0.1, optimiser="adam") == 0.1
    assert trained(steps=2, step=0.1, fading=True) == 0.28
    assert trained(steps=2, step=0.1, averaged=True) == round((0.2 + 2 * 0.36) / 3, 5)
    assert trained(steps=9, step=0.1, tolerance=1.7) == 0.2, "the slope is 2, then 1.6"


def test_a_gradient_and_the_loss_beside_it() -> None:
    gradient, loss = on_a_line().gradient(np.full(1, 3.0, np.float32), kinfolk.Plan())
    assert (gradient.tolist(), loss) == ([4.0], 4.0)
    module = network()
    rows = (torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 0, 1]))
    gradient, _ = TorchClient(module, rows).gradient(to_vector(module), kinfolk.Plan())
    assert gradient.shape == to_vector(module).shape and np.count_nonzero(gradient) > 0
    # The statistics, behind weight and bias of the normalisation, move by no gradient.
    assert not gradient[24:32].any()


def test_scores_count_what_is_right() -> None:
    module = network()
    train, test = (torch.randn(8, 3), torch.zeros(8, dtype=torch.long)), (torch.randn(5, 3), torch.ones(5, dtype=torch.long))
    client = TorchClient(module, train, test)
    score = client.score(to_vector(module))
    with torch.no_grad():
        outputs = module.eval()(test[0])
    assert score.rows == 5 and score.hits == int((outputs.argmax(1) == 1).sum())
    assert score.loss == pytest.approx(float(nn.functional.cross_entropy(outputs, test[1])))
    assert on_a_line().score(np.zeros(1, np.float32)) == kinfolk.Score(rows=0, loss=1.0)
    with pytest.raises(ValueError, match="got 8 inputs and 5 targets"):
        TorchClient(module, (train[0], test[1]))


@pytest.mark.parametrize("layer", [nn.Identity(), nn.Dropout(0.5)])
def test_the_same_seed_gives_the_same_bits(layer: nn.Module) -> None:
    module = nn.Sequential(nn.Linear(3, 8), layer, nn.Linear(8, 2))
    client = TorchClient(module, (torch.randn(20, 3), torch.arange(20) % 2))
    start = to_vector(module)

    def trained(seed: int) -> Any:
        return client.train(start.copy(), kinfolk.Plan(steps=5, batch=4, seed=seed))[0]

    torch.manual_seed(7)
    before = torch.get_rng_state()
    np.testing.assert_array_equal(trained(1), trained(1))
    assert not np.array_equal(trained(1), trained(2))
    assert torch.equal(before, torch.get_rng_state()), "the user's own draws are left alone"


def test_the_example_finds_the_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = runpy.run_path(str(ROOT / "examples" / "torch" / "rotated_digits.py"))["main"]()
    ifca, fedavg = (method["repeats"][0] for method in result.summary["methods"])
    assert ifca["misclustering"] == 0 and ifca["clusters"] == 4
    assert ifca["metric"]["name"] == "accuracy"
    assert ifca["metric"]["mean"] > 0.85 and ifca["metric"]["mean"] > fedavg["metric"]["mean"] + 0.05
