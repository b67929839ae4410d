"""The examination scores of 139 schools (ILEA) as shares of the highest possible, 70.

    python crates/kinfolk-papers/experiments/privacy/school.py ilea.csv school.csv
"""

import csv
import sys

HIGHEST = 70

with open(sys.argv[1], newline="") as table, open(sys.argv[2], "w", newline="") as shares:
    reader = csv.DictReader(table)
    writer = csv.DictWriter(shares, reader.fieldnames, lineterminator="\n")
    writer.writeheader()
    for row in reader:
        writer.writerow({**row, "score": int(row["score"]) / HIGHEST})
