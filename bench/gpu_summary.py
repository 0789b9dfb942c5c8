#!/usr/bin/env python3
"""The page of scripts/gpu-report: what ran, and its numbers in tables, from whatever the folder holds."""
import json
import re
import sys
from pathlib import Path

GROUPS = ["environment", "tests", "losses", "identity", "tools", "throughput", "pipelines"]


def text_of(path):
    return path.read_text(errors="replace").strip("\n") if path.exists() else ""


def json_of(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def block(text):
    return f"```\n{text}\n```" if text else ""


def environment(out):
    names = ["bundle", "system", "versions", "pytorch", "backends", "transports", "missing-libraries"]
    parts = [text_of(out / "environment" / f"{name}.txt") for name in names]
    return block("\n".join(filter(None, parts)))


def tests(out):
    """Cases that began and passed, by executable or of ctest -V."""
    rows, failed = [], []
    for path in sorted((out / "tests").glob("*.txt")):
        text = text_of(path)
        passed = len(re.findall(r"^(?:\d+: )?\[ +OK \]", text, re.M))
        begun = len(re.findall(r"^(?:\d+: )?\[ RUN +\]", text, re.M))
        rows.append([path.stem, begun, passed])
        not_passed = set(re.findall(r"^(?:\d+: )?\[ RUN +\] ([^\s,]+)", text, re.M)) - set(
            re.findall(r"^(?:\d+: )?\[ +(?:OK|SKIPPED) +\] ([^\s,]+)", text, re.M))
        failed += sorted(not_passed)
    if not rows:
        return ""
    names = "\n\nNot passed: " + ", ".join(f"`{name}`" for name in failed) if failed else ""
    return table(["", "begun", "passed"], rows) + names


def losses(out):
    runs = {name: json_of(out / "losses" / f"{name}.json").get("losses")
            for name in ("cpu", "cuda-fp32", "cuda-bf16")}
    runs = {name: values for name, values in runs.items() if values}
    if not runs:
        return ""
    steps = range(min(map(len, runs.values())))
    rows = [[step + 1, *(f"{values[step]:.5f}" for values in runs.values())]
            for step in steps if step < 5 or (step + 1) % 5 == 0]
    far = [f"{name}: at most {max(abs(v - c) / c for v, c in zip(values, runs['cpu'])):.2e} of the CPU's loss away"
           for name, values in runs.items() if "cpu" in runs and name != "cpu"]
    return table(["step", *runs], rows) + "\n\n" + "; ".join(far)


def identity(out):
    rows = []
    for path in sorted((out / "identity").glob("*-reference.json")):
        name = path.stem.removesuffix("-reference")
        expected = json_of(path)
        cells = []
        for transport in ("threads", "nccl", "graph"):
            got = json_of(path.with_name(f"{name}-{transport}.json"))
            same = all(got.get(key) == expected.get(key) for key in ("weights_hash", "losses"))
            verdict = "" if not (got and expected) else " equal" if same else " NOT EQUAL"
            cells.append(got.get("weights_hash", "-") + verdict)
        rows.append([name, expected.get("weights_hash", "-"), *cells])
    return table(["", "reference", "threads", "nccl", "graph"], rows) if rows else ""


def tools(out):
    return "\n\n".join(f"{path.stem}\n\n{block(text_of(path)[:4000])}" for path in sorted((out / "tools").glob("*.txt"))
                       if text_of(path))


def throughput(out):
    return block(text_of(out / "throughput" / "table.txt"))


def pipelines(out):
    rows = []
    for path in sorted(out.glob("pipeline-m*/accuracy.json"), key=lambda p: int(p.parent.name.rpartition("m")[2])):
        for point in json_of(path).get("points", []):
            predicted, measured = point["predicted"], point["measured"]
            error = point["step_time_error"]
            rows.append([point["schedule"], point["micro_batches"], f"{predicted['step_time_ns'] / 1e6:.3f} ms",
                         f"{measured['step_time_ns'] / 1e6:.3f} ms",
                         f"{error:+.1%}" + ("" if abs(error) <= 0.05 else " (over 5 %)"),
                         f"{predicted['bubble_rate']:.1%}", f"{measured['bubble_rate']:.1%}",
                         f"{point['peak_memory_error']:+.1%}", f"{measured['samples_per_second']:.0f}"])
    header = ["schedule", "micro-batches", "predicted step", "measured", "error", "predicted bubble", "measured",
              "peak memory error", "images/s"]
    return table(header, rows) if rows else ""


def reason(out, file, status):
    lines = text_of(out / f"{file}.log").splitlines()
    return f": {lines[-1][-160:]}" if lines and status.startswith("failed") else ""


def section(out, group):
    """A group whose files cannot be read is told, and costs no other group its place."""
    steps = [line.split("\t") for line in text_of(out / group / "steps.tsv").splitlines()]
    if not steps:
        return ""
    try:
        numbers = globals()[group](out)
    except Exception as error:  # files of a run that was cut off
        numbers = f"No table: {error!r}"
    ran = table(["file", "status", "seconds", "command"],
                [[file, status + reason(out, file, status), seconds, f"`{command}`"]
                 for file, status, seconds, command in (step for step in steps if len(step) == 4)])
    return f"## {group.capitalize()}\n\n" + (numbers + "\n\n" if numbers else "") + ran + "\n"


def main():
    out = Path(sys.argv[1])
    print(f"# {text_of(out / 'gpu.txt') or 'GPU'}\n\nMade by `scripts/gpu-report`; OUT is this folder. A picture is "
          "drawn, where gnuplot is, with\n`pipewright compare pipeline-m8/1f1b.predicted.json "
          "pipeline-m8/1f1b.measured.json --plot 1f1b.svg`.\n")
    for group in GROUPS:
        text = section(out, group)
        if text:
            print(text)


if __name__ == "__main__":
    main()
