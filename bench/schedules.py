#!/usr/bin/env python3
"""All schedules next to each other, predicted and measured: ResNet-50 at 32 pixels on two CPU devices, and the same model on
eight emulated devices, which sleep the times of the same profile.

    bench/schedules.py PIPEWRIGHT FOLDER [ROUNDS [CLUSTER...]]

It writes FOLDER/table.txt, and a file for each cluster: two-cpu.json, eight-emulated.json; with names only these.

A profile is measured first. Emulated devices sleep its times of a device alone, and predictions of them use these. CPU devices
run in turns with probes, which calibrate the prediction (docs/profile.md#calibration-during-a-run): a stored profile would be
of the machine at another time. A round runs every schedule once on each cluster, in an order of its own; by default there are
two rounds. A row has the medians over the rounds. Speeds are samples per second, as ratios to those of 1f1b in the same round,
so that slow changes of the machine cancel. The step of pipedream is one micro-batch.
"""
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

from accuracy_cpu import call, without_neighbours
from records import write_records

MICRO_BATCH_SIZE, STEPS, TURNS, BASE = 4, 4, 2, "1f1b"
CLUSTERS = {
    "two-cpu": {"title": "two CPU devices", "devices": 2, "backend": "cpu", "micro_batches": 8, "turns": TURNS},
    "eight-emulated": {"title": "eight emulated devices", "devices": 8, "backend": "emulated", "micro_batches": 16, "turns": 0},
}


def config_of(cluster, schedule, profile=None):
    settings = {"devices": cluster["devices"]}
    if profile:
        settings["profile"] = profile
    return {"workload": {"model": "resnet50", "image_size": 32, "classes": 10}, "cluster": settings,
            "pipeline": {"schedule": schedule, "split": "auto", "micro_batches": cluster["micro_batches"],
                         "micro_batch_size": MICRO_BATCH_SIZE},
            "training": {"steps": STEPS, "learning_rate": 0.001}, "run": {"backend": cluster["backend"]}}


def schedules_of(program):
    text = subprocess.run([program, "list", "schedules"], stdout=subprocess.PIPE, text=True, check=True).stdout
    rows = text.split("\n\n")[0].splitlines()[1:]  # a paragraph follows
    return [row.split()[0] for row in rows if row.split()[0] != "seq1f1b"]  # the model has no sequences to cut


def peak_of(report):
    return max(device["peak_memory_bytes"] for device in report["devices"])


def point_of(answer):
    predicted, measured = answer["predicted"], answer["measured"]
    step, measured_step = (answer.get("calibrated") or predicted)["step_time_ns"], measured["step_time_ns"]
    return {"predicted_step_ns": step, "measured_step_ns": measured_step,
            "predicted_samples_per_second": measured["samples_per_second"] * measured_step / step,
            "measured_samples_per_second": measured["samples_per_second"],
            "step_time_error": step / measured_step - 1,
            "predicted_peak_bytes": peak_of(predicted), "measured_peak_bytes": peak_of(measured),
            "cpu_share": min(measured.get("cpu_share") or [1])}


def rows_of(rounds, schedules):
    """A record of medians for each schedule; `rounds` are points by schedule."""
    rows = {}
    for schedule in schedules:
        points = [points[schedule] for points in rounds]
        row = {key: statistics.median(point[key] for point in points) for key in points[0]}
        for kind in ("predicted", "measured"):
            key = f"{kind}_samples_per_second"
            row[f"{kind}_speed"] = statistics.median(points[schedule][key] / points[BASE][key] for points in rounds)
        rows[schedule] = row
    return rows


def time_of(ns):
    return f"{ns / 1e6:.1f} ms"


def table_of(title, rows, count):
    shares = min(row["cpu_share"] for row in rows.values())
    lines = [f"{title}: {'one round' if count == 1 else f'medians of {count} rounds'}; devices had {100 * shares:.0f} % of their cores or more", "",
             f"{'schedule':<14}{'predicted step':>15}{'measured':>12}{'error':>9}{'speed to ' + BASE:>15}{'measured':>10}"
             f"{'predicted peak':>16}{'measured':>12}"]
    for schedule, row in rows.items():
        lines.append(f"{schedule:<14}{time_of(row['predicted_step_ns']):>15}{time_of(row['measured_step_ns']):>12}"
                     f"{100 * row['step_time_error']:>+7.1f} %{row['predicted_speed']:>15.2f}{row['measured_speed']:>10.2f}"
                     f"{row['predicted_peak_bytes'] / 2**20:>12.1f} MiB{row['measured_peak_bytes'] / 2**20:>8.1f} MiB")
    errors = sorted(abs(row["step_time_error"]) for row in rows.values())
    ratios = sorted(abs(row["predicted_speed"] / row["measured_speed"] - 1) for row in rows.values())
    peaks = sum(row["predicted_peak_bytes"] == row["measured_peak_bytes"] for row in rows.values())
    lines.append(f"\nerror of the step: {100 * statistics.median(errors):.1f} % in the median, {100 * errors[-1]:.1f} % at most; of "
                 f"the speed to {BASE}: {100 * statistics.median(ratios):.1f} %, {100 * ratios[-1]:.1f} %; peaks equal in {peaks} of "
                 f"{len(rows)} schedules")
    return "\n".join(lines) + "\n"


def main():
    program, out = os.path.abspath(sys.argv[1]), sys.argv[2]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    os.makedirs(out, exist_ok=True)
    schedules = schedules_of(program)
    clusters = {name: CLUSTERS[name] for name in sys.argv[4:] or CLUSTERS}
    rounds = {name: [] for name in clusters}
    dice = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        profile = os.path.join(folder, "profile.yaml")
        call(program, "profile", config_of(CLUSTERS["two-cpu"], BASE), folder, "-o", profile, "--sizes", str(MICRO_BATCH_SIZE))
        profiles = {"cpu": profile, "emulated": without_neighbours(profile, folder)}
        for number in range(count):
            for name, cluster in clusters.items():
                points = {}
                for schedule in dice.sample(schedules, len(schedules)):
                    points[schedule] = point_of(json.loads(
                        call(program, "compare", config_of(cluster, schedule, profiles[cluster["backend"]]), folder, "--json", "--interleave",
                             str(cluster["turns"]))))
                    print(f"{number} {name} {schedule}: {100 * points[schedule]['step_time_error']:+.1f} %", file=sys.stderr,
                          flush=True)
                rounds[name].append(points)
    tables = []
    for name, cluster in clusters.items():
        rows = rows_of(rounds[name], schedules)
        write_records(os.path.join(out, name + ".json"), {"medians": rows, "rounds": [
            {"round": number, "schedule": schedule, **point} for number, points in enumerate(rounds[name])
            for schedule, point in points.items()]})
        tables.append(table_of(cluster["title"], rows, count))
    with open(os.path.join(out, "table.txt"), "w") as file:
        file.write("\n\n".join(tables))
    print("\n\n".join(tables))


if __name__ == "__main__":
    main()
