#!/usr/bin/env python3
"""Plans on two hosts over real TCP, predicted and measured: the hosts are network namespaces of this machine, each with a
name, an address and a core of its own, and the way between them (bench/relay.cpp) has a rate and a delay. The link is measured
between the ranks (`profile`), plans are predicted, run and compared, and their weights are compared with one process. As root.

    bench/two_hosts.py FOLDER_OF_PROGRAMS FOLDER

FOLDER_OF_PROGRAMS has pipewright, pipewright_mpich and bench_relay. Writes FOLDER/two_hosts.json and .txt, a line per run. Called
again it repeats the measurements that had less than 90 % of their cores because other programs ran.
"""
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile

from records import write_records

MODEL = {"workload": {"model": "resnet50", "image_size": 64, "classes": 10}, "cluster": {"devices": 2, "devices_per_host": 1},
         "training": {"steps": 12, "learning_rate": 0.001}, "run": {"backend": "cpu", "transport": "mpi"}}
PLANS = [("naive", 4), ("gpipe", 4), ("1f1b", 8), ("zb-h1", 8)]
HOSTS = {"east": "10.77.0.1", "west": "10.77.0.2"}
CORES = {"east": 0, "west": 1}
ADDRESSES = ",".join(HOSTS.values())

# Program, start over TCP, and what makes it send messages of every size at once. As it comes it asks the receiver first
# from 64 KiB (Open MPI) or less on, which takes further ways there and back.
LAUNCHERS = {
    "Open MPI": ("pipewright", f"mpirun.openmpi --mca plm_rsh_agent AGENT --mca btl tcp,self --mca btl_tcp_if_include wire "
                               f"--mca oob_tcp_if_include wire --bind-to none --host {ADDRESSES}",
                 "--mca btl_tcp_eager_limit 8388608 --mca btl_tcp_max_send_size 8388608"),
    "MPICH": ("pipewright_mpich", f"mpiexec.mpich -launcher rsh -launcher-exec AGENT -iface wire -genv UCX_TLS tcp,self "
                                  f"-genv UCX_NET_DEVICES wire -hosts {ADDRESSES}",
              "-genv UCX_RNDV_THRESH inf"),
}
LINKS = [(rate, delay) for rate in (200, 1000) for delay in (0, 2, 10)]  # Mbit/s, ms each way
SERIES = [("Open MPI", "at once", LINKS, PLANS),
          ("MPICH", "at once", LINKS, [("naive", 4), ("1f1b", 8)]),
          ("Open MPI", "as it comes", [(1000, 2), (1000, 10)], [("1f1b", 8)]),
          ("MPICH", "as it comes", [(1000, 2), (1000, 10)], [("1f1b", 8)])]


def sh(command, check=True):
    done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    if check and done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stderr.strip()}")
    return done


def percent_of_cores(done):
    """The devices' share of their cores while other programs ran, from the program's warning."""
    warned = re.search(r"the devices got (\d+) % of their cores", done.stderr)
    return int(warned[1]) if warned else 100


@contextlib.contextmanager
def two_hosts(relay, rate, delay):
    # Before other threads of its core, as an interrupt is.
    command = ["chrt", "--fifo", "1", relay, str(rate), str(1000 * delay)] + [str(word) for host in HOSTS for word in (host, CORES[host])]
    way = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        if way.stdout.readline() != "ready\n":
            raise RuntimeError("the relay does not start")
        for host, address in HOSTS.items():
            sh(f"ip netns add {host}; ip link set {host} netns {host} name wire; ip -n {host} addr add {address}/24 dev wire; "
               f"ip -n {host} link set wire up; ip -n {host} link set lo up; "
               f"ip netns exec {host} sysctl -q net.ipv4.tcp_congestion_control=reno")
        yield
    finally:
        way.kill()
        way.wait()
        for host in HOSTS:
            sh(f"ip netns del {host}", check=False)


def write_agent(path):  # as ssh: HOST COMMAND
    with open(path, "w") as file:
        file.write("#!/bin/sh\n" + "".join(f"[ \"$1\" = {a} ] && host={h} core={CORES[h]}\n" for h, a in HOSTS.items()) +
                   "shift\nexec taskset -c $core ip netns exec $host unshare -u sh -c \"hostname $host; $*\"\n")
    os.chmod(path, 0o755)


def write_config(schedule, micro_batches):
    pipeline = {"schedule": schedule, "micro_batches": micro_batches, "micro_batch_size": 2}
    with open("config.yaml", "w") as file:
        json.dump(dict(MODEL, pipeline=pipeline), file)


def answer(command):
    return json.loads(sh(f"{command} --json").stdout)


