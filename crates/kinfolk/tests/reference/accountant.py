"""What two accountants of others say of Gaussian mechanisms on Poisson samples: Rényi, and privacy loss distributions.

    pip install dp-accounting==0.6.0
    python crates/kinfolk/tests/reference/accountant.py > crates/kinfolk/tests/reference/accountant.json

A line is a list of mechanisms as [sampling rate, noise over sensitivity, times], delta, and the two values of epsilon.
"""

import json

import dp_accounting
from dp_accounting import pld, rdp

SPECIFIED = [
    ([[1, 1, 1]], 1e-5),
    ([[1, 4, 10]], 1e-5),
    ([[1, 20, 300]], 1e-5),
    ([[0.1, 1, 100]], 1e-5),
    ([[0.01, 1, 1000]], 1e-5),
    ([[0.001, 0.8, 10000]], 1e-6),
]
MIXED = [
    ([[1, 8, 10], [0.1, 2, 100]], 1e-5),
    ([[0.2, 1.5, 30], [0.02, 0.9, 300]], 1e-6),
    ([[1, 5, 1], [0.5, 6, 40], [0.01, 1.1, 500]], 1e-4),
]
RATES = [1, 0.5, 0.1, 0.02, 0.004]
NOISES = [0.7, 1, 1.7, 4, 12, 60]
TIMES = [1, 20, 400, 5000]
DELTAS = [1e-4, 1e-8]


def events(mechanisms):
    for rate, noise, times in mechanisms:
        event = dp_accounting.GaussianDpEvent(noise)
        yield (event if rate == 1 else dp_accounting.PoissonSampledDpEvent(rate, event)), times


def spent(accountant, mechanisms, delta):
    for event, times in events(mechanisms):
        accountant.compose(event, times)
    return accountant.get_epsilon(delta)


def main():
    grid = [([[q, noise, times]], delta) for q in RATES for noise in NOISES for times in TIMES for delta in DELTAS]
    lines = []
    for mechanisms, delta in SPECIFIED + MIXED + grid:
        renyi = spent(rdp.RdpAccountant(), mechanisms, delta)
        # Not budgets that nobody would spend, nor those below the precision of discretised distributions.
        if not 0.1 < renyi < 60:
            continue
        loss = spent(pld.PLDAccountant(), mechanisms, delta)
        lines.append(json.dumps({"mechanisms": mechanisms, "delta": delta, "renyi": float(renyi), "loss": float(loss)}))
    print("[\n" + ",\n".join(lines) + "\n]")


main()
