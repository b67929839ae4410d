#!/usr/bin/env python3
"""How often `kinfolk fit` takes curves and products of columns where there are none in truth, and where there are.

    terms.py [--kinfolk PROGRAM] [--seeds 100] [DESIGN ...]

Every table has clients with intercepts and slopes of their own and noise of variance 1. Counted are the tables whose sentences speak of
curves, and of products."""
import argparse, json, pathlib, random, subprocess, tempfile

# Clients, rows of each, columns, and what is added to a straight truth.
DESIGNS = {
    "straight-5": (5, 40, 3, None),
    "straight-12": (12, 40, 3, None),
    "straight-40": (40, 30, 4, None),
    "heavy-12": (12, 40, 3, "heavy tails"),
    "curve-12": (12, 40, 3, "curve"),
    "product-12": (12, 40, 3, "product"),
}


def table(path, seed, clients, rows, columns, added):
    draw = random.Random(f"{seed} {clients} {rows} {columns} {added}")
    names = [f"x{column}" for column in range(columns)]
    lines = [",".join(["client", *names, "y"])]
    centre = [draw.gauss(0, 1) for _ in range(columns + 1)]
    for client in range(clients):
        own = [value + 0.3 * draw.gauss(0, 1) for value in centre]
        for _ in range(rows):
            x = [draw.gauss(0, 1) for _ in range(columns)]
            noise = draw.gauss(0, 1)
            if added == "heavy tails":
                noise /= (sum(draw.gauss(0, 1) ** 2 for _ in range(4)) / 4) ** 0.5
            y = own[0] + sum(slope * value for slope, value in zip(own[1:], x)) + noise
            y += 0.5 * x[0] ** 2 if added == "curve" else 0.4 * x[0] * x[1] if added == "product" else 0
            lines.append(",".join([f"c{client}", *(f"{value:.6f}" for value in x), f"{y:.6f}"]))
    path.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("designs", nargs="*", default=list(DESIGNS)), parser.add_argument("--kinfolk", default="kinfolk")
    parser.add_argument("--seeds", type=int, default=100)
    given = parser.parse_args()
    for design in given.designs:
        curves = products = 0
        for seed in range(given.seeds):
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "table.csv"
                table(path, seed, *DESIGNS[design])
                command = [given.kinfolk, "fit", str(path), "--client", "client", "--target", "y", "--families", "one", "--json"]
                said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["sentences"]
            curves += any("with curves" in sentence for sentence in said)
            products += any("products with other columns" in sentence for sentence in said)
        print(f"{design}: curves in {curves}, products in {products} of {given.seeds}", flush=True)


main()
