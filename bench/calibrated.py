#!/usr/bin/env python3
"""How far measured runs of a cluster calibrate predictions of its other runs. Needs PyYAML.

    bench/calibrated.py PIPEWRIGHT ROWS.yaml [--runs 1,3] [--draws N] [--judged N] [--only GROUP] [--json OUT] [-j N]

ROWS.yaml is a file that bench/clusters.py reads. `pipewright calibrate` gets rows of a group, and the factors that it finds are
judged by the mean |error| of other rows of the group, at most N drawn by a seed. With one run each row is taken in turn, or N of
them if there are more, with more runs N sets of rows are drawn. Layers that are no transformer are left out. `scaled`: the same
with all steps times the (geometric) mean of measured over predicted of the runs. Groups count alike in the medians.
"""
import argparse
import json
import math
import os
import random
import statistics
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cluster_guesses
import cluster_rows
from cluster_scores import lines_of, mean, mean_size
from clusters import PATIENCE, PRESETS, Row, Unexpressed, percent, prepare, predict
from model_flops import read_models

FACTORS = ("computing", "inside", "between", "outside")


def answer(program, *words):
    said = subprocess.run([program, *map(str, words), "--json"], capture_output=True, text=True, timeout=PATIENCE)
    if said.returncode != 0:
        raise Unexpressed(said.stderr.strip().splitlines()[0])
    return json.loads(said.stdout)


def expressed(row, program, folder):
    """Predicts a row that ran. A plan that does not fit gets a config without a limit of memory, since it ran."""
    predict(row, program, folder)
    if not row.reason and not row.fits:
        row.config["cluster"]["memory"] = "inf"
        cluster_rows.write_config(row.config, row.model, row.path, row.given.get("kinds"))
    return row


def calibrated(program, rows):
    """The factors that these rows set."""
    words = [f"--run={rows[0].measured:.9g} s", *(f"--run={row.path}={row.measured:.9g} s" for row in rows[1:])]
    return answer(program, "calibrate", rows[0].path, *words)["calibration"]


def error_with(program, factors, row):
    sets = [f"--set=calibration.{name}={factors[name]}" for name in FACTORS]
    return answer(program, "simulate", row.path, *sets)["step_time_ns"] / 1e9 / row.measured - 1


def sets_of(rows, count, draws, judged, seed):
    """[(rows that calibrate, rows that judge)]."""
    drawn = random.Random(seed)
    chosen = [[row] for row in rows] if count == 1 and len(rows) <= draws else [drawn.sample(rows, count) for _ in range(draws)]
    pairs = []
    for some in chosen:
        others = [row for row in rows if row not in some]
        pairs.append((some, others if len(others) <= judged else drawn.sample(others, judged)))
    return pairs


def judge(program, pairs):
    """The mean |error| without a calibration, with all steps scaled, and calibrated, and all errors that are left."""
    plain, scaled, fitted = [], [], []
    for some, others in pairs:
        factors = calibrated(program, some)
        ratio = math.exp(mean(math.log(row.measured / row.predicted) for row in some))
        for row in others:
            plain.append(abs(row.error))
            scaled.append(abs(row.predicted * ratio / row.measured - 1))
            fitted.append(error_with(program, factors, row))
    return [mean(plain), mean(scaled), mean_size(fitted)], [round(error, 4) for error in fitted]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="PIPEWRIGHT")
    parser.add_argument("file", metavar="ROWS.yaml", type=Path)
    parser.add_argument("--runs", metavar="N,...", default="1,3", help="how many runs calibrate")
    parser.add_argument("--draws", metavar="N", type=int, default=12, help="sets of runs of a group")
    parser.add_argument("--judged", metavar="N", type=int, default=12, help="other rows that judge a set")
    parser.add_argument("--seed", metavar="N", type=int, default=0)
    parser.add_argument("--only", metavar="GROUP", default="", help="only groups whose names begin so")
    parser.add_argument("--json", metavar="OUT", help="write the numbers of all groups")
    parser.add_argument("-j", dest="jobs", metavar="N", type=int, default=os.cpu_count(), help="simulations at a time")
    return parser.parse_args()


def guessed(rows):
    """The rows with the first value of each fact that the source leaves open."""
    choice = cluster_guesses.choices_of(cluster_guesses.guesses_of(rows))[0]
    return [cluster_guesses.with_choice(row, choice) for row in rows]


def main():
    asked = arguments()
    program = os.path.abspath(asked.program)
    models = read_models(PRESETS)
    groups = [group for group in cluster_rows.groups_of(asked.file) if group["id"].startswith(asked.only)]
    rows = [Row(group["id"], number, given) for group in groups for number, given in enumerate(guessed(group["rows"]), 1)]
    for row in rows:
        prepare(row, models)
    counts = [int(count) for count in asked.runs.split(",")]
    numbers = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(asked.jobs) as pool:
        ran = [row for row in rows if row.timed and not row.reason and cluster_rows.program_of(row.given)]
        ran = [row for row in pool.map(lambda row: expressed(row, program, Path(folder)), ran) if not row.reason]
        cases = [(group["id"], count, own) for group in groups for count in counts
                 if len(own := [row for row in ran if row.group == group["id"]]) > count]
        judged = pool.map(lambda case: judge(program, sets_of(case[2], case[1], asked.draws, asked.judged, asked.seed)), cases)
        print(f"{'group':<36}{'rows':>5}{'runs':>5}{'before':>9}{'scaled':>9}{'calibrated':>12}", flush=True)
        for (group, count, own), (errors, left) in zip(cases, judged):
            numbers.append({"group": group, "rows": len(own), "runs": count,
                            **dict(zip(("before", "scaled", "calibrated"), errors)), "errors": left})
            print(f"{group:<36}{len(own):>5}{count:>5}{percent(errors[0]):>9}{percent(errors[1]):>9}{percent(errors[2]):>12}",
                  flush=True)
    for count in counts:
        own = [one for one in numbers if one["runs"] == count]
        if own:
            middle = {name: percent(statistics.median(one[name] for one in own)) for name in ("before", "scaled", "calibrated")}
            print(f"median of {len(own)} groups, {count} run{'s' if count > 1 else ''}: before {middle['before']}, "
                  f"scaled {middle['scaled']}, calibrated {middle['calibrated']}")
    if asked.json:
        Path(asked.json).write_text(lines_of(numbers))


if __name__ == "__main__":
    main()
