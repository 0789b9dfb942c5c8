#!/usr/bin/env python3
"""Errors of predictions on two CPU devices, over schedules, micro-batches, splits, sizes, recomputation and replicas. Each
point is a `compare CONFIG --interleave`, with two columns: predicted from a profile stored before the first point, and from
probes that take turns with the run (docs/profile.md#calibration-during-a-run), whose times are never the plan's own. Further
columns: the mechanics (the run's own times replayed), the profile without its neighbours, and three simpler predictions: free
transfers (by the profile), the bubble formula and the slowest stage (by the calibrated times). Points are held out by their
plan's hash: an even first digit.

    bench/accuracy_cpu.py PIPEWRIGHT FOLDER [POINTS] [--link]      writes FOLDER/*.json, one file per workload, and table.txt

With --link the devices send over emulated links (LINK) and share the way, GPTs and replicas aside, which sum gradients.
One after the other, on a machine that does nothing else. What is in FOLDER already is kept and not measured again.
"""
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

from records import write_records

WORKLOADS = {
    "resnet50-64": {"model": "resnet50", "image_size": 64, "classes": 10},
    "resnet50-32": {"model": "resnet50", "image_size": 32, "classes": 10},
    "mlp": {"model": "mlp", "hidden": [1024, 1024, 1024, 1024, 1024]},
    "gpt": {"model": "gpt", "sequence_length": 64, "vocabulary": 256, "embedding": 128, "blocks": 4, "heads": 4},
}
SPLITS = {"resnet50-64": ["auto", "even", "[layer3.0]", "[layer2.0]"], "resnet50-32": ["auto", "even", "[layer3.2]"],
          "mlp": ["auto", "even"], "gpt": ["auto", "even"]}
SIZES = {"resnet50-64": [1, 2], "resnet50-32": [1, 2, 4], "mlp": [32, 64, 128], "gpt": [1, 2, 4]}
SCHEDULES = ["naive", "gpipe", "1f1b", "eager-1f1b", "interleaved", "bfs", "zb-h1", "zb-h2", "zb1p", "zb-v", "pipedream",
             "pipedream-2bw"]
CHUNKED = {"interleaved", "bfs", "zb1p", "zb-v"}
ASYNCHRONOUS = {"pipedream", "pipedream-2bw"}
STEPS_PER_TURN, TURNS, SECONDS = 3, (8, 32), 4  # the number of turns for which the run takes SECONDS, by its profile
ASYNCHRONOUS_TURNS, ASYNCHRONOUS_STEPS = 12, 4  # each is a run of its own
QUIET = 0.1
SHARES = ["resnet50-64", "mlp", "gpt", "resnet50-32", "mlp", "gpt", "resnet50-64", "mlp", "gpt", "resnet50-32"]


def draw(dice, workload):
    schedule = dice.choice(SCHEDULES)
    micro_batches = dice.choice([2, 4, 6, 8, 10])
    # the embedding and the last layer of gpt share a table: no schedule without a flush takes that
    if workload == "gpt" and schedule in ASYNCHRONOUS:
        schedule = "1f1b"
    pipeline = {"schedule": schedule, "micro_batches": micro_batches, "micro_batch_size": dice.choice(SIZES[workload])}
    if schedule in CHUNKED:
        pipeline["split"] = dice.choice(["auto", "even"])
        pipeline["micro_batches"] = micro_batches + micro_batches % 2
    elif dice.random() < 0.12 and schedule in ("gpipe", "1f1b"):
        pipeline["replicas"] = [2]
    else:
        pipeline["split"] = dice.choice(SPLITS[workload])
    if dice.random() < 0.15 and schedule not in ASYNCHRONOUS:
        pipeline["recompute"] = "all"
    return pipeline


# What --link emulates: both directions share the way into and out of one host.
LINK = {"link": {"bandwidth": "400 MB/s", "latency": "200 us"},
        "shared": [{"devices": [0, 1], "bandwidth": "400 MB/s"}]}


def turns_of(pipeline, step_ns):
    if pipeline["schedule"] in ASYNCHRONOUS:
        return ASYNCHRONOUS_TURNS
    return min(max(int(SECONDS * 1e9 / (STEPS_PER_TURN * step_ns)), TURNS[0]), TURNS[1])


def config_of(workload, pipeline, link, profile=None, turns=TURNS[0]):
    steps = ASYNCHRONOUS_STEPS if pipeline["schedule"] in ASYNCHRONOUS else turns * STEPS_PER_TURN
    config = {"workload": WORKLOADS[workload], "cluster": {"devices": 2}, "pipeline": dict(pipeline),
              "training": {"steps": steps, "learning_rate": 0.001}, "run": {"backend": "cpu"}}
    split = config["pipeline"].get("split")
    if split and split.startswith("["):
        config["pipeline"]["split"] = split.strip("[]").split(", ")
    if "replicas" in pipeline:
        config["pipeline"]["stages"] = 1
    if profile:
        config["cluster"]["profile"] = profile
    if link:
        config["cluster"].update(LINK)
        config["run"]["transport"] = "link"
    return config


