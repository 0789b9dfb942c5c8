#!/usr/bin/env python3
"""Measured training runs on clusters against what `pipewright simulate` predicts of their plans: times, memory, which plans
fit, and which is the fastest. Needs PyYAML; --plot needs gnuplot.

    bench/clusters.py PIPEWRIGHT ROWS.yaml [--json OUT] [--rows CSV] [--plot SVG] [--only GROUP] [--keep FOLDER] [-j N]

ROWS.yaml is DATA_DIR/clusters/developers.yaml, another file in the schema of its head, or
DATA_DIR/published/large-models.yaml. Errors are (predicted - measured) / measured of the time of an update. The constant MFU is
the rate of model FLOPs with the least mean |error| over all rows of a device and precision in the file: it is fitted to the rows
that it is judged on. Kendall's tau-b and the regret of the plan predicted fastest are of rows with one model, cluster,
precision and batch, averaged by their number; a row that ran out of memory counts only in the fits. What a source leaves open is
guessed (bench/cluster_guesses.py): the first guess counts, and the band is the least and largest mean |error| of the group over
all guesses, which follow with their reasons.
"""
import argparse
import csv
import itertools
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import cluster_guesses
import cluster_rows
from cluster_rows import Unexpressed
from cluster_scores import constant_rate, lines_of, mean, mean_size, score
from model_flops import read_models

PATIENCE = 600  # seconds for a simulation
PRESETS = Path(__file__).resolve().parent.parent / "workloads" / "models" / "transformers.yaml"


@dataclass
class Row:
    """A measured run, its config, and what is predicted of it; times in seconds, memory in bytes."""
    group: str
    number: int  # in its group, from 1
    given: dict
    choice: int = 0  # of guesses, 0 the one that counts
    reason: str = ""  # why there is no prediction
    path: Path = None
    config: dict = None
    model: dict = None  # where it is not a preset
    flops: float = 0  # of a GPU in an update
    measured: float = None
    memory: dict = field(default_factory=dict)
    predicted: float = None
    predicted_memory: dict = field(default_factory=dict)
    fits: bool = None
    constant_error: float = None

    @property
    def ran(self):
        return self.given.get("result", "ok") == "ok"

    @property
    def timed(self):
        """Whether a time was measured; of other rows only memory."""
        return self.measured is not None

    @property
    def error(self):
        return self.predicted / self.measured - 1

    @property
    def memory_error(self):
        """The mean |error|, by stage where memory was measured so."""
        kinds = ([kind for kind in self.memory if kind.startswith("stage")] or
                 [kind for kind in ("first", "last") if kind in self.memory] or ["fullest", "total"])
        return mean(abs(self.predicted_memory[kind] / self.memory[kind] - 1) for kind in kinds
                    if kind in self.memory and kind in self.predicted_memory)


def prepare(row, models):
    try:
        if row.given.get("result", "ok") not in ("ok", "oom"):
            raise Unexpressed(f"result {row.given['result']}")
        row.config, row.model, flops = cluster_rows.describe(row.given, models)
        batch = row.config["pipeline"]["mini_batch"]
        row.memory = cluster_rows.measured_memory(row.given)
        if row.ran:
            row.measured = measured_seconds(row, batch)
        row.flops = flops * batch / row.given.get("gpus", row.given.get("pipeline"))
    except Unexpressed as reason:
        row.reason = str(reason)


def measured_seconds(row, batch):
    """None where a row prints memory and no time."""
    try:
        return cluster_rows.step_seconds(row.given, batch)
    except Unexpressed:
        if not row.memory:
            raise
    return None


