"""Training steps of convolutional networks in PyTorch's eager mode.

Called by `cargo bench --bench networks` with one JSON argument. Reads pixels, labels and parameters from files, takes
steps, writes the parameters after them, and prints the seconds of one step, measured several times, as JSON.

Parameters lie as Kinfolk has them: convolutions line, column, input, output; dense layers outputs × inputs, where the
inputs of the first one are an image line by line with its channels side by side.
"""

import json
import sys
import time

import numpy
import torch
from torch import nn
from torch.nn import functional


class Convolution(nn.Conv2d):
    """Filters that keep the size of the image."""

    def __init__(self, inputs, outputs, kernel, bias=True):
        super().__init__(inputs, outputs, kernel, padding=kernel // 2, bias=bias)


class Femnist(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Convolution(1, 32, 5), Convolution(32, 64, 5)
        self.dense = nn.ModuleList([nn.Linear(3136, 2048), nn.Linear(2048, 62)])

    def forward(self, x):
        for convolution in (self.first, self.second):
            x = functional.max_pool2d(functional.relu(convolution(x)), 2)
        return self.dense[1](functional.relu(self.dense[0](x.flatten(1))))


class Cifar(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Convolution(3, 64, 5), Convolution(64, 64, 5)
        self.dense = nn.ModuleList([nn.Linear(2304, 384), nn.Linear(384, 192), nn.Linear(192, 10)])
        self.response = nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)
        # Windows of three at every second of an even number of pixels: the last one is cut off at the border.
        self.pool = nn.MaxPool2d(3, 2, ceil_mode=True)

    def forward(self, x):
        x = self.response(self.pool(functional.relu(self.first(x))))
        x = self.pool(self.response(functional.relu(self.second(x)))).flatten(1)
        for dense in self.dense[:-1]:
            x = functional.relu(dense(x))
        return self.dense[-1](x)


class Block(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(Convolution(inputs, outputs, 3, bias=False), nn.GroupNorm(32, outputs), nn.ReLU())


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


class Resnet9(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            Block(3, 64),
            Block(64, 128), nn.MaxPool2d(2), Residual(Block(128, 128), Block(128, 128)),
            Block(128, 256), nn.MaxPool2d(2),
            Block(256, 512), nn.MaxPool2d(2), Residual(Block(512, 512), Block(512, 512)),
            nn.AdaptiveMaxPool2d(1), nn.Flatten(),
        )
        self.dense = nn.Linear(512, 10, bias=False)

    def forward(self, x):
        return 0.125 * self.dense(self.body(x))


def turned(model):
    """Every parameter of the model with the way from its own order of numbers to Kinfolk's, and back."""
    spatial = {"femnist": (64, 7, 7), "cifar": (64, 6, 6)}
    for name, param in model.named_parameters():
        if param.dim() == 4:
            yield param, (2, 3, 1, 0), tuple(param.shape)
        elif name == "dense.0.weight":
            yield param, (0, 2, 3, 1), (param.shape[0], *spatial[type(model).__name__.lower()])
        else:
            yield param, tuple(range(param.dim())), tuple(param.shape)


def load(model, values):
    values = torch.from_numpy(values)
    for param, order, shape in turned(model):
        part, values = values[: param.numel()], values[param.numel():]
        back = [order.index(axis) for axis in range(len(order))]
        tensor = part.reshape([shape[axis] for axis in order]).permute(back).reshape(param.shape)
        param.data.copy_(tensor)


def save(model):
    parts = [param.detach().reshape(shape).permute(order).reshape(-1) for param, order, shape in turned(model)]
    return torch.cat(parts).numpy()


def main():
    task = json.loads(sys.argv[1])
    folder = task["folder"]
    torch.set_num_threads(task["threads"])
    model = {"femnist": Femnist, "cifar": Cifar, "resnet9": Resnet9}[task["network"]]()
    pixels = torch.from_numpy(numpy.fromfile(f"{folder}/pixels", dtype="<f4").reshape(-1, *task["image"]))
    labels = torch.from_numpy(numpy.fromfile(f"{folder}/labels", dtype="<f4").astype("i8"))
    load(model, numpy.fromfile(f"{folder}/params", dtype="<f4"))
    if task["layout"] == "channels last":
        model, pixels = model.to(memory_format=torch.channels_last), pixels.contiguous(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(model.parameters(), lr=task["step"])
    loss_of = nn.CrossEntropyLoss()

    def steps():
        for _ in range(task["steps"]):
            optimiser.zero_grad()
            loss_of(model(pixels), labels).backward()
            optimiser.step()

    steps()
    save(model).astype("<f4").tofile(f"{folder}/answer {task['layout']}")
    seconds = []
    for _ in range(task["repetitions"]):
        began = time.thread_time()
        steps()
        seconds.append((time.thread_time() - began) / task["steps"])
    print(json.dumps({"seconds": seconds, "version": torch.__version__}))


if __name__ == "__main__":
    main()
