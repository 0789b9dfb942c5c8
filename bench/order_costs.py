#!/usr/bin/env python3
"""Lower bounds of the schedules auto, auto-v and auto-bidirectional against OR-Tools' CP-SAT (pip install ortools), on small
random pipelines with all costs that an order depends on: micro-batches of unequal length, dispatch, updates, speeds, messages,
memory and pairs of tasks that overlap. CP-SAT's model leaves out that messages wait for each other, so its least time is at
most that of the simulator: no bound may be above it, and no plan may be shorter than CP-SAT's own bound.

    bench/order_costs.py [--seconds SECONDS] PIPEWRIGHT [INSTANCES [FIRST]]
"""
import argparse
import math
import random

from ortools.sat.python import cp_model

from order_gaps import simulate

PLACEMENTS = ("auto", "auto-v", "auto-bidirectional")


def nearest(value):
    return math.floor(value + 1e-6 + 0.5)


def larger(size, length):
    """Returns a size of a micro-batch of this length."""
    return size if length == 1 else math.ceil(size * length * (1 - 1e-12))


class Pipeline:
    """A random pipeline; times in ns and sizes in bytes."""

    def __init__(self, seed):
        dice = random.Random(seed)
        self.schedule = dice.choice(PLACEMENTS)
        both, chunks = self.schedule == "auto-bidirectional", 2 if self.schedule == "auto-v" else 1
        self.devices = 2 if both else dice.randint(1, 3 if chunks == 1 else 2)
        self.stages = self.devices * chunks
        self.batches = dice.randint(2, 4 if chunks == 1 else 3)
        draw = lambda least, most: [dice.randint(least, most) for _ in range(self.stages)]
        self.forward, self.input, self.weight = draw(5, 60), draw(5, 60), draw(5, 60)
        self.dispatch = dice.choice((0, 0, dice.randint(1, 15)))
        self.speeds = [dice.choice((1, 1, 1.7, 0.6)) for _ in range(self.devices)]
        self.latency = dice.choice((0, dice.randint(1, 20)))
        self.pair = draw(20, 120) if dice.random() < 0.25 else None
        self.exposed = round(dice.uniform(0, 0.9), 2) if dice.random() < 0.25 else 1
        self.lengths = [dict.fromkeys(("F", "I", "W", "bytes"), 1) for _ in range(self.batches)]
        if dice.random() < 0.6:
            for length in self.lengths:
                value = dice.choice((0.1, 0.3, 0.5, 1, 1.5, 2, 3))
                for key in length:
                    length[key] = dice.choice((0.2, 0.7, 1, 2.5)) if dice.random() < 0.2 else value
        self.memory = None
        self.output = draw(0, 40) if dice.random() < 0.5 else [0] * self.stages
        self.weights = draw(0, 20)
        self.activation, self.later = [0] * self.stages, [0] * self.stages
        if dice.random() < 0.5:
            self.activation = draw(0, 60)
            self.later = [dice.randint(0, size) for size in self.activation]
            self.memory = dice.randint(100, 600)
        self.limit = 0 if self.memory else dice.randint(1, self.batches + 1)
        self.aim = dice.choice(("step", "span"))

    def device(self, stage, batch):
        if self.schedule == "auto-bidirectional" and batch % 2 == 1:
            return self.devices - 1 - stage
        return stage if stage < self.devices else 2 * self.devices - 1 - stage

    def text(self):
        times = lambda values, unit="ns": "[" + ", ".join(f"{value} {unit}" for value in values) + "]"
        pair = f", overlapped_forward_backward: {times(self.pair)}" if self.pair else ""
        memory = f"{self.memory} B" if self.memory else "inf"
        devices = ", ".join(f"{{speed: {speed}, memory: {memory}}}" for speed in self.speeds)
        return (f"workload: {{model: uniform, forward: {times(self.forward)}, backward_input: {times(self.input)}, "
                f"backward_weight: {times(self.weight)}, weights: {times(self.weights, 'B')}, "
                f"activation: {times(self.activation, 'B')}, activation_until_weight: {times(self.later, 'B')}, "
                f"output: {times(self.output, 'B')}{pair}}}\n"
                f"cluster: {{devices: [{devices}], dispatch: {self.dispatch} ns, "
                f"link: {{latency: {self.latency} ns, bandwidth: 1 GB/s}}}}\n")

    def pipeline(self):
        lengths = ", ".join("{" + ", ".join(f"{key}: {value}" for key, value in length.items()) + "}"
                            for length in self.lengths)
        limit = f", activations: {self.limit}" if self.limit else ""
        return (f"schedule: {self.schedule}, stages: {self.stages}, micro_batches: {self.batches}, aim: {self.aim}, "
                f"pair_exposed: {self.exposed}, micro_batch_lengths: [{lengths}]{limit}")

    def time(self, kind, stage, batch):
        """Returns the duration of F, I, W or B."""
        length = self.lengths[batch]
        if kind == "B":
            whole = self.input[stage] + self.weight[stage]
            scaled = self.input[stage] * length["I"] + self.weight[stage] * length["W"]
            factor = length["I"] if length["I"] == length["W"] else scaled / whole
        else:
            whole, factor = {"F": self.forward, "I": self.input, "W": self.weight}[kind][stage], length[kind]
        time = whole if factor == 1 else nearest(whole * factor)
        speed = self.speeds[self.device(stage, batch)]
        return (time if speed == 1 else nearest(time / speed)) + self.dispatch

    def pair_time(self, a, b):
        """Returns how long two tasks (kind, stage, batch) take as a pair."""
        times = sorted((self.time(*a), self.time(*b)))
        if self.pair and {a[0], b[0]} == {"F", "B"}:
            forward, backward = (a, b) if a[0] == "F" else (b, a)
            whole = self.forward[forward[1]] + self.input[backward[1]] + self.weight[backward[1]]
            both = sum(times) - 2 * self.dispatch
            pair = self.pair[forward[1]]
            return (pair if both == whole else nearest(pair * both / whole)) + self.dispatch
        return times[1] + math.ceil(times[0] * self.exposed * (1 - 1e-12))

    def message(self, stage, batch, sender, reader):
        """Returns the time of a tensor of the edge after a stage."""
        if sender == reader:
            return 0
        return nearest(larger(self.output[stage], self.lengths[batch]["bytes"])) + self.latency


