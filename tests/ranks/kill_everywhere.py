#!/usr/bin/env python3
"""Kills every rank at every step, before every kind of task, and before every call by which a checkpoint is written, with the
launcher's own clean-up on and off; then resumes, on as many devices and on another number, and compares the weights with those
of a run that nobody disturbed. A rank that does not end, and weights that differ, are losses: their number is printed.

    tests/ranks/kill_everywhere.py FOLDER_OF_PROGRAMS [EVERY]      one kill of EVERY, by default all

FOLDER_OF_PROGRAMS is build/ndebug/bin: pipewright and under_fire, and where they are pipewright_mpich and under_fire_mpich.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

BASE = {"workload": {"model": "mlp", "hidden": [32, 32, 32]}, "cluster": {"devices": 4},
        "training": {"steps": 4}, "run": {"timeout": "20 s"}}
PLANS = {
    "1f1b": {"schedule": "1f1b", "micro_batches": 4, "micro_batch_size": 2},
    "zb-h1": {"schedule": "zb-h1", "micro_batches": 4, "micro_batch_size": 2},
    "replicas": {"schedule": "1f1b", "micro_batches": 4, "micro_batch_size": 2, "stages": 2, "replicas": [2, 2]},
}
OPS = {"1f1b": ["F", "B", "U", "SEND_F", "RECV_F", "SEND_B", "RECV_B"], "zb-h1": ["I", "W"], "replicas": ["S", "U"]}
CALLS = ["write", "fsync", "rename"]
TIMEOUT_S = 20
OTHERS = {"1f1b": ["cluster.devices=2"], "zb-h1": ["cluster.devices=2"], "replicas": []}  # a stage's holders group its sums


def main():
    programs = os.path.abspath(sys.argv[1])
    every = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")
    pipewright = os.path.join(programs, "pipewright")
    launchers = [("mpirun.openmpi", "under_fire", [], ["--enable-recovery"])]
    if os.path.exists(os.path.join(programs, "under_fire_mpich")):
        launchers.append(("mpirun.mpich", "under_fire_mpich", [], ["-disable-auto-cleanup"]))
    counts = {"kills": 0, "that struck nothing": 0, "did not end": 0, "other weights": 0, "resumed": 0, "began anew": 0}
    slowest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        path, kept = os.path.join(folder, "config.yaml"), os.path.join(folder, "kept")

        def run(*arguments):
            done = subprocess.run([pipewright, "run", path, "--json", *arguments], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
            return json.loads(done.stdout)["weights_hash"] if done.returncode == 0 else done.stderr

        number = 0
        for name, plan in PLANS.items():
            with open(path, "w") as file:
                json.dump(dict(BASE, pipeline=plan), file)
            whole = run()
            points = [(rank, step, op) for op in OPS[name] for rank in range(4) for step in range(4)]
            if name == "1f1b":
                points += [(0, call, op) for op in CALLS for call in range(0, 24)]
            for launcher, program, clean, unclean in launchers:
                for options in (clean, unclean):
                    for rank, step, op in points:
                        number += 1
                        if number % every:
                            continue
                        shutil.rmtree(kept, ignore_errors=True)
                        begun = time.monotonic()
                        try:
                            done = subprocess.run([launcher, *options, "-n", "4", os.path.join(programs, program), path,
                                                   str(rank), str(step), op, "9", kept], stdout=subprocess.PIPE,
                                                  stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S + 5)
                        except subprocess.TimeoutExpired:
                            counts["did not end"] += 1
                            print(f"did not end: {name} {launcher} {options} rank {rank} step {step} {op}", flush=True)
                            subprocess.run(["pkill", "-9", "under_fire"])
                            continue
                        took = time.monotonic() - begun
                        if whole in done.stdout:  # no device of the rank has such a task
                            counts["that struck nothing"] += 1
                            continue
                        counts["kills"] += 1
                        slowest = max(slowest, took)
                        resumable = os.path.isdir(kept) and any(
                            os.path.exists(os.path.join(kept, each, "complete")) for each in os.listdir(kept))
                        resumed = run("--resume", kept) if resumable else run()
                        if resumable and "has done 4 steps" in resumed:  # only its end was cut off
                            resumed = whole
                        counts["resumed" if resumable else "began anew"] += 1
                        results = {"": resumed}
                        for other in OTHERS[name] if resumable and resumed == whole else []:
                            again = run("--resume", kept, "--set", other)
                            results[other] = whole if "has done 4 steps" in again else again
                        for what, weights in results.items():
                            if weights != whole:
                                counts["other weights"] += 1
                                print(f"other weights: {name} {launcher} {options} rank {rank} step {step} {op} {what}: "
                                      f"{weights}", flush=True)
    print(", ".join(f"{what}: {count}" for what, count in counts.items()))
    print(f"the slowest ended {slowest:.1f} s after it was started; losses: {counts['did not end'] + counts['other weights']}")
    sys.exit(1 if counts["did not end"] + counts["other weights"] else 0)


if __name__ == "__main__":
    main()
