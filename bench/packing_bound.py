#!/usr/bin/env python3
"""Whether devices can be packed more tightly than they are: OR-Tools' CP-SAT looks for addresses of a device's buffers within 1.1
times their peak, or proves that there are none. Sizes are rounded so that each answer holds: down for a proof, up for addresses. The
files are those of `bench_packing WORKLOAD FOLDER`.

    pip install ortools
    bench/packing_bound.py FOLDER [SECONDS]
"""
import os
import sys

from ortools.sat.python import cp_model

AIM = 1.1
UNITS = 4000  # of the peak: the coarser, the sooner there is an answer


def can_be_placed(buffers, peak, seconds, rounds_up):
    """True, False, or None if time ran out. `buffers` are (bytes, first, last); permanent buffers are left out."""
    end = max(last for _, _, last in buffers)

    def units(size):
        return -(-size * UNITS // peak) if rounds_up else size * UNITS // peak

    room = int(AIM * UNITS) - sum(units(size) for size, first, last in buffers if first == 0 and last == end)
    model, lives, places = cp_model.CpModel(), [], []
    for size, first, last in buffers:
        if first == 0 and last == end:
            continue
        if units(size) > room:
            return False
        lives.append(model.new_fixed_size_interval_var(first, last - first + 1, ""))
        places.append(model.new_fixed_size_interval_var(model.new_int_var(0, room - units(size), ""), units(size), ""))
    model.add_no_overlap_2d(lives, places)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    return {cp_model.OPTIMAL: True, cp_model.FEASIBLE: True, cp_model.INFEASIBLE: False}.get(solver.solve(model))


def main():
    folder, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 60
    answers = {"none": 0, "some": 0, "not known": 0}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name)) as file:
            peak, arena, plan = file.readline().split(" ", 2)
            buffers = [tuple(map(int, line.split())) for line in file]
        peak, ratio = int(peak), int(arena) / int(peak)
        answer = "not known"
        if can_be_placed(buffers, peak, seconds, rounds_up=False) is False:
            answer = "none"
        elif can_be_placed(buffers, peak, seconds, rounds_up=True):
            answer = "some"
        answers[answer] += 1
        print(f"{ratio:.3f}  {len(buffers):4} buffers, packing within {AIM} x the peak: {answer:9}  {plan.strip()}", flush=True)
    print(", ".join(f"{answer}: {count}" for answer, count in answers.items()))


if __name__ == "__main__":
    main()
