#!/usr/bin/env python3
"""Bubble rates of the schedule auto next to those of ZB-1p and ZB-2p, and of auto-v next to those of ZB-V ("Zero Bubble
Pipeline Parallelism", arXiv 2401.10241, tables 5, 8 and 9), with the times and the memory of the paper, and how far the span
may be from the least. The limit of the paper is on held activations, as that of auto is with an effort below 1; else the arena
that a device reserves has to fit.

    bench/order_rates.py PIPEWRIGHT
"""
import json
import os
import subprocess
import sys
import tempfile

# Model, hidden size, heads, devices, micro-batches, times in us, and the published rates.
ROWS = [
    ("1.5B", 2304, 24, 8, 24, 18.522, 18.086, 9.337, 0.601, 0.1585, 0.0433),
    ("1.5B", 2304, 24, 8, 32, 18.513, 18.086, 9.331, 0.626, 0.1242, 0.0039),
    ("6.2B", 4096, 32, 8, 24, 29.718, 29.444, 19.927, 0.527, 0.1323, 0.0029),
    ("6.2B", 4096, 32, 8, 64, 29.935, 29.621, 19.388, 0.535, 0.0554, 0.0010),
    ("14.6B", 5120, 40, 16, 48, 11.347, 11.248, 8.132, 0.377, 0.1397, 0.0066),
    ("14.6B", 5120, 40, 16, 64, 11.307, 11.254, 8.101, 0.379, 0.1088, 0.0054),
    ("28.3B", 6144, 48, 32, 96, 10.419, 10.207, 7.715, 0.408, 0.1421, 0.0038),
    ("28.3B", 6144, 48, 32, 256, 10.402, 10.248, 7.698, 0.460, 0.0594, 0.0018),
]

# ZB-V, with times and bytes of half a stage, of which a device has two.
V_ROWS = [
    ("6.2B", 4096, 32, 16, 48, 14.407, 14.380, 9.676, 1.610, 0.0697),
    ("28.3B", 6144, 48, 32, 96, 9.458, 9.748, 7.288, 0.879, 0.0593),
]


def prediction(pipewright, row, pipelines, schedule="auto", parts=1):
    """Returns the report of a row with the memory of as many pipelines of activations, and `parts` stages per device."""
    _, hidden, heads, devices, batches, forward, backward_input, weight, latency = row[:9]
    activation, until_weight = (34 * hidden + 5 * heads * 1024) // parts, 32 * hidden // parts
    text = (f"workload: {{model: uniform, forward: {forward} us, backward_input: {backward_input} us, "
            f"backward_weight: {weight} us, activation: {activation} B, activation_until_weight: {until_weight} B}}\n"
            f"cluster: {{devices: {devices}, memory: {pipelines * devices * parts * activation} B, "
            f"link: {{latency: {latency} us, bandwidth: inf}}}}\n"
            f"pipeline: {{schedule: {schedule}, micro_batches: {batches}, aim: span, effort: 0.99}}\n")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "row.yaml")
        with open(path, "w") as file:
            file.write(text)
        return json.loads(subprocess.run([pipewright, "simulate", path, "--json"], check=True, capture_output=True,
                                         text=True).stdout)


def main():
    print("model    p    m  ZB-1p   auto    gap    ZB-2p   auto    gap")
    for row in ROWS:
        cells = []
        for published, pipelines in zip(row[9:], (1, 2)):
            report = prediction(sys.argv[1], row, pipelines)
            cells.append(f"{published:.4f}  {report['span_bubble_rate']:.4f}  {100 * report['order']['span_gap']:.2f} %")
        print(f"{row[0]:6} {row[3]:3}  {row[4]:3}  " + "  ".join(cells))
    print("\nmodel    p    m  ZB-V    auto-v  gap")
    for row in V_ROWS:
        report = prediction(sys.argv[1], row, 1, "auto-v", 2)
        print(f"{row[0]:6} {row[3]:3}  {row[4]:3}  {row[9]:.4f}  {report['span_bubble_rate']:.4f}  "
              f"{100 * report['order']['span_gap']:.2f} %")


if __name__ == "__main__":
    main()
