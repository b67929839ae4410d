"""A small PyTorch network on handwritten digits that some clients see turned: IFCA finds who sees them alike.

    make python
    .venv/bin/pip install torch
    .venv/bin/python examples/torch/rotated_digits.py
"""

import numpy as np
import torch
from torch import nn

import kinfolk
from kinfolk.torch import TorchClient, to_vector

TURNS = 4
CLIENTS_PER_TURN = 6


def make_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 10),
    )


def make_clients() -> dict[str, TorchClient]:
    """Every client has other digits, and those of a quarter of the clients are turned alike."""
    digits = kinfolk.digits()
    network = make_network()
    count = TURNS * CLIENTS_PER_TURN
    clients = {}
    for number in range(count):
        turn = number % TURNS

        def part(images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            turned = np.rot90(images[number::count], turn, axes=(1, 2))
            return (turned[:, None] / 255).astype(np.float32), labels[number::count]

        train, test = part(digits.train_images, digits.train_labels), part(digits.test_images, digits.test_labels)
        clients[f"client-{number}"] = TorchClient(network, train, test, truth=turn)
    return clients


def start(seed: int) -> np.ndarray:
    torch.manual_seed(seed)
    return to_vector(make_network())


def main() -> kinfolk.Run:
    torch.set_num_threads(1)  # one core for every client; clients run side by side
    experiment = {
        "name": "rotated-digits",
        "metric": "accuracy",
        "method": [
            {"name": "ifca", "clusters": TURNS, "start": "farthest", "rounds": 10, "local_steps": 10, "step": 0.2},
            {"name": "fedavg", "rounds": 10, "local_steps": 10, "step": 0.2},
        ],
    }
    return kinfolk.run(experiment, clients=make_clients(), start=start)


if __name__ == "__main__":
    print(main())
