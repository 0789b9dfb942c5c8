#!/usr/bin/env python3
"""Threads against ranks on the same plan and the same machine: the step of one process with two device threads beside that of
two ranks, in pairs, one after the other.

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
                done = subprocess.run([*command, "run", path, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      text=True, check=True)
                answer = json.loads(done.stdout)
                return answer["step_time_ns"] / 1e6, answer["weights_hash"]

            for launcher, start, program in launchers:
                threads, ranks, ratios = [], [], []
                for _ in range(pairs):
                    alone, weights = step_of(os.path.join(programs, program))
                    both, others = step_of(*start, "-n", "2", os.path.join(programs, program))
                    assert weights == others
                    threads.append(alone)
                    ranks.append(both)
                    ratios.append(both / alone)
                print(f"{name:<15} {launcher:<8} threads {statistics.median(threads):8.2f} ms   2 ranks "
                      f"{statistics.median(ranks):8.2f} ms   ratio {statistics.median(ratios):.3f} "
                      f"({min(ratios):.3f} to {max(ratios):.3f}, {pairs} pairs)", flush=True)


if __name__ == "__main__":
    main()
