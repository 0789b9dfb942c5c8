#!/usr/bin/env python3
"""Steps of plans on clusters of two and three kinds of GPUs, predicted and measured by others. The times of layers on
every kind are those that the authors measured; nothing is fitted.

    bench/mixed_clusters.py PIPEWRIGHT WITNESS [--keep FOLDER]

WITNESS has the folders mixed-amp, mixed-sailor and mixed-metis. Measured: AMP (NeurIPS 2022, DachengLi1/AMP@72eeea4), GPT-2 of 24
blocks on three hosts of four V100 and one host of four T4, a batch of 32; Sailor (SOSP 2025, eth-easl/sailor@cf2c8e3),
OPT-350 on RTX 3090, RTX 2080 Ti and Titan RTX. Not measured, but counted from its profiles by a formula: Metis (ATC 2024,
SamsungLabs/Metis@4b24046), GPT of 8 blocks on two hosts of four A100.
"""
import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

import yaml


def layer_file(path, layers):
    """Writes layers of (name, forward, backward, output bytes, weight bytes) in seconds, for one sample."""
    with open(path, "w") as file:
        file.write("samples: 1\nlayers:\n")
        for name, forward, backward, output, weights in layers:
            file.write(f"  - {{name: {name}, forward: {forward * 1e9:.0f} ns, backward: {backward * 1e9:.0f} ns, "
                       f"output: {output:.0f} B, weights: {weights:.0f} B, saved: 0 B}}\n")


def step_of(pipewright, path, *arguments):
    run = subprocess.run([pipewright, "simulate", path, "--json", "-q", *arguments], capture_output=True, text=True)
    if run.returncode not in (0, 3):
        sys.exit(f"{path}: {run.stderr}")
    return json.loads(run.stdout)["step_time_ns"] * 1e-9


def tau(pairs):
    """Returns Kendall's tau-a of pairs of numbers."""
    order = [((a > b) - (a < b)) * ((c > d) - (c < d)) for (a, c), (b, d) in itertools.combinations(pairs, 2)]
    return sum(order) / len(order)


class Amp:
    """Plans of AMP: ranks are numbered tensor first, then data, then stages; hosts have ranks 4i to 4i + 3."""

    def __init__(self, folder, work):
        with open(os.path.join(folder, "inputs.yaml")) as file:
            self.inputs = yaml.safe_load(file)
        self.folder, self.work = folder, work
        hidden, tokens, words = (self.inputs["model"][key] for key in ("hidden", "sequence_length", "vocabulary"))
        self.output = 2 * tokens * hidden  # of activations in fp16
        self.block, self.table = 4 * 12 * hidden * hidden, 4 * hidden * words  # gradients are summed in fp32
        for kind, degrees in self.inputs["forward_seconds_per_sample_by_kind_and_tensor_degree"].items():
            for degree, times in degrees.items():
                layer_file(self.file_of(kind, int(degree)), self.layers(times, int(degree)))

    def file_of(self, kind, degree):
        return os.path.join(self.work, f"{kind}-{degree}.yaml")

    def layers(self, times, degree):
        for number, (kind, seconds) in enumerate(zip(self.inputs["layers"], times)):
            weights = {"transformer": self.block, "embed2h": self.table, "embed2v": self.table}.get(kind, 0) / degree
            yield f"{kind}.{number}", seconds, 2 * seconds, self.output, weights

    def config(self, row, cluster):
        """Writes the config of a row. A device of the plan is a tensor group."""
        devices = self.inputs["clusters"][cluster]
        degree, data = row["tensor"], row["data"]
        each = devices["gpus_per_node"] // degree
        hosts = []
        for kind, inter, intra in zip(devices["nodes"], devices["inter_Gbit_s_by_node"], devices["intra_Gbit_s_by_node"]):
            hosts.append(f"    - {{devices: {each}, profile: {self.file_of(kind, degree)}, "
                         f"inside: {{bandwidth: {intra / 8} GB/s}}, between: {{bandwidth: {inter / 8} GB/s}}}}")
        names = [f"{kind}.{number}" for number, kind in enumerate(self.inputs["layers"])]
        cuts = [names[first] for first in row["partition"][1:-1]]
        path = os.path.join(self.work, f"{cluster}-{row['id']}-{row['micro_batch_size']}.yaml")
        with open(path, "w") as file:
            file.write("\n".join([
                f"workload: {{model: {self.file_of(devices['nodes'][0], degree)}}}", "cluster:", "  hosts:", *hosts,
                f"pipeline: {{schedule: 1f1b, stages: {row['stages']}, split: [{', '.join(cuts)}], replicas: {data}, "
                f"micro_batches: {self.inputs['global_batch'] // row['micro_batch_size']}, "
                f"micro_batch_size: {row['micro_batch_size']}}}",
                "transfer: {receive: deferred, protocol: rendezvous, exchange: blocking}", ""]))
        return path

    def rows(self, cluster):
        with open(os.path.join(self.folder, f"{cluster}.yaml")) as file:
            return [row for row in yaml.safe_load(file)["rows"]
                    if row["measured_s"] != "failed" and self.inputs["global_batch"] % (row["data"] * row["micro_batch_size"]) == 0]