class Shop:
    """The pipeline as a job shop."""

    def __init__(self, pipe, longest, aim):
        self.pipe, self.longest = pipe, longest
        self.model = model = cp_model.CpModel()
        self.start, self.end, self.runs, self.intervals = {}, {}, {}, {device: [] for device in range(pipe.devices)}
        self.demands = {device: ([], []) for device in range(pipe.devices)}
        for stage in range(pipe.stages):
            for batch in range(pipe.batches):
                whole = model.new_bool_var("")
                for kind, runs in (("F", None), ("B", whole), ("I", whole.negated()), ("W", whole.negated())):
                    self.add(kind, stage, batch, runs)
        self.add_pairs()
        self.updates = [self.update(stage, device) for stage in range(pipe.stages) for device in range(pipe.devices)
                        if aim == "step"]
        for device, intervals in self.intervals.items():
            model.add_no_overlap(intervals)
        self.precede()
        self.hold()
        self.aim(aim)

    def add(self, kind, stage, batch, runs):
        task = (kind, stage, batch)
        self.start[task], self.end[task] = (self.model.new_int_var(0, self.longest, "") for _ in range(2))
        self.runs[task] = [] if runs is None else [runs]

    def add_pairs(self):
        """Each task runs alone or in one pair."""
        pipe, model = self.pipe, self.model
        choices = {task: [] for task in self.start}
        for device in range(pipe.devices):
            tasks = [task for task in self.start if pipe.device(*task[1:]) == device]
            for at, a in enumerate(tasks):
                for b in tasks[at + 1:]:
                    if a[2] == b[2] or not (pipe.pair or pipe.exposed < 1):
                        continue
                    chosen, time = model.new_bool_var(""), pipe.pair_time(a, b)
                    for task in (a, b):
                        choices[task].append(chosen)
                        for runs in self.runs[task]:
                            model.add_implication(chosen, runs)
                        model.add(self.end[task] == self.start[task] + time).only_enforce_if(chosen)
                    model.add(self.start[a] == self.start[b]).only_enforce_if(chosen)
                    self.intervals[device].append(
                        model.new_optional_interval_var(self.start[a], time, self.end[a], chosen, ""))
        for task, pairs in choices.items():
            alone = model.new_bool_var("")
            runs = self.runs[task][0] if self.runs[task] else 1
            model.add(sum(pairs) + alone == runs)
            time = pipe.time(*task)
            model.add(self.end[task] == self.start[task] + time).only_enforce_if(alone)
            self.intervals[pipe.device(*task[1:])].append(
                model.new_optional_interval_var(self.start[task], time, self.end[task], alone, ""))

    def update(self, stage, device):
        """Returns the end of U; 0 on a device without the stage."""
        pipe, model = self.pipe, self.model
        tasks = [task for task in self.start if task[0] in "BW" and task[1] == stage and pipe.device(*task[1:]) == device]
        if not tasks:
            return 0
        start = model.new_int_var(0, self.longest, "")
        for task in tasks:
            model.add(start >= self.end[task]).only_enforce_if(self.runs[task])
        self.intervals[device].append(model.new_fixed_size_interval_var(start, pipe.dispatch, ""))
        return start + pipe.dispatch

    def follow(self, task, before, delay=0):
        condition = self.runs[task] + self.runs[before]
        constraint = self.model.add(self.start[task] >= self.end[before] + delay)
        if condition:
            constraint.only_enforce_if(condition)

    def precede(self):
        pipe = self.pipe
        for stage in range(pipe.stages):
            for batch in range(pipe.batches):
                here = pipe.device(stage, batch)
                for kind in "IB":
                    self.follow((kind, stage, batch), ("F", stage, batch))
                self.follow(("W", stage, batch), ("I", stage, batch))
                if stage + 1 == pipe.stages:
                    continue
                there = pipe.device(stage + 1, batch)
                delay = pipe.message(stage, batch, here, there)
                self.follow(("F", stage + 1, batch), ("F", stage, batch), delay)
                for kind in "IB":
                    for after in "IB":
                        self.follow((kind, stage, batch), (after, stage + 1, batch), delay)

    def hold(self):
        """Adds the bytes held from F to the end of I, from F to the end of W, and the bytes that F and I receive."""
        pipe, model = self.pipe, self.model
        for device in range(pipe.devices):
            intervals, bytes_of, counts = [], [], []
            fixed = 0
            for stage in range(pipe.stages):
                if any(pipe.device(stage, batch) == device for batch in range(pipe.batches)):
                    fixed += 3 * pipe.weights[stage]
            for stage in range(pipe.stages):
                for batch in range(pipe.batches):
                    if pipe.device(stage, batch) != device:
                        continue
                    length = pipe.lengths[batch]["bytes"]
                    start = self.start["F", stage, batch]
                    self.held(start, stage, batch, "IB", larger(pipe.activation[stage] - pipe.later[stage], length),
                              intervals, bytes_of)
                    self.held(start, stage, batch, "WB", larger(pipe.later[stage], length), intervals, bytes_of)
                    counts.append(intervals[-1])
                    if stage > 0:
                        self.during(("F", stage, batch), larger(pipe.output[stage - 1], length), intervals, bytes_of)
                    if stage + 1 < pipe.stages:
                        for kind in "IB":
                            self.during((kind, stage, batch), larger(pipe.output[stage], length), intervals, bytes_of)
            if pipe.memory:
                model.add_cumulative(intervals, bytes_of, max(0, pipe.memory - fixed))
            if pipe.limit:
                own = max(sum(pipe.device(stage, batch) == device for stage in range(pipe.stages))
                          for batch in range(pipe.batches))
                model.add_cumulative(counts, [1] * len(counts), pipe.limit * own)

    def held(self, start, stage, batch, kinds, size, intervals, sizes):
        end, time = self.model.new_int_var(0, self.longest, ""), self.model.new_int_var(0, self.longest, "")
        for kind in kinds:
            task = (kind, stage, batch)
            self.model.add(end == self.end[task]).only_enforce_if(self.runs[task])
        intervals.append(self.model.new_interval_var(start, time, end, ""))
        sizes.append(size)

    def during(self, task, size, intervals, sizes):
        time = self.model.new_int_var(0, self.longest, "")
        if self.runs[task]:
            intervals.append(self.model.new_optional_interval_var(self.start[task], time, self.end[task],
                                                                  self.runs[task][0], ""))
        else:
            intervals.append(self.model.new_interval_var(self.start[task], time, self.end[task], ""))
        sizes.append(size)

    def aim(self, aim):
        pipe, model = self.pipe, self.model
        self.time = model.new_int_var(0, self.longest, "")
        for end in self.updates:
            model.add(self.time >= end)
        for device in range(pipe.devices):
            first = model.new_int_var(0, self.longest, "")
            for task in self.start:
                if pipe.device(*task[1:]) != device:
                    continue
                if task[0] == "F":
                    model.add(first <= self.start[task])
                constraint = model.add(self.time >= self.end[task] - (0 if aim == "step" else first))
                if self.runs[task]:
                    constraint.only_enforce_if(self.runs[task])
        model.minimize(self.time)

    def solve(self, seconds):
        """Returns the least time found, or None, and the solver's bound."""
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.num_workers = 1
        found = solver.solve(self.model)
        if found == cp_model.INFEASIBLE:
            return None, None
        return (round(solver.objective_value) if found in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None,
                math.ceil(solver.best_objective_bound - 1e-6))


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("pipewright")
    arguments.add_argument("--seconds", type=float, default=10)
    arguments.add_argument("instances", type=int, nargs="?", default=200)
    arguments.add_argument("first", type=int, nargs="?", default=0)
    given = arguments.parse_args()
    compared, proven, tight, wrong, unfit = 0, 0, 0, 0, 0
    for seed in range(given.first, given.first + given.instances):
        pipe = Pipeline(seed)
        report = simulate(given.pipewright, pipe.text(), pipe.pipeline())
        if not report["fits"]:
            unfit += 1
        for aim, reached in (("step", report["step_time_ns"]), ("span", report["span_ns"])):
            least = report["order"][f"least_{aim}_ns"]
            best, bound = Shop(pipe, 2 * report["step_time_ns"], aim).solve(given.seconds)
            if best is None:
                continue
            compared += 1
            proven += best == bound
            tight += best == bound == least
            if best < least or (report["fits"] and bound > reached):
                wrong += 1
                print(f"{seed}: {aim} {reached}, at least {least}; CP-SAT {best}, at least {bound}\n"
                      f"{pipe.text()}pipeline: {{{pipe.pipeline()}}}", flush=True)
    print(f"{given.instances} pipelines, {unfit} of them do not fit: {compared} times compared, {proven} proven the least by "
          f"CP-SAT, {tight} of these equal to the bound; contradictions: {wrong}")


if __name__ == "__main__":
    main()
