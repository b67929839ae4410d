"""Makes the tables of the README: bakeries of two kinds, which differ in what rain and weekends do to their sales.

    python3 examples/bakeries.py

writes bakeries.csv (40 bakeries), tomorrow.csv (rows without sales, one bakery among them that nobody knows) and
new-bakeries.csv (three bakeries that were not there) beside this file.
"""

import csv
import datetime
import pathlib
import random

FOLDER = pathlib.Path(__file__).parent
FIRST = datetime.date(2025, 3, 1)
# What sets the kinds apart: base sales, a weekend day, a millimetre of rain.
KINDS = {"office": (120, -55, -0.5), "park": (90, 40, -6.0)}


def bakery(draw, kind):
    """A bakery's own numbers, around those of its kind."""
    return [value + draw.gauss(0, spread) for value, spread in zip(KINDS[kind], (12, 6, 0.6))] + [draw.gauss(-15, 2)]


def rows(draw, name, own, days):
    base, weekend, wet, dear = own
    for _ in range(days):
        date = FIRST + datetime.timedelta(days=draw.randrange(120))
        rain = max(0.0, draw.gauss(0, 4))
        price = draw.choice((2.8, 3.0, 3.2, 3.5))
        saturday = date.weekday() >= 5
        sold = base + weekend * saturday + wet * rain + dear * (price - 3) * 4 + draw.gauss(0, 9)
        yield [name, date.isoformat(), "yes" if saturday else "no", f"{rain:.1f}", price, round(sold)]


def write(name, table, target=True):
    header = ["bakery", "date", "weekend", "rain", "price", "sold"]
    with open(FOLDER / name, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header if target else header[:-1])
        writer.writerows(row if target else row[:-1] for row in table)


def main():
    draw = random.Random(1)
    bakeries = {f"B{number:02}": bakery(draw, "office" if number % 5 < 3 else "park") for number in range(1, 41)}
    write("bakeries.csv", [row for name, own in bakeries.items() for row in rows(draw, name, own, draw.randint(12, 40))])
    tomorrow = [row for name in ("B01", "B03", "B04") for row in rows(draw, name, bakeries[name], 2)]
    tomorrow += rows(draw, "B99", bakery(draw, "park"), 2)
    write("tomorrow.csv", tomorrow, target=False)
    strange = [60, 5, 3.0, 20]
    new = {"N1": bakery(draw, "office"), "N2": bakery(draw, "park"), "N3": strange}
    write("new-bakeries.csv", [row for name, own in new.items() for row in rows(draw, name, own, 15)])


if __name__ == "__main__":
    main()