def call(program, command, config, folder, *more):
    path = os.path.join(folder, "config.yaml")
    with open(path, "w") as file:
        json.dump(config, file)
    done = subprocess.run([program, command, path, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise RuntimeError(next((line for line in lines if line.startswith("error")), lines[-1]))
    return done.stdout


def without_neighbours(profile, folder):
    """Returns the path of a copy of the profile that has no `busy` lists."""
    kept, inside = [], False
    with open(profile) as file:
        for line in file:
            indent = len(line) - len(line.lstrip())
            inside = line.strip() == "busy:" or (inside and indent > 4)
            if not inside:
                kept.append(line)
    path = os.path.join(folder, "alone.yaml")
    with open(path, "w") as file:
        file.writelines(kept)
    return path


def roles_of_operations(program):
    """Returns the role of each operation by its letters, as `list operations` has them."""
    lines = subprocess.run([program, "list", "operations"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    return dict(line.split()[:2] for line in lines[1:])


def formulas_of(answer, config, roles):
    """Returns two simpler predictions of the step time from the calibrated means of the tasks, in ns."""
    mean = {}
    for task in answer["calibrated"]["tasks"]:
        mean[task["op"], task["stage"]] = task["mean_ns"]
    devices, stages, micro_batches = 2, answer["stages"], answer["micro_batches"]
    of_stage = [sum(time for (op, stage), time in mean.items() if stage == s and roles[op] == "compute")
                for s in range(stages)]
    if "replicas" in config["pipeline"]:
        of_stage = [time / devices for time in of_stage]
    updates = [sum(time for (op, stage), time in mean.items() if stage == s and roles[op] in ("update", "sum"))
               for s in range(stages)]
    per_device = sum(of_stage) / devices
    chunks = max(1, stages // devices)
    replicated = "replicas" in config["pipeline"]
    asynchronous = config["pipeline"]["schedule"] in ASYNCHRONOUS
    bubble = 0 if asynchronous or replicated else (devices - 1) / chunks
    v_shaped = config["pipeline"]["schedule"] == "zb-v"  # stages 0 and 3 on one device
    load = [0.0] * devices
    for s in range(stages):
        load[min(s, stages - 1 - s) if v_shaped else s % devices] += of_stage[s]
    whole = micro_batches if config["pipeline"]["schedule"] != "pipedream" else 1
    return {"bubble_formula": (whole + bubble) * per_device + max(updates),
            "slowest_stage": whole * max(load) + max(updates)}


def point_of(program, workload, pipeline, link, profile, folder):
    config = config_of(workload, pipeline, link, profile)
    first = json.loads(call(program, "simulate", config, folder, "--json"))
    turns = turns_of(pipeline, first["step_time_ns"])
    config = config_of(workload, pipeline, link, profile, turns)
    answer = json.loads(call(program, "compare", config, folder, "--json", "--interleave", str(turns)))
    measured, calibrated = answer["measured"], answer["calibrated"]
    step = measured["step_time_ns"]
    simple = formulas_of(answer, config, roles_of_operations(program))
    free = json.loads(call(program, "simulate", config, folder, "--json", "--set",
                           "cluster.link={latency: 0 ns, bandwidth: inf}", "--set", "cluster.shared=[]"))
    config["cluster"]["profile"] = without_neighbours(profile, folder)
    alone = json.loads(call(program, "simulate", config, folder, "--json"))
    parts = answer["error_parts"] or {}
    name = " ".join(str(v) for v in pipeline.values())
    samples = step * measured["samples_per_second"]
    return {
        "name": name, "workload": workload, "pipeline": pipeline, "plan_hash": answer["plan_hash"],
        "held_out": int(answer["plan_hash"][0], 16) % 2 == 0,
        "measured_step_ns": step, "measured_spread_ns": measured["step_time_spread_ns"],
        "slices": answer["slices"],
        "reference": answer["reference"],
        "measured_samples_per_second": measured["samples_per_second"],
        "predicted_samples_per_second": samples / calibrated["step_time_ns"],
        "step_time_error": calibrated["step_time_error"],
        "profile_step_time_error": answer["step_time_error"],
        "alone_step_time_error": alone["step_time_ns"] / step - 1,  # by the profile, without its neighbours
        "peak_memory_error": answer["peak_memory_error"],
        "mechanics_step_time_error": answer["mechanics_error"],
        "free_transfers_step_time_error": free["step_time_ns"] / step - 1,  # by the profile, as the next two are not
        "bubble_formula_step_time_error": simple["bubble_formula"] / step - 1,
        "slowest_stage_step_time_error": simple["slowest_stage"] / step - 1,
        "error_parts": {key: parts.get(key) for key in ("mechanics_ns", "jitter_ns", "costs_ns", "drift_ns")},
        "largest": (parts.get("by_task") or [None])[0],
        "cpu_share": measured.get("cpu_share"),
    }


def tau_of(points):
    """Kendall's tau of measured and predicted samples per second, over the pairs of a workload that are 3 % apart."""
    score = pairs = 0
    for k, a in enumerate(points):
        for b in points[:k]:
            first, second = a["measured_samples_per_second"], b["measured_samples_per_second"]
            if a["workload"] == b["workload"] and max(first, second) > 1.03 * min(first, second):
                pairs += 1
                score += 1 if (first > second) == (a["predicted_samples_per_second"] > b["predicted_samples_per_second"]) else -1
    return (score / pairs if pairs else 1.0), pairs


def table_of(points):
    lines = []
    columns = ("step_time_error", "profile_step_time_error", "alone_step_time_error", "mechanics_step_time_error",
               "free_transfers_step_time_error", "bubble_formula_step_time_error", "slowest_stage_step_time_error")
    quiet = [p for p in points if p["measured_spread_ns"] <= QUIET * p["measured_step_ns"]]
    spreads = [p["measured_spread_ns"] / p["measured_step_ns"] for p in points]
    lines.append(f"steps of a run spread (p90 - p10) by {100 * statistics.median(spreads):.1f} % in the median of the points")
    for what, some in (("all", points), ("held out", [p for p in points if p["held_out"]]),
                       (f"quiet, steps spread by {100 * QUIET:.0f} % at most", quiet),
                       ("quiet and held out", [p for p in quiet if p["held_out"]])):
        if not some:
            continue
        tau, pairs = tau_of(some)
        lines.append(f"{what}: {len(some)} points; Kendall's tau {tau:.3f} of {pairs} pairs more than 3 % apart")
        for key in columns:
            errors = [p[key] for p in some if p.get(key) is not None]
            if not errors:
                continue
            sizes = sorted(abs(e) for e in errors)
            lines.append(f"  {key:<34} median {100 * statistics.median(sizes):6.2f} %   p95 "
                         f"{100 * sizes[(len(sizes) * 95 + 99) // 100 - 1]:6.2f} %   bias {100 * statistics.mean(errors):+6.2f} %")
    lines.append("\nthe ten worst, calibrated:")
    for p in sorted(points, key=lambda p: -abs(p["step_time_error"]))[:10]:
        parts = p["error_parts"]
        lines.append(f"  {100 * p['step_time_error']:+6.2f} %  {p['workload']} {p['name']}: step {p['measured_step_ns'] / 1e6:.1f} ms, "
                     + ", ".join(f"{k[:-3]} {100 * v / p['measured_step_ns']:+.2f} %" for k, v in parts.items() if v is not None)
                     + (f", largest {p['largest']['op']} of stage {p['largest']['stage']}" if p["largest"] else ""))
    return "\n".join(lines) + "\n"


def main():
    program, out = os.path.abspath(sys.argv[1]), sys.argv[2]
    count = int(sys.argv[3]) if len(sys.argv) > 3 and sys.argv[3].isdigit() else 240
    link = "--link" in sys.argv
    os.makedirs(out, exist_ok=True)
    dice = random.Random(18)
    wanted = {workload: [] for workload in WORKLOADS}
    for k in range(count):
        workload = SHARES[k % len(SHARES)]
        pipeline = draw(dice, workload)
        if link and (workload == "gpt" or "replicas" in pipeline):  # sums of gradients are not emulated over a link
            continue
        if pipeline not in wanted[workload]:
            wanted[workload].append(pipeline)
    done = {}
    for workload in WORKLOADS:
        path = os.path.join(out, workload + ".json")
        done[workload] = json.load(open(path))["points"] if os.path.exists(path) else []
    with tempfile.TemporaryDirectory() as folder:
        profiles = {}
        for workload in WORKLOADS:
            known = [p["pipeline"] for p in done[workload]]
            if all(pipeline in known for pipeline in wanted[workload]):
                continue
            profiles[workload] = os.path.join(folder, workload + ".yaml")
            sizes = SIZES[workload]
            some = {"schedule": "1f1b", "micro_batches": 2, "micro_batch_size": sizes[0]}
            call(program, "profile", config_of(workload, some, link), folder, "-o", profiles[workload], "--sizes",
                 ",".join(map(str, sizes)))
        for turn in range(max(map(len, wanted.values()))):
            for workload, pipelines in wanted.items():
                if turn >= len(pipelines) or any(p["pipeline"] == pipelines[turn] for p in done[workload]):
                    continue
                try:
                    point = point_of(program, workload, pipelines[turn], link, profiles[workload], folder)
                except RuntimeError as error:
                    print(f"left out: {workload} {pipelines[turn]}: {error}", file=sys.stderr, flush=True)
                    continue
                done[workload].append(point)
                print(f"{workload} {point['name']}: {100 * point['step_time_error']:+.2f} %", file=sys.stderr, flush=True)
                write_records(os.path.join(out, workload + ".json"), {"points": done[workload]})
    points = [p for of in done.values() for p in of]
    with open(os.path.join(out, "table.txt"), "w") as file:
        file.write(table_of(points))
    print(table_of(points))


if __name__ == "__main__":
    main()
