"""One round of IFCA with local training in PyTorch, the way the method's authors run it: client after client.

Called by `cargo bench --bench rotated_mnist` with one JSON argument. Reads pixels, labels and the k models from files,
times the round, writes the new models, and prints the times as JSON.
"""

import copy
import json
import sys
import time

import numpy
import torch
from torch import nn


def network(widths, params):
    """A perceptron whose parameters lie in `params` layer by layer: weight, then bias."""
    layers = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    nn.utils.vector_to_parameters(params, model.parameters())
    return model


def one_round(models, clients, steps, step):
    """Every client takes the best of the models and trains it; a new model is the mean of those trained from it."""
    loss_of = nn.CrossEntropyLoss()
    choices, sums = [], [None] * len(models)
    for pixels, labels in clients:
        with torch.no_grad():
            losses = [loss_of(model(pixels), labels).item() for model in models]
        choice = losses.index(min(losses))
        model = copy.deepcopy(models[choice])
        for _ in range(steps):
            model.zero_grad()
            loss_of(model(pixels), labels).backward()
            with torch.no_grad():
                for param in model.parameters():
                    param.sub_(param.grad, alpha=step)
        choices.append(choice)
        with torch.no_grad():
            if sums[choice] is None:
                sums[choice] = [param.clone() for param in model.parameters()]
            else:
                for total, param in zip(sums[choice], model.parameters()):
                    total.add_(param)
    new = copy.deepcopy(models)
    with torch.no_grad():
        for j, model in enumerate(new):
            if sums[j] is not None:
                for param, total in zip(model.parameters(), sums[j]):
                    param.copy_(total / choices.count(j))
    return new, choices


def main():
    task = json.loads(sys.argv[1])
    folder, widths = task["folder"], task["widths"]
    torch.set_num_threads(task["threads"])
    params = torch.from_numpy(numpy.fromfile(f"{folder}/models", dtype="<f4").reshape(task["models"], -1))
    models = [network(widths, vector) for vector in params]
    pixels = numpy.fromfile(f"{folder}/pixels", dtype="u1").reshape(-1, task["rows"], widths[0])
    labels = numpy.fromfile(f"{folder}/labels", dtype="u1").reshape(-1, task["rows"])
    mine = slice(task["part"], None, task["parts"])
    clients = [
        (torch.from_numpy(x.astype("f4") / numpy.float32(255)), torch.from_numpy(y.astype("i8")))
        for x, y in zip(pixels[mine], labels[mine])
    ]
    one_round(models, clients[:8], task["steps"], task["step"])
    seconds = []
    for _ in range(task["repetitions"]):
        began = time.perf_counter()
        new, choices = one_round(models, clients, task["steps"], task["step"])
        seconds.append(time.perf_counter() - began)
    if task["parts"] == 1:
        vectors = [nn.utils.parameters_to_vector(model.parameters()).detach().numpy() for model in new]
        numpy.concatenate(vectors).astype("<f4").tofile(f"{folder}/answer")
    print(json.dumps({"seconds": seconds, "choices": choices, "version": torch.__version__}))


main()
