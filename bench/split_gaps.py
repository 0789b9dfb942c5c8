#!/usr/bin/env python3
"""How far the answers of searches for layer graphs may be from the best: random graphs of 8 to 60 layers, some of them with
branches, on 2 to 8 devices, all schedules, with the gap that each search proves.

    bench/split_gaps.py [--instances N] [--seed SEED] PIPEWRIGHT [BEFORE]

BEFORE is a second program, for the same searches.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile


def instance(seed):
    """Returns the layer graph and the search of it, as texts."""
    dice = random.Random(seed)
    layers, devices = dice.randint(8, 60), dice.randint(2, 8)
    branches = dice.random() < 0.5
    rows, skipped = [], None
    for number in range(layers):
        inputs = [f"l{number - 1}"] if number > 0 else []
        if branches and skipped is not None and dice.random() < 0.3:
            inputs.append(f"l{skipped}")
            skipped = None
        elif branches and skipped is None and number > 1 and dice.random() < 0.3:
            skipped = number - 2
        forward, gradient, weight = (dice.randint(200, 2000) for _ in range(3))
        rows.append(f"  - {{name: l{number}, inputs: [{', '.join(inputs)}], forward: {forward} us, "
                    f"backward_input: {gradient} us, backward_weight: {weight} us, "
                    f"weights: 1 MB, output: {dice.randint(1, 500)} kB}}")
    search = (f"workload: {{model: layers.yaml}}\n"
              f"cluster: {{devices: {devices}, link: {{bandwidth: 10 GB/s, latency: 5 us}}}}\n"
              f"run: {{backend: emulated}}\n"
              f"search: {{schedules: all, mini_batch: 8, micro_batch_sizes: [1, 2]}}\n")
    return "samples: 1\nlayers:\n" + "\n".join(rows) + "\n", search


def gap(pipewright, texts):
    """Returns the proven gap in percent."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in zip(("layers.yaml", "search.yaml"), texts):
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        answer = subprocess.run([pipewright, "search", os.path.join(folder, "search.yaml"), "--json", "-q"], check=True,
                                capture_output=True, text=True)
    return 100 * json.loads(answer.stdout)["gap"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first instance")
    parser.add_argument("programs", nargs="+", metavar="PIPEWRIGHT")
    arguments = parser.parse_args()
    for program in arguments.programs:
        gaps = [gap(program, instance(arguments.seed + number)) for number in range(arguments.instances)]
        print(f"{program}: {len(gaps)} instances, gap {statistics.mean(gaps):.2f} % in the mean, "
              f"{max(gaps):.2f} % at most, {sum(value < 0.005 for value in gaps)} proven optimal")


if __name__ == "__main__":
    main()
