#!/usr/bin/env python3
"""Records a pipeline of PyTorch with torch.profiler: a Kineto file for each rank, FOLDER/rank0.json.gz, rank1.json.gz, ...

A small MLP is trained on the CPU over gloo, one process per rank:

    bench/pytorch_traces.py FOLDER --schedule Interleaved1F1B --slow-stage 1
    pipewright import FOLDER/rank*.json.gz -o trace.json

Interleaved schedules annotate their tasks themselves (PP:0F1), and so does GPipe (Forward 1). The others do not:
annotate() does it. Needs PyTorch 2.6 or newer. tests/cli/kineto/ was made by PyTorch 2.11 with
`--micro-batches 2 --steps 1 --slow-stage 1`, tests/cli/kineto/torch-*/ by 2.11 and 2.15 with `--steps 1 --slow-stage 1
--times --strip`.
"""
import argparse
import collections
import gzip
import json
import os
import pathlib
import time

import torch
import torch.distributed as dist
from torch.distributed import pipelining
from torch.profiler import ProfilerActivity, profile, record_function, schedule


def annotate(stage):
    """Gives the passes of a stage the names that PyTorch's interleaved schedules give them."""
    def named(run, op_of):
        def wrapper(chunk, *args, **kwargs):
            with record_function(f"PP:{stage.stage_index}{op_of(kwargs)}{chunk}"):
                return run(chunk, *args, **kwargs)
        return wrapper
    stage.forward_one_chunk = named(stage.forward_one_chunk, lambda kwargs: "F")
    stage.backward_one_chunk = named(stage.backward_one_chunk, lambda kwargs: "B" if kwargs.get("full_backward", True) else "I")
    stage.backward_weight_one_chunk = named(stage.backward_weight_one_chunk, lambda kwargs: "W")


def measure(stage, times):
    """Adds what the passes of a stage take, by a clock of their own: they do not wait for messages."""
    def timed(run):
        def wrapper(*args, **kwargs):
            begin = time.perf_counter_ns()
            try:
                return run(*args, **kwargs)
            finally:
                times[stage.stage_index] += time.perf_counter_ns() - begin
        return wrapper
    for name in ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk"):
        setattr(stage, name, timed(getattr(stage, name)))


def strip(path):
    """Keeps what an import reads: annotations, and operators of the host."""
    with gzip.open(path, "rt") as file:
        trace = json.load(file)
    base = min(event["ts"] for event in trace["traceEvents"] if event.get("cat") == "user_annotation")
    events = [{**{key: event[key] for key in ("ph", "cat", "name", "pid", "tid", "dur")}, "ts": round(event["ts"] - base, 3)}
              for event in trace["traceEvents"] if event.get("cat") in ("user_annotation", "cpu_op")]
    kept = {key: trace[key] for key in ("schemaVersion", "distributedInfo")}
    kept["baseTimeNanoseconds"] = trace["baseTimeNanoseconds"] + round(base * 1000)
    with gzip.open(path, "wt") as file:
        json.dump({**kept, "traceEvents": events}, file)


def record(rank, options):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port))
    dist.init_process_group("gloo", rank=rank, world_size=options.ranks)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    kind = getattr(pipelining, "Schedule" + options.schedule)
    several = issubclass(kind, pipelining.schedules.PipelineScheduleMulti)
    stages = options.ranks * (2 if several else 1)
    held = []
    in_v = options.schedule in ("ZBVZeroBubble", "DualPipeV")  # the last rank holds two stages in a row
    for index in [rank, stages - 1 - rank] if in_v else range(rank, stages, options.ranks):
        layers = 3 if index == options.slow_stage else 1
        model = torch.nn.Sequential(*[torch.nn.Linear(options.width, options.width) for _ in range(layers)])
        held.append(pipelining.PipelineStage(model, index, stages, torch.device("cpu")))
    times = collections.Counter()
    for stage in held:
        if options.times:
            measure(stage, times)
        if options.annotate:
            annotate(stage)
    pipeline = kind(held if several else held[0], n_microbatches=options.micro_batches, loss_fn=torch.nn.functional.mse_loss)
    samples = torch.randn(options.micro_batches * options.width, options.width)

    def step():
        pipeline.step(*([samples] if rank == 0 else []), target=samples)
        for stage in held:
            stage.submod.zero_grad()

    trace = options.folder / f"rank{rank}.json.gz"
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=1, active=options.steps),
                 on_trace_ready=lambda found: found.export_chrome_trace(str(trace))) as profiler:
        for number in range(options.steps + 1):
            times.clear()
            step()
            profiler.step()
            for index, ns in sorted(times.items()):
                print(f"step {number}, stage {index}: {ns / 1e6:.3f} ms in its passes", flush=True)
    if options.strip:
        strip(trace)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--schedule", default="Interleaved1F1B", help="GPipe, 1F1B, Interleaved1F1B, LoopedBFS, ...")
    parser.add_argument("--annotate", action="store_true", help="for schedules that do not annotate their tasks")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--slow-stage", type=int, default=-1, help="this stage has three layers instead of one")
    parser.add_argument("--times", action="store_true", help="print what the passes take by a clock of their own")
    parser.add_argument("--strip", action="store_true", help="keep only what an import reads")
    parser.add_argument("--port", type=int, default=29571)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.multiprocessing.spawn(record, (options,), options.ranks)


if __name__ == "__main__":
    main()
