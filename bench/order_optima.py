#!/usr/bin/env python3
"""Orders of the schedule auto and their lower bounds against a solver by others: the pipelines of order_gaps.py as job
shops for OR-Tools' CP-SAT (pip install ortools). Its order must not be shorter than the lower bound, nor its own bound above
the order of auto.

    bench/order_optima.py [--seconds SECONDS] PIPEWRIGHT [INSTANCE...]
"""
import argparse
import re
import statistics
import time

from ortools.sat.python import cp_model

from order_gaps import instance, simulate


def times_of(text):
    """Returns the times of F, I and W by device, and the latencies by pair of devices."""
    lists = [[int(time.split()[0]) for time in one.split(", ")] for one in re.findall(r"\[([^\]{]*)\]", text)[:3]]
    links = re.findall(r"from: (\d+), to: (\d+), latency: (\d+) ns", text)
    return lists, {(int(at), int(to)): int(latency) for at, to, latency in links}


def solve(text, devices, batches, limit, longest, seconds):
    """Returns CP-SAT's shortest step, at most `longest`, and its bound. Equal micro-batches keep their order."""
    times, latency = times_of(text)
    model = cp_model.CpModel()
    start = {}
    for device in range(devices):
        for batch in range(batches):
            for kind in range(3):
                start[device, batch, kind] = model.new_int_var(0, longest, "")
        model.add_no_overlap([model.new_fixed_size_interval_var(start[device, batch, kind], times[kind][device], "")
                              for batch in range(batches) for kind in range(3)])
    end = lambda device, batch, kind: start[device, batch, kind] + times[kind][device]
    step = model.new_int_var(0, longest, "")
    for device in range(devices):
        for batch in range(batches):
            if device + 1 < devices:
                model.add(start[device + 1, batch, 0] >= end(device, batch, 0) + latency[device, device + 1])
                model.add(start[device, batch, 1] >= end(device + 1, batch, 1) + latency[device + 1, device])
            model.add(start[device, batch, 1] >= end(device, batch, 0))
            model.add(start[device, batch, 2] >= end(device, batch, 1))
            model.add(step >= end(device, batch, 2))
            if batch > 0:
                for kind in range(3):
                    model.add(start[device, batch, kind] >= end(device, batch - 1, kind))
            if batch >= limit:
                model.add(start[device, batch, 0] >= end(device, batch - limit, 2))
    model.minimize(step)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 2
    found = solver.solve(model)
    return (round(solver.objective_value) if found in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None,
            round(solver.best_objective_bound))


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("pipewright")
    arguments.add_argument("--seconds", type=float, default=60)
    arguments.add_argument("instances", type=int, nargs="*", default=range(100))
    given = arguments.parse_args()
    shorter, bounds, own_bounds, wrong = [], [], [], 0
    for seed in given.instances:
        devices, batches, limit, text = instance(seed)
        report = simulate(given.pipewright, text, f"schedule: auto, micro_batches: {batches}, activations: {limit}")
        step, least = report["step_time_ns"], report["order"]["least_step_ns"]
        begun = time.monotonic()
        best, bound = solve(text, devices, batches, limit, step, given.seconds)
        wrong += (best is not None and best < least) or bound > step
        shorter.append(step / best - 1 if best else 0)
        bounds.append(step / least - 1)
        own_bounds.append(step / max(bound, 1) - 1)
        print(f"{seed}: {devices} devices, {batches} micro-batches, room for {limit}: auto {step}, at least {least}; "
              f"CP-SAT {best or 'none'}, at least {bound}, {time.monotonic() - begun:.0f} s", flush=True)
    percent = lambda values: f"{100 * statistics.mean(values):.2f} %"
    print(f"{len(shorter)} pipelines: auto is {percent(shorter)} longer than CP-SAT's orders in the mean; gap by the bound of "
          f"pipewright {percent(bounds)}, by that of CP-SAT {percent(own_bounds)}; contradictions: {wrong}")


if __name__ == "__main__":
    main()
