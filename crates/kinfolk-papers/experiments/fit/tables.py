#!/usr/bin/env python3
"""`kinfolk fit` beside what a data scientist uses today, on tables of real clients: 20 splits, paired.

    tables.py PEERS TABLES OUT [--kinfolk PROGRAM] [--splits 20] [TABLE ...]

PEERS is the script that makes the splits and fits the peers (`peers/tables.py`), TABLES the folder with the tables. Everything is kept in
OUT, one JSON file per split: a run that was interrupted goes on where it stopped. Errors are means over clients of the mean error on
held-out rows; nothing is set but the columns that name the client and the target, `--time t` for the table that is split by time, and
that the numbers in Chem97's `lea` are names."""
import argparse, json, pathlib, statistics, subprocess, sys, time

TABLES = {
    "ilea": ["--client", "school", "--target", "score"],
    "chem97": ["--client", "school", "--target", "score", "--words", "lea"],
    "heart-disease": ["--client", "hospital", "--target", "disease"],
    "texas-housing": ["--client", "city", "--target", "median", "--time", "t", "--drop", "part"],
    "flights": ["--client", "carrier", "--target", "arr_delay"],
}


def peers(script, tables, out, name, splits):
    """The errors of the peers by split, and the splits themselves."""
    kept = out / f"{name}-peers.json"
    if kept.exists():
        return json.loads(kept.read_text())
    source = pathlib.Path(script).read_text()
    wanted = "r = np.array(r);"
    assert source.count(wanted) == 1, "PEERS has changed: where are its results?"
    found = {}

    def record(label, results):
        found[label] = {"errors": [row[0] for row in results], "seconds": [row[2] for row in results]}

    sys.argv = [script, tables, name, "--seeds", str(splits), "--write", str(out / "splits")]
    exec(compile(source.replace(wanted, wanted + " record_errors(label, r.tolist());"), script, "exec"), {"record_errors": record, "__name__": "__main__"})
    kept.write_text(json.dumps(found))
    return found


def ours(program, out, name, split):
    kept = out / f"{name}-{split}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    arguments = TABLES[name] if name == "texas-housing" else TABLES[name] + ["--part", "part"]
    start = time.time()
    command = [program, "fit", str(out / "splits" / f"{name}-{split}.csv"), *arguments, "--json"]
    done = subprocess.run([*command, "--replace", "--out", str(out / f"{name}.families")], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    shown = json.loads(done.stdout)
    found = {"seconds": time.time() - start, "tested": shown["tested"], "sentences": shown["sentences"], "coverage": shown["coverage"]}
    kept.write_text(json.dumps(found))
    return found


def bound(differences):
    """The upper end of a 95 % interval (one-sided) of the mean difference; splits share rows, so that it is rough."""
    if len(differences) < 2:
        return differences[0]
    from scipy.stats import t
    error = statistics.stdev(differences) / len(differences) ** 0.5
    return statistics.mean(differences) + t.ppf(0.95, len(differences) - 1) * error


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("peers"), parser.add_argument("data"), parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("tables", nargs="*", default=list(TABLES)), parser.add_argument("--kinfolk", default="kinfolk")
    parser.add_argument("--splits", type=int, default=20)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.tables:
        rivals = peers(given.peers, given.data, given.out, name, given.splits)
        count = len(next(iter(rivals.values()))["errors"])
        found = [ours(given.kinfolk, given.out, name, split) for split in range(count)]
        served = [one["tested"]["served"] for one in found]
        print(f"\n{name}, {count} splits")
        for label, rival in rivals.items():
            print(f"  {label:38s} {statistics.mean(rival['errors']):12.5g}  {statistics.mean(rival['seconds']):7.2f} s")
        for label in ["global", "family", "personal", "alone", "served"]:
            known = [one["tested"][label] for one in found if label in one["tested"]]
            print(f"  kinfolk: {label:29s} {statistics.mean(known):12.5g}" + (f"  in {len(known)} splits" if len(known) < count else ""))
        print(f"  seconds of kinfolk {statistics.mean(one['seconds'] for one in found):.2f}")
        for label, rival in sorted(rivals.items(), key=lambda item: statistics.mean(item[1]["errors"])):
            mean = statistics.mean(rival["errors"])
            differences = [own - other for own, other in zip(served, rival["errors"])]
            share = statistics.mean(differences) / mean
            print(f"  against {label:38s} {100 * share:+7.2f} %, at most {100 * bound(differences) / mean:+7.2f} %")
        print("  " + "\n  ".join(found[0]["sentences"]))
        if found[0]["coverage"]:
            print(f"  intervals cover {100 * statistics.mean(one['coverage'] for one in found):.1f} % in cross-validation")


main()
