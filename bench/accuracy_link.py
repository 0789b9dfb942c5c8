#!/usr/bin/env python3
"""Errors of the mechanics of a shared link: emulated devices sleep for the times of their tasks and send over emulated
links, so that more devices than cores run at the same time; the rest of the error is the link, the lanes and the hand-over.

    bench/accuracy_link.py PIPEWRIGHT FILE [POINTS]      writes FILE (.json) and prints a table

Two, three and four devices, schedules, micro-batches, bandwidths, latencies and the sharing devices are drawn (seed 19).
"""
import json
import random
import statistics
import subprocess
import sys
import tempfile

from records import write_records

SCHEDULES = ["naive", "gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2", "interleaved", "zb-v"]
CHUNKED = ("interleaved", "zb-v")


def draw(dice):
    devices = dice.choice([2, 3, 3, 3, 4])
    schedule = dice.choice(SCHEDULES)
    stages = devices * (2 if schedule in CHUNKED else 1)
    forward = dice.choice([4, 6, 9])
    link = {"bandwidth": f"{dice.choice([100, 200, 400])} MB/s", "latency": f"{dice.choice([50, 200, 1000])} us"}
    cluster = {"devices": devices}
    shape = dice.choice(["bus", "bus of two", "hosts"])
    if shape == "hosts" and devices % 2 == 0:
        cluster.update(devices_per_host=devices // 2, inside={"bandwidth": "2 GB/s", "latency": "20 us"}, between=link)
    else:
        on_it = list(range(devices)) if shape != "bus of two" else [0, 1]
        cluster.update(link=link, shared=[{"devices": on_it, "bandwidth": link["bandwidth"]}])
    return {
        "workload": {"model": "uniform", "stages": stages, "forward": f"{forward} ms", "backward_input": f"{forward} ms",
                     "backward_weight": f"{forward - 1} ms", "output": f"{dice.choice([200, 500, 1000])} kB"},
        "cluster": cluster,
        "pipeline": {"schedule": schedule, "micro_batches": devices * dice.choice([1, 2, 3]), "micro_batch_size": 1},
        "training": {"steps": 12},
        "run": {"backend": "emulated"},
    }


def compare(program, config):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(config, file)
        file.flush()
        done = subprocess.run([program, "compare", file.name, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        alone = dict(config, cluster=dict(config["cluster"], shared=[]))
        json.dump(alone, open(file.name, "w"))
        free = subprocess.run([program, "simulate", file.name, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for run in (done, free):
        if run.returncode != 0:
            raise RuntimeError(run.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout), json.loads(free.stdout)


def table_of(points):
    lines = []
    for devices in sorted({p["devices"] for p in points}):
        some = [p for p in points if p["devices"] == devices]
        lines.append(f"{devices} devices, {len(some)} points")
        for key in ("step_time_error", "mechanics_error", "unshared_error"):
            errors = [p[key] for p in some if p[key] is not None]
            sizes = sorted(map(abs, errors))
            lines.append(f"  {key:<16} median {100 * statistics.median(sizes):6.2f} %   largest {100 * sizes[-1]:6.2f} %   "
                         f"bias {100 * statistics.mean(errors):+6.2f} %")
    return "\n".join(lines)


def main():
    program, out = sys.argv[1], sys.argv[2]
    dice = random.Random(19)
    points = []
    for k in range(int(sys.argv[3]) if len(sys.argv) > 3 else 100):
        config = draw(dice)
        try:
            answer, free = compare(program, config)
        except RuntimeError as error:
            print(f"left out: {config}: {error}", file=sys.stderr)
            continue
        measured = answer["measured"]["step_time_ns"]
        points.append({"config": config, "devices": config["cluster"]["devices"], "measured_step_ns": measured,
                       "measured_spread_ns": answer["measured"]["step_time_spread_ns"],
                       "step_time_error": answer["step_time_error"], "mechanics_error": answer["mechanics_error"],
                       "unshared_error": free["step_time_ns"] / measured - 1})
        print(f"{k}: {config['pipeline']['schedule']} {100 * answer['step_time_error']:+.2f} %", file=sys.stderr, flush=True)
    write_records(out, {"points": points})
    print(table_of(points))


if __name__ == "__main__":
    main()
