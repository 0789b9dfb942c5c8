#!/usr/bin/env python3
"""Published throughput of pipelines on A100s ("Zero Bubble Pipeline Parallelism", arXiv 2401.10241v1, tables 3, 4, 9, 10
and 12) against what `pipewright simulate` predicts from the times of the tasks in table 9, with the cluster of
workloads/configs/zero-bubble-a100.yaml. Its three constants are set on the rows of the 1.5B model and judged on the
others. Needs PyYAML.

    bench/published.py PIPEWRIGHT DATA_DIR/published/zero-bubble.yaml          # every row, and what each part adds
    bench/published.py PIPEWRIGHT DATA_DIR/published/zero-bubble.yaml --fit    # the constants, by a grid on the 1.5B rows
"""
import itertools
import json
import os
import statistics
import subprocess
import sys

import yaml

# zb-1p has the bubble of zb-h1 here; zb-2p is zb-h2, made by hand with the same memory.
SCHEDULES = {"1f1b": "1f1b", "1f1b-i": "interleaved", "zb-1p": "zb-h1"}
# Schedules that are made under a limit of this many times as many activations as devices, and what corresponds to them:
# by span where the optimizer does not wait, by makespan where it does.
MADE = {"zb-1p": (1, "zb-h1", "step"), "zb-2p": (2, "zb-h2", "span"), "zb-2p-synchronous-optimizer": (2, "zb-h2", "step")}
KEYS = {"step": "makespan_ns", "span": "span_ns"}
FULL = 24  # micro-batches: below it only 1f1b and zb-2p were measured
CONFIG = os.path.join(os.path.dirname(__file__), "..", "workloads", "configs", "zero-bubble-a100.yaml")

PARTS = ("makespan instead of span", "hosts and links", "rendezvous", "300 us per message", "imbalance 7 %",
         "dispatch 200 us")


def settings_with(parts):
    """Returns the settings that give the config these parts."""
    hosts, constant = "hosts and links" in parts, "300 us per message" in parts
    link = lambda bandwidth, own, more: (f"{{bandwidth: {bandwidth if hosts else 'inf'}, "
                                         f"latency: {300 + more if constant else own if hosts else 0} us}}")
    late = "rendezvous" in parts
    return {"cluster.inside": link("300 GB/s", 3.4, 0), "cluster.between": link("25 GB/s", 14, 14 if hosts else 0),
            "transfer.receive": "deferred" if late else "early", "transfer.protocol": "rendezvous" if late else "eager",
            "workload.imbalance": 0.07 if "imbalance 7 %" in parts else 0,
            "cluster.dispatch": "200 us" if "dispatch 200 us" in parts else "0 us"}


class Row:
    def __init__(self, model, micro_batches, times, name, measured):
        self.model, self.micro_batches, self.times, self.name, self.measured = model, micro_batches, times, name, measured
        self.is_own = model["model"] == "1.5B"

    def settings(self, schedule):
        devices, chunks = self.model["gpus"], self.model["v"] if schedule == "interleaved" else 1
        time = lambda key: f"{self.times[key] / chunks * 1e6:.0f} ns"
        output = self.model["micro_batch_size"] * self.model["sequence"] * self.model["hidden"] * 2
        return {"workload.stages": devices * chunks, "workload.forward": time("F"), "workload.backward_input": time("I"),
                "workload.backward_weight": time("W"), "workload.output": f"{output} B", "cluster.devices": devices,
                "pipeline.schedule": schedule, "pipeline.micro_batches": self.micro_batches,
                "pipeline.micro_batch_size": self.model["micro_batch_size"]}


def rows_of(path, names):
    with open(path) as file:
        for model in yaml.safe_load(file):
            times = {row["m"]: row for row in model["rows"] if "F" in row}
            for row in model["rows"]:
                for name, measured in row["measured"].items():
                    if name in names:
                        yield Row(model, row["m"], times[row.get("times_of", row["m"])], name, measured)


def error_of(program, row, schedule, settings, key="makespan_ns"):
    """Returns (predicted - measured) / measured of the samples per GPU and second."""
    command = [program, "simulate", CONFIG, "--json"]
    for name, value in {**row.settings(schedule), **settings}.items():
        command += ["--set", f"{name}={value}"]
    answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
    samples = row.micro_batches * row.model["micro_batch_size"]
    return samples / (answer[key] * 1e-9) / row.model["gpus"] / row.measured - 1


def errors_of(program, rows, settings, key="makespan_ns"):
    return [error_of(program, row, SCHEDULES[row.name], settings, key) for row in rows]


def mean_size(errors):
    return statistics.mean(abs(error) for error in errors)


def biases(rows, errors):
    return "  ".join(f"{name} {100 * statistics.mean(e for r, e in zip(rows, errors) if r.name == name):+.2f} %"
                     for name in SCHEDULES if any(r.name == name for r in rows))


