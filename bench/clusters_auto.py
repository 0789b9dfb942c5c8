#!/usr/bin/env python3
"""What `auto` would gain over the schedules of measured training runs on clusters, at the memory of each run's plan, as
`pipewright simulate` predicts both. Needs PyYAML.

    bench/clusters_auto.py PIPEWRIGHT ROWS.yaml [--only GROUP] [-j N]

ROWS.yaml is DATA_DIR/clusters/developers.yaml (bench/clusters.py judges its times). A row is a run whose plan has several
pipeline stages: `auto` keeps its degrees, micro-batches and stages, and may use no more memory than the fullest device of the
run's plan reserves; `auto-v` has two stages per device. The better of both counts.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cluster_rows
from cluster_rows import Unexpressed
from clusters import PATIENCE, PRESETS, Row, percent, prepare
from model_flops import read_models


def simulate(program, path, *settings):
    command = [program, "simulate", str(path), "--json"]
    for setting in settings:
        command += ["--set", setting]
    said = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    if said.returncode != 0:
        raise Unexpressed(next((line for line in said.stderr.splitlines() if "error:" in line), f"exit code {said.returncode}"))
    return json.loads(said.stdout)


def reserved(answer):
    return max(device["reserved_memory_bytes"] or device["peak_memory_bytes"] for device in answer["devices"])


def gain_of(row, program, folder):
    """Sets what is predicted of the run's plan and of the better of auto and auto-v; or the reason why not."""
    path = folder / f"{row.group}-{row.number}.yaml"
    cluster_rows.write_config(row.config, row.model, path)
    try:
        row.run = simulate(program, path, "cluster.memory=inf")
    except Unexpressed as reason:
        row.reason = str(reason)
        return
    row.found = []
    for settings in (("pipeline.schedule=auto",), ("pipeline.schedule=auto-v", f"pipeline.stages={2 * row.given['pipeline']}")):
        try:
            answer = simulate(program, path, *settings, f"cluster.memory={reserved(row.run)} B")
        except (Unexpressed, subprocess.TimeoutExpired):  # not that many layers
            continue
        if all(device["reserved_memory_bytes"] <= reserved(row.run) for device in answer["devices"]):
            row.found.append((answer["step_time_ns"], settings[0].split("=")[1], answer))
    if not row.found:
        row.reason = "no order fits"


def table(groups, rows):
    lines = [f"{'group':<30}{'rows':>5}  {'schedule':<18}{'bubble':>8}{'auto':>8}{'gain, mean':>12}{'most':>8}{'least':>8}{'memory':>9}"
             f"{'best by auto-v':>16}"]
    for group in groups:
        for schedule in sorted({row.config["pipeline"]["schedule"] for row in rows if row.group == group}):
            own = [row for row in rows if row.group == group and row.config["pipeline"]["schedule"] == schedule]
            best = [min(row.found, key=lambda one: one[0]) for row in own]
            gains = [row.run["step_time_ns"] / step - 1 for row, (step, _, _) in zip(own, best)]
            mean = statistics.mean
            lines.append(f"{group:<30}{len(own):>5}  {schedule:<18}{percent(mean(row.run['bubble_rate'] for row in own)):>8}"
                         f"{percent(mean(answer['bubble_rate'] for _, _, answer in best)):>8}{percent(mean(gains)):>12}"
                         f"{percent(max(gains)):>8}{percent(min(gains)):>8}"
                         f"{percent(mean(reserved(answer) / reserved(row.run) for row, (_, _, answer) in zip(own, best))):>9}"
                         f"{sum(name == 'auto-v' for _, name, _ in best):>16}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="PIPEWRIGHT")
    parser.add_argument("file", metavar="ROWS.yaml", type=Path)
    parser.add_argument("--only", metavar="GROUP", default="", help="only groups whose names begin so")
    parser.add_argument("-j", dest="jobs", metavar="N", type=int, default=os.cpu_count(), help="simulations at a time")
    asked = parser.parse_args()
    program = os.path.abspath(asked.program)
    groups = [group for group in cluster_rows.groups_of(asked.file) if group["id"].startswith(asked.only)]
    models = read_models(PRESETS)
    rows = [Row(group["id"], number, given) for group in groups for number, given in enumerate(group["rows"], 1)
            if (given.get("pipeline") or 1) > 1 and given.get("result", "ok") == "ok"]
    for row in rows:
        prepare(row, models)
    rows = [row for row in rows if not row.reason]
    with tempfile.TemporaryDirectory() as folder:
        with ThreadPoolExecutor(asked.jobs) as pool:
            list(pool.map(lambda row: gain_of(row, program, Path(folder)), rows))
    print(table([group["id"] for group in groups], [row for row in rows if not row.reason]))
    for row in rows:
        if row.reason:
            print(f"left out: {row.group} row {row.number}: {row.reason}")


if __name__ == "__main__":
    main()
