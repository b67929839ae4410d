#!/usr/bin/env python3
"""The mixed models of `kinfolk fit` beside lme4 on three real tables: variances, and predictions with personal models.

    lme4.py TABLES [--kinfolk BINARY]

TABLES is the folder of ilea.csv, chem97.csv and texas-housing.csv; Rscript needs lme4. The same covariance of clients is asked of
both; columns are standardised for lme4 as `fit` does it, since a diagonal covariance depends on where columns are centred.
"""

import argparse
import csv
import json
import subprocess
import tempfile
from pathlib import Path

STUDIES = [
    # Table, client, target, columns, covariance, the random part of lme4's formula.
    ("ilea", "school", "score", ["x1", "x4", "x5", "x6", "x10", "x22"], "intercept", "(1 | client)"),
    ("chem97", "school", "score", ["gcsescore", "age"], "full", "(1 + gcsescore + age | client)"),
    ("texas-housing", "city", "median", ["sales", "listings", "inventory"], "diagonal", "(1 + sales + listings + inventory || client)"),
]
LMER = """
library(lme4)
rows <- read.csv("rows.csv")
began <- proc.time()[["elapsed"]]
model <- lmer({formula}, rows, REML = TRUE, control = lmerControl(optCtrl = list(xtol_rel = 1e-12, ftol_rel = 1e-14),
                                                                  optimizer = "nloptwrap", calc.derivs = FALSE))
cat("seconds", proc.time()[["elapsed"]] - began, "\\n", file = "lmer.txt")
found <- as.data.frame(VarCorr(model))
for (row in seq_len(nrow(found))) {{
  name <- if (is.na(found$var1[row])) "noise" else if (is.na(found$var2[row])) found$var1[row] else paste(found$var1[row], found$var2[row])
  cat(name, sprintf("%.12g", found$vcov[row]), "\\n", file = "lmer.txt", append = TRUE)
}}
write.table(fitted(model), "fitted.txt", row.names = FALSE, col.names = FALSE)
"""


def compare(folder, tables, kinfolk, study):
    table, client, target, columns, covariance, random = study
    with open(tables / f"{table}.csv") as file:
        rows = [row for row in csv.DictReader(file) if all(row[name] not in ("", "NA") for name in [client, target, *columns])]
    with open(folder / "table.csv", "w") as file:
        writer = csv.writer(file)
        writer.writerow([client, target, *columns])
        writer.writerows([row[name] for name in [client, target, *columns]] for row in rows)
    options = ["--covariance", covariance, "--families", "one", "--no-curves", "--replace"]
    fit = [kinfolk, "fit", "table.csv", "--client", client, "--target", target, *options, "--out", "model"]
    subprocess.run(fit, cwd=folder, check=True, capture_output=True)
    saved = json.loads((folder / "model" / "model.json").read_text())
    scales = {column["name"]: column["encoding"]["Number"] for column in saved["columns"]["features"]["Named"]}

    with open(folder / "rows.csv", "w") as file:
        writer = csv.writer(file)
        writer.writerow(["client", "target", *columns])
        for row in rows:
            standardised = [(float(row[name]) - scales[name]["mean"]) / scales[name]["deviation"] for name in columns]
            writer.writerow(["c" + row[client], row[target], *standardised])
    formula = f"target ~ {' + '.join(columns)} + {random}"
    subprocess.run(["Rscript", "-e", LMER.format(formula=formula)], cwd=folder, check=True, capture_output=True)

    learned, square = saved["model"]["learned"], saved["model"]["target"]["deviation"] ** 2
    names = [*columns, "(Intercept)"]
    ours = {"noise": learned["population"]["noise"] * square}
    for i, one in enumerate(names):
        for j, other in enumerate(names):
            value = learned["spread"][i * len(names) + j] * square
            ours[one if i == j else f"{one} {other}"] = value
    print(f"\n{table}: {len(rows)} rows, {len(saved['names'])} clients, {formula}")
    largest = 0.0
    for line in (folder / "lmer.txt").read_text().splitlines():
        *name, value = line.split()
        name, value = " ".join(name), float(value)
        if name == "seconds":
            print(f"lme4 took {value:.2f} s")
            continue
        # lme4 calls the terms of separate variances client, client.1, …
        print(f"  {name:28} lme4 {value:14.6g}   kinfolk {ours[name]:14.6g}   {ours[name] / value - 1:+.1e}")
        largest = max(largest, abs(ours[name] / value - 1))

    personal = {}
    with open(folder / "model" / "coefficients.csv") as file:
        for row in csv.DictReader(file):
            if row["model"] == "personal":
                personal.setdefault(row["of"], {})[row["term"]] = float(row["value"])
    worst = 0.0
    values = [float(row[target]) for row in rows]
    mean = sum(values) / len(values)
    deviation = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
    for row, theirs in zip(rows, (folder / "fitted.txt").read_text().split(), strict=True):
        own = personal[row[client]]
        prediction = own["(intercept)"] + sum(own[name] * float(row[name]) for name in columns)
        worst = max(worst, abs(prediction - float(theirs)) / deviation)
    print(f"  largest relative difference of variances {largest:.1e}; of predictions, over the target's deviation, {worst:.1e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path)
    parser.add_argument("--kinfolk", default="kinfolk")
    given = parser.parse_args()
    for study in STUDIES:
        with tempfile.TemporaryDirectory() as folder:
            compare(Path(folder), given.tables, given.kinfolk, study)


if __name__ == "__main__":
    main()
