#!/usr/bin/env python3
"""The growth of a process that runs a plan on the CPU against the memory that the plan reserves: models, sizes, devices and
schedules, two steps each. Every device's arena counts in whole huge pages of 2 MiB, as the system maps it. The constant is
the median of the further growth; all runs are compared with it.

    bench/memory_cpu.py PIPEWRIGHT [FOLDER]

Writes table.txt and runs.json to FOLDER, if given.
"""
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile

from records import write_records

MODELS = {
    "mlp": "{model: mlp, hidden: [4096, 4096]}",
    "gpt": "{model: gpt, sequence_length: 64, vocabulary: 4096, embedding: 384, blocks: 6, heads: 6}",
    "unet": "{model: unet, image_size: 64, classes: 4, base_channels: 32, levels: 3}",
    "resnet50": "{model: resnet50, image_size: 64, classes: 10}",
}
SCHEDULES = ["gpipe", "1f1b", "zb-h1"]
SIZE = (2, 4, 2)  # devices, micro-batches, samples of each
MORE = [("resnet50", "1f1b", (3, 6, 2)), ("resnet50", "pipedream", (2, 4, 2)), ("resnet50", "gpipe", (1, 4, 2)),
        ("unet", "1f1b", (4, 8, 2)), ("unet", "gpipe", (2, 8, 2)), ("gpt", "zb-v", (4, 8, 2)), ("gpt", "gpipe", (2, 8, 2)),
        ("gpt", "1f1b", (1, 4, 2)), ("mlp", "1f1b", (3, 6, 2))]
HUGE_PAGE = 2 << 20
LARGE = 200e6  # bytes from which on the error is to be small


def measure(program, folder, model, schedule, devices, micro_batches, samples):
    config = os.path.join(folder, "config.yaml")
    with open(config, "w") as file:
        file.write(f"workload: {MODELS[model]}\ncluster: {{devices: {devices}}}\n"
                   f"pipeline: {{schedule: {schedule}, micro_batches: {micro_batches}, micro_batch_size: {samples}}}\n"
                   "training: {steps: 2}\nrun: {backend: cpu, timeout: 600 s}\n")
    said = subprocess.run([program, "run", config, "--json"], capture_output=True, text=True)
    if said.returncode != 0:
        sys.exit(f"{model} {schedule}: {said.stderr}")
    result = json.loads(said.stdout)
    return {"model": model, "schedule": schedule, "devices": devices, "micro_batches": micro_batches,
            "samples": samples, "reserved": sum(-(-d["reserved_memory_bytes"] // HUGE_PAGE) * HUGE_PAGE for d in result["devices"]),
            "grown": result["resident_memory_bytes"]}


def table(runs):
    constant = statistics.median(run["grown"] - run["reserved"] for run in runs)
    lines = [f"{'model':<10}{'schedule':<13}{'devices':>7}{'m':>4}{'b':>4}{'reserved':>10}{'grown':>9}{'more':>8}{'error':>8}"]
    errors = []
    for run in sorted(runs, key=lambda run: run["reserved"]):
        error = (run["reserved"] + constant - run["grown"]) / run["grown"]
        if run["reserved"] >= LARGE:
            errors.append(abs(error))
        lines.append(f"{run['model']:<10}{run['schedule']:<13}{run['devices']:>7}{run['micro_batches']:>4}"
                     f"{run['samples']:>4}{run['reserved'] / 1e6:>10.1f}{run['grown'] / 1e6:>9.1f}"
                     f"{(run['grown'] - run['reserved']) / 1e6:>8.2f}{100 * error:>+7.2f}%")
    lines.append(f"\nsizes in MB; {len(runs)} runs, constant {constant / 1e6:.2f} MB; of {len(errors)} runs that reserve "
                 f"{LARGE / 1e6:.0f} MB or more: largest error {100 * max(errors, default=0):.2f} %, median "
                 f"{100 * statistics.median(errors or [0]):.2f} %")
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    wanted = [(model, schedule, SIZE) for model, schedule in itertools.product(MODELS, SCHEDULES)] + MORE
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for model, schedule, size in wanted:
            runs.append(measure(sys.argv[1], folder, model, schedule, *size))
            print(f"{len(runs)}/{len(wanted)} {runs[-1]}", file=sys.stderr)
    print(table(runs), end="")
    if len(sys.argv) == 3:
        os.makedirs(sys.argv[2], exist_ok=True)
        with open(os.path.join(sys.argv[2], "table.txt"), "w") as file:
            file.write(table(runs))
        write_records(os.path.join(sys.argv[2], "runs.json"), runs)


if __name__ == "__main__":
    main()
