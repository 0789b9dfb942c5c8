#!/usr/bin/env python3
"""The whole process of `pipewright simulate --json`, 1f1b with transfers, on one core: nanoseconds and bytes of peak
memory per task, transfers included, above those of an empty process. Medians of REPEATS runs.

    bench/engine_process.py PIPEWRIGHT [REPEATS]
"""
import json
import os
import statistics
import sys
import tempfile
import time

GROWTH = [(64, m) for m in (64, 256, 1024, 4096, 16384, 65536)] + [(p, 4 * p) for p in (8, 32, 128, 256, 512, 1024)]
REPLICAS = [(1000, 100, 200)]  # stages, replicas of each, micro-batches

CONFIG = """workload: {{model: uniform, stages: {stages}}}
cluster: {{devices: {devices}, link: {{latency: 5us, bandwidth: 25 GB/s}}}}
pipeline: {{schedule: 1f1b, micro_batches: {micro_batches}{replicas}}}
"""


def run(command, output):
    """Returns seconds and bytes of peak memory."""
    begin = time.monotonic()
    child = os.fork()
    if child == 0:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.execv(command[0], command)
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)} failed")
    return time.monotonic() - begin, usage.ru_maxrss * 1024


def medians(command, output, repeats):
    runs = [run(command, output) for _ in range(repeats)]
    return statistics.median(r[0] for r in runs), statistics.median(r[1] for r in runs)


def measure(program, folder, repeats, stages, micro_batches, replicas, empty):
    config, output = os.path.join(folder, "cfg.yaml"), os.path.join(folder, "out.json")
    with open(config, "w") as file:
        file.write(CONFIG.format(stages=stages, devices=stages * replicas, micro_batches=micro_batches,
                                 replicas="" if replicas == 1 else f", replicas: {[replicas] * stages}"))
    seconds, peak = medians([program, "simulate", config, "--json"], output, repeats)
    with open(output) as file:
        tasks = json.load(file)["tasks"]
    print(f"{stages:>6}{replicas:>9}{micro_batches:>8}{tasks:>10}{seconds:>9.3f}{peak / 2**20:>9.0f}"
          f"{(seconds - empty[0]) * 1e9 / tasks:>9.0f}{(peak - empty[1]) / tasks:>7.0f}", flush=True)


def main():
    program, repeats = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as folder:
        empty = medians([program, "--version"], os.path.join(folder, "out"), 9)
        print(f"empty process: {empty[0] * 1e3:.1f} ms, {empty[1] / 2**20:.1f} MiB")
        print(f"{'stages':>6}{'replicas':>9}{'m':>8}{'tasks':>10}{'seconds':>9}{'MiB':>9}{'ns/task':>9}{'B/task':>7}")
        for stages, micro_batches in GROWTH:
            measure(program, folder, repeats, stages, micro_batches, 1, empty)
        for stages, replicas, micro_batches in REPLICAS:
            measure(program, folder, repeats, stages, micro_batches, replicas, empty)


main()
