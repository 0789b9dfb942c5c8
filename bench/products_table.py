#!/usr/bin/env python3
"""A table of workloads/costs/products.yaml from the products that bench/gpu_shapes.py has measured:

    products_table.py SHAPES.json KIND PEAK_TFLOPS

KIND is the kind of device (workloads/cluster/device_kinds.yaml), whose peak makes efficiencies of the rates. Products
that took 1.3 times as long as one that contains them, with the same layout, are left out: the GPU waited for the host."""
import json
import sys

LAYOUTS = ("TN", "NN", "NT")
MOST = 1.3


def grouped_rows(shapes, peak):
    """Returns the rows of grouped products, forward, and how many are left out."""
    measured = sorted(shapes["experts"]["rows"])
    times = [(g, m, k, n, g * m * k * n / tflops) for g, m, k, n, tflops in measured]
    kept = [f"  - [{g}, {m}, {k}, {n}, TN, {tflops / peak:.4g}]" for (g, m, k, n, tflops), (*_, time) in zip(measured, times)
            if time <= MOST * min(t for a, b, c, d, t in times if a >= g and b >= m and c >= k and d >= n)]
    return kept, len(measured) - len(kept)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    shapes, kind, peak = json.load(open(sys.argv[1])), sys.argv[2], float(sys.argv[3])
    rows = {layout: sorted((m, k, n, tflops) for m, k, n, of, result, tflops in shapes["products"]["rows"]
                           if of == layout and result == "bf16") for layout in LAYOUTS}
    print(f"- device: {kind}\n  precision: bf16\n  peak: {peak:g} TFLOP/s\n  source: ''\n  rows:")
    left_out = 0
    for layout, measured in rows.items():
        times = [(m, k, n, m * k * n / tflops) for m, k, n, tflops in measured]
        for (m, k, n, tflops), (*_, time) in zip(measured, times):
            if time > MOST * min(t for a, b, c, t in times if a >= m and b >= k and c >= n):
                left_out += 1
            else:
                print(f"  - [{m}, {k}, {n}, {layout}, {tflops / peak:.4g}]")
    rows, left_out_of_grouped = grouped_rows(shapes, peak)
    print("  grouped:", *rows, sep="\n")
    print(f"{left_out} left out, and {left_out_of_grouped} grouped ones", file=sys.stderr)


if __name__ == "__main__":
    main()