class Sailor:
    """Plans of Sailor: a replica of a stage is a tensor group on a host of its own, and all ranks of a group send through
    one card. A stage's gradients of all ranks pass it, too."""

    def __init__(self, folder, work):
        with open(os.path.join(folder, "inputs.yaml")) as file:
            self.inputs = yaml.safe_load(file)
        with open(os.path.join(folder, "mixed_plans.yaml")) as file:
            self.rows = [row for row in yaml.safe_load(file)["rows"] if "trap" not in row and len(row["stages"]) > 1]
        self.work = work
        pairs_of = {}
        for row in self.inputs["between_hosts"]:
            pairs_of.setdefault(tuple(row["rate"]), set()).add(frozenset((row["from"], row["to"])))
        self.filled = [list(rate) for rate, pairs in pairs_of.items() if len(pairs) > 1]
        self.model = self.inputs["models"]["OPT-350"]
        self.output = 4 * self.model["shape"]["sequence_length"] * self.model["shape"]["hidden"]  # of a sample in fp32

    def file_of(self, kind, degree, size):
        path = os.path.join(self.work, f"{kind}-{degree}-{size}.yaml")
        times = next(row for row in self.model["layer_times"]
                     if (row["kind"], row["tensor"], row["micro_batch_size"]) == (kind, degree, size))
        blocks = [row["f_b_u"] for row in times["blocks"] for _ in range(row["count"])]
        sizes = self.model["layer_memory_by_tensor_degree"]["1"]
        with open(path, "w") as file:
            file.write(f"samples: {size}\nlayers:\n")
            for number, (forward, backward, _) in enumerate([times["embedding"], *blocks, times["head"]]):
                part = "embedding" if number == 0 else "head" if number == len(blocks) + 1 else "block"
                file.write(f"  - {{name: layer.{number}, forward: {forward * 1e9:.0f} ns, backward: {backward * 1e9:.0f} "
                           f"ns, output: {size * self.output} B, weights: {4 * sizes[part]['params']} B, saved: 0 B}}\n")
        return path

    def bandwidth(self, a, b, size):
        """Returns the bytes per second between two tensor groups for a message of a micro-batch: the measured rate for
        the number of GPUs that is nearest. The file fills in one rate for several pairs."""
        rates = [row for row in self.inputs["between_hosts"] if {row["from"], row["to"]} == {a["kind"], b["kind"]}]
        measured = [row for row in rates if row["rate"] not in self.filled] or rates
        nearest = min(abs(math.log(row["gpus"] / a["tensor"])) for row in measured)
        rates = [row for row in measured if abs(math.log(row["gpus"] / a["tensor"])) == nearest]
        x = math.log2(size * self.output / 1e6)
        rate = max(p * x * x + q * x + r for p, q, r in (row["rate"] for row in rates)) * 1e9
        return min(rate, max(row["max_bytes_s"] for row in rates))

    def config(self, row):
        size = row["micro_batch_size"]
        groups = [group for stage in row["stages"] for group in stage["replicas"]]
        files = [self.file_of(group["kind"], group["tensor"], size) for group in groups]
        devices = [f"    - {{host: host {number}, profile: {file}}}" for number, file in enumerate(files)]
        links = [f"    - {{from: {a}, to: {b}, bandwidth: {self.bandwidth(groups[a], groups[b], size):.0f} B/s}}"
                 for a, b in itertools.permutations(range(len(groups)), 2)]
        cuts = [f"layer.{stage['layers'][0]}" for stage in row["stages"][1:]]
        path = os.path.join(self.work, f"sailor-{row['id']}.yaml")
        with open(path, "w") as file:
            file.write("\n".join([
                f"workload: {{model: {files[0]}}}", "cluster:", "  devices:", *devices, "  links:", *links,
                f"pipeline: {{schedule: 1f1b, stages: {len(row['stages'])}, split: [{', '.join(cuts)}], "
                f"replicas: {len(row['stages'][0]['replicas'])}, mini_batch: {row['global_batch']}, "
                f"micro_batch_size: {size}}}",
                "transfer: {communicator: one, receive: deferred, protocol: rendezvous, exchange: blocking}", ""]))
        return path


