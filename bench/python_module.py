#!/usr/bin/env python3
"""Idle time per device of 100 configs: one call of the Python module against a process of the program for each config.
Medians of REPEATS runs. PYTHONPATH names the module: BUILD/python.

    bench/python_module.py PIPEWRIGHT [REPEATS]
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import pipewright as pw

CONFIG = """workload: {model: resnet50, image_size: 64, classes: 10}
cluster: {devices: 4, link: {bandwidth: 10 GB/s, latency: 5us}}
pipeline: {schedule: 1f1b, micro_batches: 8, micro_batch_size: 4}
"""
AXES = [{"pipeline.schedule": schedule, "pipeline.micro_batches": m}
        for schedule in ("gpipe", "1f1b", "eager-1f1b", "zb-h1") for m in range(4, 29)]


def by_module(configs, threads):
    return np.array([result.devices.idle_ns for result in pw.simulate_many(configs, threads=threads)])


def by_processes(program, file):
    rows = []
    for overrides in AXES:
        settings = [word for key, value in overrides.items() for word in ("--set", f"{key}={value}")]
        out = subprocess.run([program, "simulate", file, "--json", *settings], check=True, capture_output=True).stdout
        rows.append([device["idle_ns"] for device in json.loads(out)["devices"]])
    return np.array(rows)


def seconds_of_cpu():
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def measured(name, repeats, call, *arguments):
    times, cpu = [], []
    for _ in range(repeats):
        begin, before = time.monotonic(), seconds_of_cpu()
        result = call(*arguments)
        times.append(time.monotonic() - begin)
        cpu.append(seconds_of_cpu() - before)
    print(f"{name:>20}{statistics.median(times):>9.3f} s{statistics.median(cpu):>9.3f} s of CPU", flush=True)
    return result


def main():
    program, repeats = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 7
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "cfg.yaml")
        with open(file, "w") as text:
            text.write(CONFIG)
        configs = [pw.Config(file, overrides) for overrides in AXES]
        idle = measured("module, 1 thread", repeats, by_module, configs, 1)
        again = measured("module, all cores", repeats, by_module, configs, 0)
        expected = measured("processes", min(repeats, 3), by_processes, program, file)
    assert (idle == expected).all() and (again == expected).all()



main()