def measured(pipewright, launch):
    """The plan of config.yaml, run on the ranks that `launch` starts and predicted with profile.yaml."""
    simulated = answer(f"{pipewright} simulate config.yaml --set cluster.profile=profile.yaml --trace predicted.json")
    free = answer(f"{pipewright} simulate config.yaml --set cluster.profile=profile.yaml --set "
                  "'cluster.link={latency: 0 ns, bandwidth: inf}'")
    done = sh(launch.replace("ARGUMENTS", "run config.yaml --trace measured.json --json"))
    run = json.loads(done.stdout)
    step = run["step_time_ns"]
    parts = answer(f"{pipewright} compare predicted.json measured.json")["error_parts"]
    messages = sum(task["ns"] for task in parts["by_task"] if task["op"].startswith("SEND"))  # a part of the costs
    return {"predicted_step_ns": simulated["step_time_ns"], "measured_step_ns": step,
            "measured_spread_ns": run["step_time_spread_ns"], "step_time_error": simulated["step_time_ns"] / step - 1,
            "free_step_time_error": free["step_time_ns"] / step - 1, "mechanics": parts["mechanics_ns"] / step,
            "jitter": parts["jitter_ns"] / step, "costs": parts["costs_ns"] / step, "messages": messages / step,
            "error_parts": parts, "weights_hash": run["weights_hash"], "percent_of_cores": percent_of_cores(done),
            "note": next((line for line in done.stderr.splitlines() if "ranks on" in line), "")}


def line_of(point):
    def percent(name, digits=1):
        return f"{100 * point[name]:+.{digits}f} %"

    return (f"{point['mpi']:>8} {point['sends']:>11} {point['rate_mbit']:4} Mbit/s {point['delay_ms']:2} ms {point['schedule']:>5} "
            f"m={point['micro_batches']}: predicted {point['predicted_step_ns'] / 1e6:6.1f} ms, measured "
            f"{point['measured_step_ns'] / 1e6:6.1f} ms (spread {point['measured_spread_ns'] / 1e6:.1f}), error {percent('step_time_error')}, "
            f"with free messages {percent('free_step_time_error')}; mechanics {percent('mechanics', 2)}, jitter {percent('jitter')}, costs "
            f"{percent('costs')}, of which messages {percent('messages')}; weights {'the same' if point['same_weights'] else 'OTHERS'}; "
            f"{point['percent_of_cores']} % of the cores")


def measure_all(programs, points, store):
    """Fills `points`, by series, link and plan."""
    pipewright, relay = os.path.join(programs, "pipewright"), os.path.join(programs, "bench_relay")
    weights = {}
    for plan in PLANS:
        write_config(*plan)
        weights[plan] = answer(f"{pipewright} run config.yaml --set run.transport=threads")["weights_hash"]
    for mpi, sends, links, plans in SERIES:
        program, start, at_once = LAUNCHERS[mpi]
        start = start.replace("AGENT", os.path.abspath("agent")) + (" " + at_once if sends == "at once" else "")
        launch = (f"timeout 120 taskset -c {CORES['east']} ip netns exec east unshare -u sh -c 'hostname east; "
                  f"exec {start} -n 2 {os.path.join(programs, program)} ARGUMENTS'")
        for rate, delay in links:
            keys = {plan: f"{mpi}, {sends}, {rate} Mbit/s, {delay} ms, {plan[0]} m={plan[1]}" for plan in plans}
            missing = [plan for plan in plans if points.get(keys[plan], {"percent_of_cores": 0})["percent_of_cores"] < 90]
            if not missing:
                continue
            with two_hosts(relay, rate, delay):
                profiled = sh(launch.replace("ARGUMENTS", "profile config.yaml -o profile.yaml"))
                link = next(line for line in open("profile.yaml") if line.strip().startswith("between:")).strip()
                print(f"{mpi}, {sends}, {rate} Mbit/s, {delay} ms: {link}", flush=True)
                for plan in missing:
                    write_config(*plan)
                    try:
                        point = {"mpi": mpi, "sends": sends, "rate_mbit": rate, "delay_ms": delay, "schedule": plan[0],
                                 "micro_batches": plan[1], "link": link, **measured(pipewright, launch)}
                    except RuntimeError as error:  # for the next call
                        print(f"{keys[plan]}: {error}", flush=True)
                        continue
                    point["same_weights"] = point.pop("weights_hash") == weights[plan]
                    point["percent_of_cores"] = min(point["percent_of_cores"], percent_of_cores(profiled))
                    print(line_of(point), flush=True)
                    if point["percent_of_cores"] >= points.get(keys[plan], point)["percent_of_cores"]:
                        points[keys[plan]] = point
            store(points)


def main():
    programs, out = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    os.makedirs(out, exist_ok=True)
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    kept = os.path.join(out, "two_hosts.json")
    points = json.load(open(kept)) if os.path.exists(kept) else {}

    def store(points):
        write_records(kept, points)
        with open(os.path.join(out, "two_hosts.txt"), "w") as table:
            table.writelines(line_of(point) + "\n" for point in points.values())

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_agent("agent")
        measure_all(programs, points, store)


if __name__ == "__main__":
    main()
