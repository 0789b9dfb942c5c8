#!/usr/bin/env python3
"""The page of scripts/gpu-report: what ran, and its numbers in tables, from whatever the folder holds."""
import json
import re
import sys
from pathlib import Path

import resnet50_table

# Folders of OUT, in the order of the page.
GROUPS = ["environment", "probe", "tests", "runs", "throughput", "pipelines", "tools", "losses", "identity",
          "sanitizer", "profiler"]


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


def shortened(text, most=5000):
    return text if len(text) <= most else text[:most - 1000] + "\n...\n" + text[-1000:]


def texts(out, group):
    """The outputs of a group, each under its name."""
    paths = [path for path in sorted((out / group).glob("*.txt")) if text_of(path)]
    return "\n\n".join(f"{path.stem}\n\n{block(shortened(text_of(path)))}" for path in paths)


def probe(out):
    """Failures first."""
    lines = [line for path in sorted((out / "probe").glob("*.txt")) for line in text_of(path).splitlines()]
    return block("\n".join(sorted(lines, key=lambda line: not line.startswith(("failed", "NOT SHOWN")))))


def tests(out):
    """Cases that began and passed, by executable."""
    rows, failed = [], []
    for path in sorted((out / "tests").glob("*.txt")):
        text = text_of(path)
        passed = len(re.findall(r"^\[ +OK \]", text, re.M))
        begun = len(re.findall(r"^\[ RUN +\]", text, re.M))
        rows.append([path.stem, begun, passed])
        not_passed = set(re.findall(r"^\[ RUN +\] ([^\s,]+)", text, re.M)) - set(
            re.findall(r"^\[ +(?:OK|SKIPPED) +\] ([^\s,]+)", text, re.M))
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


def runs(out):
    rows = []
    for path in sorted((out / "runs").glob("*.json")):
        run = json_of(path)
        if run:
            rows.append([path.stem, run.get("schedule", ""), f"{run['step_time_ns'] / 1e6:.3f} ms",
                         " ".join(f"{loss:.5f}" for loss in run["losses"][:3]), run["weights_hash"]])
    return table(["", "schedule", "step", "first losses", "weights"], rows) if rows else ""


def throughput(out):
    return "\n\n".join(table(header, rows) for header, rows in resnet50_table.table_of(out) if rows)


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


def steps_of(out):
    """Every command of all calls, in the order of the calls: file, status, seconds, limit, command."""
    lines = [line.split("\t") for path in sorted(out.glob("steps*.tsv")) for line in text_of(path).splitlines()]
    return [line for line in lines if len(line) == 5]


def reason(out, file, status):
    """The first error, or the last line."""
    lines = text_of(out / f"{file}.log").splitlines()
    errors = [line for line in lines if line.startswith("error")] + lines[-1:]
    return f": {errors[0][:160]}" if errors and status.startswith("failed") else ""


def section(out, group, steps):
    """A group whose files cannot be read is reported, and hides no other group."""
    own = [step for step in steps if step[0].startswith(f"{group}/")]
    if not own:
        return ""
    try:
        numbers = globals()[group](out) if group in globals() else texts(out, group)
    except Exception as error:  # files of a run that was cut off
        numbers = f"No table: {error!r}"
    ran = table(["file", "status", "seconds", "of", "command"],
                [[file, status + reason(out, file, status), seconds, limit, f"`{command}`"]
                 for file, status, seconds, limit, command in own])
    return f"## {group.capitalize()}\n\n" + (numbers + "\n\n" if numbers else "") + ran + "\n"


def head(out, steps):
    """What went wrong, and what never ran."""
    bad = [f"`{file}` {status}" for file, status, *_ in steps if status.startswith(("failed", "stopped", "not as"))]
    left_out = [f"`{file}`" for file, status, *_ in steps if status.startswith("left out")]
    lines = [f"{len(steps)} commands: {sum(step[1] == 'ok' for step in steps)} went well."]
    lines += ["Not well: " + ", ".join(bad) + "."] if bad else []
    lines += ["Left out for want of time: " + ", ".join(left_out) + "."] if left_out else []
    return "\n\n".join(lines)


def main():
    out = Path(sys.argv[1])
    steps = steps_of(out)
    print(f"# {text_of(out / 'gpu.txt') or 'GPU'}\n\nMade by `scripts/gpu-report`; OUT is this folder. A picture is "
          "drawn, where gnuplot is, with\n`pipewright compare pipeline-m8/1f1b.predicted.json "
          f"pipeline-m8/1f1b.measured.json --plot 1f1b.svg`.\n\n{head(out, steps)}\n")
    for group in GROUPS:
        text = section(out, group, steps)
        if text:
            print(text)


if __name__ == "__main__":
    main()
