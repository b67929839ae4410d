"""Steps of descent and passes forward of a stacked LSTM in PyTorch, on one thread.

Called by `cargo bench --bench lstm` with one JSON argument. Reads parameters, symbols and classes from files, times steps
and passes by the processor time of the thread, writes the parameters after the first steps, and prints the times as JSON.
"""

import json
import sys
import time

import numpy
import torch
from torch import nn


class Network(nn.Module):
    """Parameters lie in the order of the attributes, layer by layer: weight_ih, weight_hh, bias_ih, bias_hh."""

    def __init__(self, symbols, embedding, hidden, layers, classes):
        super().__init__()
        self.embedding = nn.Embedding(symbols, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.output = nn.Linear(hidden, classes)

    def forward(self, text):
        return self.output(self.lstm(self.embedding(text))[0][:, -1])


def main():
    task = json.loads(sys.argv[1])
    folder = task["folder"]
    torch.set_num_threads(task["threads"])
    model = Network(*task["sizes"])
    params = torch.from_numpy(numpy.fromfile(f"{folder}/params", dtype="<f4"))
    nn.utils.vector_to_parameters(params, model.parameters())
    text = torch.from_numpy(numpy.fromfile(f"{folder}/symbols", dtype="u1").reshape(task["rows"], -1).astype("i8"))
    classes = torch.from_numpy(numpy.fromfile(f"{folder}/classes", dtype="u1").astype("i8"))
    loss_of = nn.CrossEntropyLoss()
    optimiser = torch.optim.SGD(model.parameters(), lr=task["step"])

    def train():
        for _ in range(task["steps"]):
            optimiser.zero_grad()
            loss_of(model(text), classes).backward()
            optimiser.step()

    def score():
        with torch.no_grad():
            for _ in range(task["steps"]):
                model(text)

    train()
    vector = nn.utils.parameters_to_vector(model.parameters()).detach().numpy()
    vector.astype("<f4").tofile(f"{folder}/answer")
    times = {"train": [], "score": []}
    for _ in range(task["repetitions"]):
        for name, work in (("train", train), ("score", score)):
            began = time.thread_time()
            work()
            times[name].append((time.thread_time() - began) / task["steps"])
    print(json.dumps({**times, "version": torch.__version__}))


main()