def simulate(program, path):
    """The JSON of a config and whether its plan fits. A plan that is refused for its memory is simulated without a limit."""
    for more in ([], ["--set", "cluster.memory=inf"]):
        try:
            said = subprocess.run([program, "simulate", str(path), "--json", *more], capture_output=True, text=True,
                                  timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise Unexpressed(f"pipewright: no answer in {PATIENCE} s")
        if said.returncode != 3:
            break
    if said.returncode != 0:
        lines = [line.strip() for line in said.stderr.splitlines() if line.strip().startswith(("error:", "help:"))]
        raise Unexpressed(f"pipewright: {'; '.join(lines[:2]) or f'exit code {said.returncode}'}")
    answer = json.loads(said.stdout)
    memory = (answer.get("parallel") or {}).get("memory") or {}
    return answer, not more and memory.get("fits", answer.get("fits", True))


def as_read(tensors, row):
    """The bytes that the reader of a row's memory sees where tensors take `tensors` (docs/clusters.md, a plan)."""
    reader = "tensors" if any("allocated" in key for key in row.given) else row.given.get("memory_read_by", "tensors")
    return tensors * (1 if reader == "tensors" else 1.03) + (2 * 2**30 if reader == "driver" else 0)


def peak_of(device, training):
    """PyTorch's SGD keeps no state without momentum, pipewright's does."""
    return device["peak_memory_bytes"] - (device["memory"]["optimizer"] if training.get("momentum") == 0 else 0)


def predict(row, program, folder):
    row.path = folder / f"{row.group}-{row.number}{f'-guess{row.choice}' if row.choice else ''}.yaml"
    cluster_rows.write_config(row.config, row.model, row.path, row.given.get("kinds"))
    try:
        answer, row.fits = simulate(program, row.path)
    except Unexpressed as reason:
        row.reason = str(reason)
        return
    row.predicted = answer["step_time_ns"] / 1e9
    peaks = [peak_of(device, row.config["training"]) for device in answer["devices"]]
    memory = (answer.get("parallel") or {}).get("memory") or {}
    found = {"fullest": memory.get("fullest_rank_bytes", max(peaks)), "first": peaks[0], "last": peaks[-1], "total": sum(peaks),
             **{f"stage {stage}": peak for stage, peak in enumerate(peaks)}}
    row.predicted_memory = {kind: as_read(tensors, row) for kind, tensors in found.items()}


def add_constants(rows):
    """The errors of one MFU per device and precision, over all rows that ran."""
    kinds = {}
    for row in rows:
        kinds.setdefault((row.given["device"], row.config["training"]["precision"]), []).append(row)
    for some in kinds.values():
        rate = constant_rate([row.flops / row.measured for row in some])
        for row in some:
            row.constant_error = row.flops / rate / row.measured - 1


def tried(group, given):
    """[(choice of guesses, the rows of a group under it)], first the choice that counts. Rows that a choice does not change are
    the same objects."""
    guesses = cluster_guesses.guesses_of(given)
    known, found = {}, []
    for index, choice in enumerate(cluster_guesses.choices_of(guesses)):
        rows = []
        for number, each in enumerate(given, 1):
            changed = cluster_guesses.with_choice(each, choice)
            key = (number, repr(changed))
            rows.append(known.setdefault(key, Row(group, number, changed, index)))
        found.append((choice, rows))
    return found


def band_of(choices):
    """[{guess, n, mean_abs}] of the choices of a group, and their least and largest mean |error|; none without guesses."""
    if len(choices) < 2:
        return [], None
    found = []
    for choice, rows in choices:
        counted = [row for row in rows if not row.reason and row.timed]
        found.append({"guess": cluster_guesses.name_of(choice), "n": len(counted),
                      "signed_mean": mean(row.error for row in counted), "mean_abs": mean_size(row.error for row in counted)})
    sizes = [each["mean_abs"] for each in found if each["mean_abs"] is not None]
    return found, [min(sizes), max(sizes)] if sizes else None


def percent(value, sign=""):
    return "-" if value is None else f"{100 * value:{sign}.1f} %"


def table(scores):
    lines = [f"{'group':<36}{'n':>4}{'mean':>9}{'|mean|':>9}{'band':>15}{'worst':>9}{'constant':>10}{'memory':>9}{'tau':>7}"
             f"{'regret':>9}  fits: right, wrongly yes, wrongly no{'skipped':>9}"]
    for each in scores:
        fit, tau = each["fit"], "-" if each["tau"] is None else f"{each['tau']:.2f}"
        band = "-" if each["band"] is None else f"{100 * each['band'][0]:.1f}-{100 * each['band'][1]:.1f} %"
        lines.append(f"{each['id']:<36}{each['n']:>4}{percent(each['signed_mean'], '+'):>9}{percent(each['mean_abs']):>9}"
                     f"{band:>15}{percent(each['worst_abs']):>9}{percent(each['constant_mfu_mean_abs']):>10}"
                     f"{percent(each['memory_mean_abs']):>9}{tau:>7}{percent(each['regret']):>9}"
                     f"{fit['right']:>13}{fit['wrong_fits']:>13}{fit['wrong_misfits']:>12}{each['skipped']:>9}")
    return "\n".join(lines)


def guesses_tried(scores):
    """A line for each choice of each group: the first is the one that counts."""
    return "\n".join(f"guessed: {each['id']}: {guess['guess']}: mean {percent(guess['signed_mean'], '+')}, |mean| "
                     f"{percent(guess['mean_abs'])} of {guess['n']} rows" for each in scores for guess in each["guesses"])


def total(scores, rows):
    """Two lines: all groups alike, and all rows alike."""
    predicted = [row for row in rows if not row.reason]
    ran = [row for row in predicted if row.timed]
    skipped = f"{len(rows) - len(predicted)} of {len(rows)} rows skipped ({percent(1 - len(predicted) / len(rows))})"
    lines = []
    for what, own, constant in (
            ("groups", mean(each["mean_abs"] for each in scores), mean(each["constant_mfu_mean_abs"] for each in scores)),
            ("rows", mean_size(row.error for row in ran), mean_size(row.constant_error for row in ran))):
        ratio = f"{own / constant:.2f}" if own is not None and constant else "-"
        lines.append(f"mean over {what}: |error| {percent(own)}, constant MFU {percent(constant)}, ratio {ratio}; {skipped}")
    return "\n".join(lines)


def ranges(numbers):
    """"1-3 5" for [1, 2, 3, 5]."""
    parts = [list(part) for _, part in itertools.groupby(numbers, lambda number, count=itertools.count(): number - next(count))]
    return " ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def reasons(rows):
    """Each reason of a group once, with its rows."""
    found = {}
    for row in rows:
        if row.reason:
            found.setdefault((row.group, row.reason), []).append(row.number)
    return "\n".join(f"skipped: {group}, rows {ranges(numbers)}: {reason}" for (group, reason), numbers in found.items())


def write_rows(path, rows, kept):
    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["group", "row", "model", "device", "gpus", "result", "measured_s", "predicted_s", "error",
                      "constant_mfu_error", "memory_measured_bytes", "memory_predicted_bytes", "memory_error", "fits",
                      "skipped", "config"])
        for row in rows:
            known = row.timed and not row.reason
            out.writerow([row.group, row.number, row.given.get("model", ""), row.given.get("device"), row.given.get("gpus"),
                          row.given.get("result", "ok"), row.measured, row.predicted, row.error if known else None,
                          row.constant_error, row.memory.get("fullest"), row.predicted_memory.get("fullest"),
                          None if row.reason else row.memory_error, row.fits, row.reason, row.path if kept else ""])


