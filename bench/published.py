#!/usr/bin/env python3
"""Published throughput of 1F1B, interleaved 1F1B and ZB-1p on 8 and 16 A100s ("Zero Bubble Pipeline Parallelism",
arXiv 2401.10241v1, tables 3, 4, 9, 10 and 12) against what `pipewright simulate` predicts from the times of the tasks in
table 9. The one constant, what every task takes beside its work (cluster.dispatch), is set on the rows of the 1.5B model
and judged on the others. Needs PyYAML.

    bench/published.py PIPEWRIGHT DATA_DIR/published/zero-bubble.yaml
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

import yaml

SCHEDULES = {"1f1b": "1f1b", "1f1b-i": "interleaved", "zb-1p": "zb-h1"}  # zb-1p has the bubble of zb-h1 here
FULL = 24  # micro-batches: below it only 1f1b was measured


def rows_of(path):
    with open(path) as file:
        for model in yaml.safe_load(file):
            times = {row["m"]: row for row in model["rows"] if "F" in row}
            for row in model["rows"]:
                for name, measured in row["measured"].items():
                    if name in SCHEDULES:
                        yield model, row["m"], times[row.get("times_of", row["m"])], name, measured


def throughput(program, folder, model, micro_batches, times, name, settings):
    """Returns predicted samples per GPU and second. A stage of the paper is as many chunks as it has of them."""
    devices, chunks = model["gpus"], model["v"] if name == "1f1b-i" else 1
    time = lambda key: f"{times[key] / chunks * 1e6:.0f} ns"
    config = {
        "workload": {"model": "uniform", "stages": devices * chunks, "forward": time("F"), "backward_input": time("I"),
                     "backward_weight": time("W")},
        "cluster": {"devices": devices, "link": {"latency": f"{times['c'] * 1e6:.0f} ns", "bandwidth": "inf"}},
        "pipeline": {"schedule": SCHEDULES[name], "stages": devices * chunks, "micro_batches": micro_batches},
    }
    for block, values in settings.items():
        config.setdefault(block, {}).update(values)
    path = os.path.join(folder, "row.yaml")
    with open(path, "w") as file:
        json.dump(config, file)
    answer = json.loads(subprocess.run([program, "simulate", path, "--json"], check=True, stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL).stdout)
    return micro_batches * model["micro_batch_size"] / (answer["step_time_ns"] * 1e-9) / devices


def errors_of(program, folder, rows, settings):
    return [throughput(program, folder, *row[:4], settings) / row[4] - 1 for row in rows]


def mean_size(errors):
    return statistics.mean(abs(error) for error in errors)


def biases(rows, errors):
    return "  ".join(f"{name} {100 * statistics.mean(e for r, e in zip(rows, errors) if r[3] == name):+.2f} %"
                     for name in SCHEDULES if any(r[3] == name for r in rows))


def orders_right(rows, errors):
    """Pairs of schedules of one setting that were measured more than 2 % apart, and those in the right order."""
    right = all_pairs = 0
    for i, a in enumerate(rows):
        for j, b in enumerate(rows[:i]):
            if a[0] is b[0] and a[1] == b[1] and abs(a[4] / b[4] - 1) > 0.02:
                all_pairs += 1
                right += (a[4] > b[4]) == (a[4] * (1 + errors[i]) > b[4] * (1 + errors[j]))
    return right, all_pairs


def main():
    program, all_rows = os.path.abspath(sys.argv[1]), list(rows_of(sys.argv[2]))
    rows = [row for row in all_rows if row[1] >= FULL]
    own = [row for row in rows if row[0]["model"] == "1.5B"]
    held_out = [row for row in rows if row[0]["model"] != "1.5B"]
    with tempfile.TemporaryDirectory() as folder:
        dispatch = min((step * 50 for step in range(8, 29)),
                       key=lambda us: mean_size(errors_of(program, folder, own,
                                                          {"cluster": {"dispatch": f"{us} us"}})))
        late = {"transfer": {"receive": "deferred", "protocol": "rendezvous"}}
        every_task = {"cluster": {"dispatch": f"{dispatch} us"}}
        print(f"cluster.dispatch: {dispatch} us, on the {len(own)} rows of the 1.5B model")
        for what, settings in (("nothing added", {}), ("transfers that wait for both ends", late),
                               ("dispatch", every_task), ("both", {**late, **every_task})):
            errors = errors_of(program, folder, held_out, settings)
            right, pairs = orders_right(held_out, errors)
            print(f"{what}: mean |error| of the other {len(held_out)} rows {100 * mean_size(errors):.2f} %; biases "
                  f"{biases(held_out, errors)}; {right} of {pairs} orders right")
        print(f"\nwith dispatch:\n{'model':<7}{'m':>5}  {'schedule':<9}{'measured':>9}{'predicted':>10}{'error':>9}")
        for row, error in zip(all_rows, errors_of(program, folder, all_rows, every_task)):
            print(f"{row[0]['model']:<7}{row[1]:>5}  {row[3]:<9}{row[4]:>9.2f}{row[4] * (1 + error):>10.2f}"
                  f"{100 * error:>+8.1f} %")


if __name__ == "__main__":
    main()
