#!/usr/bin/env python3
"""Threads against ranks on the same plan and the same machine: the step of one process with two device threads against that of
two ranks, in pairs, one after the other; and the share of the step in which a device neither runs a task nor waits for a message.

    bench/ranks.py FOLDER_OF_PROGRAMS [PAIRS]      FOLDER_OF_PROGRAMS has pipewright, and pipewright_mpich where there is one
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

MODELS = {
    "resnet50 64 px": ({"model": "resnet50", "image_size": 64, "classes": 10}, 8, 4, 8),
    "gpt": ({"model": "gpt", "sequence_length": 64, "vocabulary": 256, "embedding": 256, "blocks": 4, "heads": 4}, 8, 2, 20),
    "mlp": ({"model": "mlp", "hidden": [1024, 1024, 1024]}, 8, 32, 60),
}


def time_outside(trace):
    """Per step of a device: the time from when a task could begin (the previous one has ended, its inputs are ready) to when it does."""
    tasks, arrivals = {}, {}
    for event in trace["traceEvents"]:
        if event["ph"] != "X":
            continue
        of = event["args"]
        if of["op"].startswith("RECV"):
            arrivals[of["step"], of["op"][-1], of["stage"], of["microbatch"]] = of["end_ns"]
        elif not of["op"].startswith("SEND"):
            tasks.setdefault((of["step"], of["device"]), []).append((of["start_ns"], of["end_ns"], of["op"], of["stage"], of["microbatch"]))
    shares = []
    for (step, _), own in tasks.items():
        if step == 0:
            continue
        own.sort()
        outside = 0
        for (_, free, *_), (start, _, op, stage, micro_batch) in zip(own, own[1:]):
            if op in ("S", "U"):  # which wait for other devices
                continue
            comes = arrivals.get((step, {"F": "F", "B": "B", "I": "B"}.get(op), stage, micro_batch), 0)
            outside += start - max(free, comes)
        shares.append(outside / (own[-1][1] - own[0][0]))
    return statistics.median(shares)


def main():
    programs, pairs = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 7
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    launchers = [("Open MPI", ["mpirun.openmpi"], "pipewright")]
    if os.path.exists(os.path.join(programs, "pipewright_mpich")):
        launchers.append(("MPICH", ["mpirun.mpich"], "pipewright_mpich"))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config.yaml")
        for name, (model, micro_batches, size, steps) in MODELS.items():
            with open(path, "w") as file:
                json.dump({"workload": model, "cluster": {"devices": 2}, "training": {"steps": steps},
                           "pipeline": {"schedule": "1f1b", "micro_batches": micro_batches, "micro_batch_size": size}}, file)

            def step_of(*command):
                trace = os.path.join(folder, "trace.json")
                done = subprocess.run([*command, "run", path, "--json", "--trace", trace], stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True, check=True)
                answer = json.loads(done.stdout)
                with open(trace) as file:
                    return answer["step_time_ns"] / 1e6, answer["weights_hash"], time_outside(json.load(file))

            for launcher, start, program in launchers:
                threads, ranks, ratios, outsides = [], [], [], []
                for _ in range(pairs):
                    alone, weights, outside = step_of(os.path.join(programs, program))
                    both, others, outside_ranks = step_of(*start, "-n", "2", os.path.join(programs, program))
                    assert weights == others
                    threads.append(alone)
                    ranks.append(both)
                    ratios.append(both / alone)
                    outsides.append((outside, outside_ranks))
                print(f"{name:<15} {launcher:<8} threads {statistics.median(threads):8.2f} ms   2 ranks "
                      f"{statistics.median(ranks):8.2f} ms   ratio {statistics.median(ratios):.3f} "
                      f"({min(ratios):.3f} to {max(ratios):.3f}, {pairs} pairs)   outside of tasks and waits "
                      f"{100 * statistics.median(first for first, _ in outsides):.2f} % and "
                      f"{100 * statistics.median(second for _, second in outsides):.2f} %", flush=True)


if __name__ == "__main__":
    main()