class Metis:
    """Plans of Metis: equal stages of a data-parallel pipeline, of which one replica is simulated, with free messages."""

    def __init__(self, folder, work):
        with open(os.path.join(folder, "inputs.yaml")) as file:
            self.inputs = yaml.safe_load(file)
        with open(os.path.join(folder, "homo_costs.yaml")) as file:
            self.rows = yaml.safe_load(file)["rows"]
        self.work = work

    def profile(self, row):
        return next(profile for profile in self.inputs["profiles"]
                    if (profile["tensor"], profile["micro_batch_size"]) == (row["tensor"], row["micro_batch_size"]))

    def starts(self, stages):
        """Returns the first layer of each stage: the remainder of the inner layers goes to stages 1, 2, ..."""
        inner = self.inputs["layers"] - 2
        blocks = [inner // stages + (1 if 1 <= stage <= inner % stages else 0) for stage in range(stages)]
        return [0] + [1 + sum(blocks[:stage]) for stage in range(1, stages)]

    def config(self, row):
        size = row["micro_batch_size"]
        times = self.profile(row)["layer_compute_ms"]
        name = f"metis-{row['data']}-{row['stages']}-{row['tensor']}-{size}"
        layers = os.path.join(self.work, f"{name}-layers.yaml")
        with open(layers, "w") as file:
            file.write(f"samples: {size}\nlayers:\n")
            for number, ms in enumerate(times):
                file.write(f"  - {{name: layer.{number}, forward: {ms / 3 * 1e6:.0f} ns, backward: {ms * 2 / 3 * 1e6:.0f} ns}}\n")
        cuts = ", ".join(f"layer.{first}" for first in self.starts(row["stages"])[1:])
        path = os.path.join(self.work, f"{name}.yaml")
        with open(path, "w") as file:
            file.write(f"workload: {{model: {layers}}}\ncluster: {{devices: {row['stages']}}}\n"
                       f"pipeline: {{schedule: 1f1b, stages: {row['stages']}, split: [{cuts}], "
                       f"mini_batch: {128 // row['data']}, micro_batch_size: {size}}}\n")
        return path

    def gigabytes(self, row):
        """Returns the memory of each stage, by hand."""
        sizes, starts = self.profile(row)["layer_memory_mb"], self.starts(row["stages"])
        return [sum(sizes[first:end]) / 1024 for first, end in zip(starts, starts[1:] + [len(sizes)])]


def judge_metis(pipewright, metis):
    print("Metis, plans counted by its formula: data, stages, tensor, micro-batch; pipeline simulated, by the formula (ms); "
          "its other parts")
    errors = []
    for row in metis.rows:
        simulated, parts = 1e3 * step_of(pipewright, metis.config(row)), dict(row["parts_ms"])
        counted = parts.pop("pipeline")
        errors.append(simulated / counted - 1)
        by_hand = counted + sum(parts.values())
        if abs(by_hand - row["metis_cost_ms"]) > 0.02 or any(
                abs(a - b) > 0.011 for a, b in zip(metis.gigabytes(row), row["stage_memory_gb"])):
            sys.exit(f"{row}: {by_hand:.2f} ms and {metis.gigabytes(row)} GB by hand")
        print(f"  {row['data']} {row['stages']} {row['tensor']} {row['micro_batch_size']}: {simulated:9.2f} {counted:9.2f} "
              f"({100 * errors[-1]:+.3f} %)  " + ", ".join(f"{name} {ms:.1f}" for name, ms in parts.items()))
    print(f"  {len(errors)} plans, error at most {100 * max(map(abs, errors)):.3f} %; the sums of the formula's parts and of the "
          "layers' memory are those of its rows")


def judge_sailor(pipewright, sailor):
    print("Sailor, plans with several stages: predicted, measured, Sailor's formula (s); samples/s predicted, measured")
    for row in sailor.rows:
        predicted, measured = step_of(pipewright, sailor.config(row)), row["measured_step_s"]
        print(f"  {row['id']}: {predicted:7.2f} ({100 * (predicted / measured - 1):+5.1f} %) {measured:7.2f} "
              f"{row['sailor_formula']['total_s']:7.2f} ({100 * (row['sailor_formula']['total_s'] / measured - 1):+5.1f} %)   "
              f"{row['global_batch'] / predicted:.2f} {row['global_batch'] / measured:.2f}")


def judge(name, rows, formula):
    """Prints errors and rank correlation of (predicted, measured, other's prediction)."""
    def errors(k):
        return [abs(row[k] / row[1] - 1) for row in rows]
    chosen = min(rows)
    print(f"{name}: {len(rows)} plans\n"
          f"  error in the mean {100 * statistics.mean(errors(0)):5.1f} %, signed {100 * statistics.mean(r[0] / r[1] - 1 for r in rows):+5.1f} %"
          f", tau {tau([(row[0], row[1]) for row in rows]):.2f}\n"
          f"  {formula:<17} {100 * statistics.mean(errors(2)):5.1f} %, signed {100 * statistics.mean(r[2] / r[1] - 1 for r in rows):+5.1f} %"
          f", tau {tau([(row[2], row[1]) for row in rows]):.2f}\n"
          f"  the plan with the shortest predicted step takes {chosen[1]:.2f} s, the best measured one {min(r[1] for r in rows):.2f} s "
          f"({100 * (chosen[1] / min(r[1] for r in rows) - 1):.0f} % more)")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pipewright")
    parser.add_argument("witness")
    parser.add_argument("--keep")
    parser.add_argument("--rows", action="store_true", help="print every plan")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = os.path.abspath(options.keep or temporary)
        os.makedirs(work, exist_ok=True)
        amp = Amp(os.path.join(options.witness, "mixed-amp"), work)
        for cluster in ("het_cluster", "homogeneous"):
            all_rows = []
            for row in amp.rows(cluster):
                predicted = step_of(options.pipewright, amp.config(row, cluster))
                all_rows.append((predicted, row["measured_s"], row["amp_predicted_s"], row))
                if options.rows:
                    print(f"{row['tensor']} {row['data']} {row['stages']:2} {row['micro_batch_size']:2} {predicted:7.3f} "
                          f"{row['measured_s']:7.3f} {row['amp_predicted_s']:7.3f}")
            judge(f"AMP, {cluster}, micro-batches of 1 and 2", [row[:3] for row in all_rows if row[3]["micro_batch_size"] <= 2],
                  "AMP's formula")
            judge(f"AMP, {cluster}, all sizes", [row[:3] for row in all_rows], "AMP's formula")
        judge_sailor(options.pipewright, Sailor(os.path.join(options.witness, "mixed-sailor"), work))
        judge_metis(options.pipewright, Metis(os.path.join(options.witness, "mixed-metis"), work))


if __name__ == "__main__":
    main()