def orders_right(rows, errors):
    """Pairs of schedules of one setting that were measured more than 2 % apart, and those in the right order."""
    right = pairs = 0
    for (a, of_a), (b, of_b) in itertools.combinations(zip(rows, errors), 2):
        if a.model is b.model and a.micro_batches == b.micro_batches and abs(a.measured / b.measured - 1) > 0.02:
            pairs += 1
            right += (a.measured > b.measured) == (a.measured * (1 + of_a) > b.measured * (1 + of_b))
    return f"{right} of {pairs} orders right"


def fit(program, rows):
    """Prints the best of a grid of the three constants on the rows of the 1.5B model."""
    found = []
    for imbalance, latency, dispatch in itertools.product((0.04, 0.05, 0.06, 0.07, 0.08, 0.09), (0, 150, 300, 450),
                                                          (0, 200, 400)):
        settings = {"workload.imbalance": imbalance, "cluster.dispatch": f"{dispatch} us",
                    "cluster.inside": f"{{bandwidth: 300 GB/s, latency: {latency} us}}",
                    "cluster.between": f"{{bandwidth: 25 GB/s, latency: {latency + 14} us}}"}
        found.append((mean_size(errors_of(program, rows, settings)), imbalance, latency, dispatch))
    for error, imbalance, latency, dispatch in sorted(found)[:5]:
        print(f"imbalance {imbalance}, {latency} us per message, {dispatch} us per pass: mean |error| {100 * error:.2f} %")


def show_parts(program, rows):
    """Prints the remaining error as parts are added, in one order and in the other."""
    for order in (PARTS, PARTS[::-1]):
        print(f"{'':<28}mean |error|  biases")
        for count in range(len(order) + 1):
            parts = order[:count]
            errors = errors_of(program, rows, settings_with(parts), "makespan_ns" if PARTS[0] in parts else "span_ns")
            print(f"{'nothing' if count == 0 else '+ ' + order[count - 1]:<28}{100 * mean_size(errors):9.2f} %   "
                  f"{biases(rows, errors)}  {orders_right(rows, errors)}")
        print()


def show_rows(program, rows):
    print(f"{'model':<7}{'m':>5}  {'schedule':<28}{'measured':>9}{'predicted':>10}{'error':>9}")
    for row in rows:
        error = error_of(program, row, SCHEDULES[row.name], {})
        print(f"{row.model['model']:<7}{row.micro_batches:>5}  {row.name:<28}{row.measured:>9.2f}"
              f"{row.measured * (1 + error):>10.2f}{100 * error:>+8.1f} %")


def show_made(program, rows):
    """Prints the rows of schedules that the paper made under a limit, as `auto` makes them and as those made by hand."""
    errors = {"auto": [], "by hand": []}
    print(f"{'model':<7}{'m':>5}  {'schedule':<28}{'measured':>9}{'auto':>8}{'error':>9}{'by hand':>14}{'error':>9}")
    for row in rows:
        room, by_hand, aim = MADE[row.name]
        limit = {"pipeline.activations": room * row.model["gpus"], "pipeline.aim": aim}
        auto = error_of(program, row, "auto", limit, KEYS[aim])
        hand = error_of(program, row, by_hand, {}, KEYS[aim])
        errors["auto"].append(auto)
        errors["by hand"].append(hand)
        print(f"{row.model['model']:<7}{row.micro_batches:>5}  {row.name:<28}{row.measured:>9.2f}"
              f"{row.measured * (1 + auto):>8.2f}{100 * auto:>+8.1f} %{by_hand:>7}{row.measured * (1 + hand):>7.2f}"
              f"{100 * hand:>+8.1f} %")
    print("mean |error| " + ", ".join(f"{name} {100 * mean_size(some):.2f} %" for name, some in errors.items()))


def main():
    program, path = os.path.abspath(sys.argv[1]), sys.argv[2]
    rows = list(rows_of(path, SCHEDULES))
    own = [row for row in rows if row.is_own]
    held_out = [row for row in rows if not row.is_own]
    if "--fit" in sys.argv[3:]:
        return fit(program, own)
    for what, some in (("of the 1.5B model, on which the constants are set", own), ("of the other models", held_out)):
        errors = errors_of(program, some, {})
        print(f"{len(some)} rows {what}: mean |error| {100 * mean_size(errors):.2f} %; biases {biases(some, errors)}; "
              f"{orders_right(some, errors)}")
    print("\nWhat each part takes off, on the rows of the other models:")
    show_parts(program, held_out)
    blocking = [row for row in held_out if row.name != "zb-1p"]
    for exchange in ("overlapped", "blocking"):
        errors = errors_of(program, blocking, {"transfer.exchange": exchange})
        print(f"exchange {exchange}, 1f1b and 1f1b-i: mean |error| {100 * mean_size(errors):.2f} %; biases "
              f"{biases(blocking, errors)}")
    print()
    show_rows(program, rows)
    print("\nschedules made under the paper's limit, and made by hand:")
    show_made(program, list(rows_of(path, MADE)))


if __name__ == "__main__":
    main()