def plot(path, rows, sources):
    """Predicted against measured times, a colour per source."""
    by_source = {}
    for row in rows:
        by_source.setdefault(sources[row.group], []).append(row)
    blocks, curves = "", ["x with lines linecolor '#000000' title 'equal'",
                          "1.1 * x with lines linecolor '#999999' title '10 %'",
                          "x / 1.1 with lines linecolor '#999999' notitle"]
    for number, (source, some) in enumerate(by_source.items()):
        points = "\n".join(f"{row.measured} {row.predicted}" for row in some)
        blocks += f"$points{number} << END\n{points}\nEND\n"
        name = source.replace("'", "")
        curves.append(f"$points{number} with points pointtype {5 + 2 * (number // 8 % 5)} pointsize 0.6 title '{name}'")
    script = ("set terminal svg noenhanced font 'sans-serif,11' size 900,960 background '#ffffff'\n"
              f"set output '{path}'\nset logscale xy\nset key below maxcols 2 reverse Left samplen 1\nset grid\nset size square\n"
              "set xlabel 'measured step (s)'\nset ylabel 'predicted step (s)'\n"
              f"{blocks}plot " + ", ".join(curves) + "\n")
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def source_name(source):
    return source.split("@")[0].split(",")[0].split(" tag ")[0].strip()


def judge(program, rows, folder, jobs):
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda row: predict(row, program, folder), [row for row in rows if not row.reason]))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="PIPEWRIGHT")
    parser.add_argument("file", metavar="ROWS.yaml", type=Path)
    parser.add_argument("--json", metavar="OUT", help="write the scores of all groups")
    parser.add_argument("--rows", metavar="CSV", help="write every row")
    parser.add_argument("--plot", metavar="SVG", help="draw predicted against measured times")
    parser.add_argument("--only", metavar="GROUP", default="", help="only groups whose names begin so")
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="leave the configs there")
    parser.add_argument("-j", dest="jobs", metavar="N", type=int, default=os.cpu_count(), help="simulations at a time")
    return parser.parse_args()


def main():
    asked = arguments()
    program = os.path.abspath(asked.program)
    groups = cluster_rows.groups_of(asked.file)
    models = read_models(PRESETS)
    choices = {group["id"]: tried(group["id"], group["rows"]) for group in groups}
    every = list({id(row): row for tries in choices.values() for _, rows in tries for row in rows}.values())
    for row in every:
        prepare(row, models)
    add_constants([row for tries in choices.values() for row in tries[0][1] if row.timed and not row.reason])
    groups = [group for group in groups if group["id"].startswith(asked.only)]
    every = [row for row in every if row.group.startswith(asked.only)]
    if not groups:
        sys.exit(f"error: no group of {asked.file} begins with '{asked.only}'")
    with tempfile.TemporaryDirectory() as temporary:
        folder = (asked.keep or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        judge(program, every, folder, asked.jobs)

    scores, rows = [], []
    for group in groups:
        own, given = choices[group["id"]][0][1], group["rows"]
        guesses, band = band_of(choices[group["id"]])
        scores.append({**score(group["id"], [row for row in own if not row.reason], sum(bool(row.reason) for row in own)),
                       "program": cluster_rows.program_of(given[0]), "band": band, "guesses": guesses})
        rows += own
    if asked.json:
        Path(asked.json).write_text(lines_of(scores))
    if asked.rows:
        write_rows(asked.rows, rows, asked.keep)
    if asked.plot:
        plot(asked.plot, [row for row in rows if row.timed and not row.reason],
             {group["id"]: source_name(group["source"]) for group in groups})
    print("\n".join(part for part in (table(scores), guesses_tried(scores), reasons(rows), total(scores, rows)) if part))


if __name__ == "__main__":
    main()
