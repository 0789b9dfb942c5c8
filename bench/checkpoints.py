#!/usr/bin/env python3
"""The cost of checkpoints: runs with one every few steps against runs with one at the end only, in pairs. A step is counted from the
end of the step before it, so that it includes the pause between them. Printed are the step that begins with a checkpoint, the
slowest of all positions between two checkpoints, and the time of all steps, which grows while threads make and write a checkpoint on
cores that the devices compute on: each against the median step without.

    bench/checkpoints.py FOLDER_OF_PROGRAMS [PAIRS]
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

EVERY, STEPS = 5, 21
WORKLOAD = {"model": "resnet50", "image_size": 64, "classes": 1000}
DEVICES = {"a core for each of 2 devices, none for the writer": 2, "a core for 1 device, one for the writer": 1}


def times_of(path):
    """The begin and the end of each step, in seconds."""
    steps = {}
    with open(path) as file:
        for event in json.load(file)["traceEvents"]:
            if event["ph"] == "X":
                of = event["args"]
                begin, end = steps.get(of["step"], (of["start_ns"], of["end_ns"]))
                steps[of["step"]] = min(begin, of["start_ns"]), max(end, of["end_ns"])
    return [(begin / 1e9, end / 1e9) for _, (begin, end) in sorted(steps.items())]


def main():
    program, pairs = os.path.join(os.path.abspath(sys.argv[1]), "pipewright"), int(sys.argv[2]) if len(sys.argv) > 2 else 5
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    with tempfile.TemporaryDirectory() as folder:
        config, trace, kept = (os.path.join(folder, name) for name in ("config.yaml", "trace.json", "kept"))
        for name, devices in DEVICES.items():
            with open(config, "w") as file:
                json.dump({"workload": WORKLOAD, "cluster": {"devices": devices}, "training": {"steps": STEPS},
                           "pipeline": {"schedule": "1f1b", "micro_batches": 8, "micro_batch_size": 8}}, file)

            def run(start, every):
                subprocess.run(["rm", "-rf", kept], check=True)
                subprocess.run([*start, program, "run", config, "--trace", trace, "--checkpoint", kept, "--checkpoint-every", str(every)],
                               check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                times = times_of(trace)
                steps = [times[step][1] - times[step - 1][1] for step in range(1, STEPS)]
                return steps[EVERY - 1 :]  # those before the first checkpoint are the same in both

            starts = {"1 process": []}
            if devices > 1:
                starts[f"{devices} ranks"] = ["mpirun.openmpi", "-n", str(devices)]
            for how, start in starts.items():
                first, slowest, ratios, step_times = [], [], [], []
                for _ in range(pairs):
                    without, steps = run(start, STEPS), run(start, EVERY)
                    step = statistics.median(without)
                    places = [statistics.median(steps[place::EVERY]) for place in range(EVERY)]
                    first.append(places[0] / step - 1)
                    slowest.append(max(places) / step - 1)
                    ratios.append(sum(steps) / sum(without))
                    step_times.append(step)

                def summary(values, form):
                    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"

                print(f"{name}, {how}: step {statistics.median(step_times) * 1e3:.0f} ms; with a checkpoint after every {EVERY}: the first "
                      f"step after it {summary(first, '+.1%')}, the slowest position {summary(slowest, '+.1%')}, all steps {summary(ratios, '.3f')}",
                      flush=True)


if __name__ == "__main__":
    main()
