#!/usr/bin/env python3
"""A plan on two hosts over real TCP, predicted and measured: the hosts are network namespaces of this machine, each with a
name, an address and a core of its own, and the way between them has a rate (tbf). The link is measured between the ranks (`profile`),
predicted, run, compared; and what the run learns is compared with one process. As root.

    bench/two_hosts.py PIPEWRIGHT FOLDER        writes FOLDER/two_hosts.json and prints a table
"""
import json
import os
import subprocess
import sys
import tempfile

MODEL = {"workload": {"model": "resnet50", "image_size": 64, "classes": 10}, "cluster": {"devices": 2},
         "training": {"steps": 12, "learning_rate": 0.001}, "run": {"backend": "cpu", "transport": "mpi"}}
PLANS = [(schedule, micro_batches, rate) for rate in ("200mbit", "1gbit") for schedule, micro_batches in
         (("naive", 4), ("gpipe", 4), ("1f1b", 8), ("zb-h1", 8))]
HOSTS = {"east": "10.77.0.1", "west": "10.77.0.2"}
CORES = {"east": 0, "west": 1}


def sh(command, check=True):
    done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stderr.strip()}")
    return done


def set_up(folder):
    take_down()
    sh("ip link add east type veth peer name west")
    for host, address in HOSTS.items():
        sh(f"ip netns add {host}; ip link set {host} netns {host}; ip netns exec {host} ip addr add {address}/24 dev {host}; "
           f"ip netns exec {host} ip link set {host} up; ip netns exec {host} ip link set lo up")
    agent = os.path.join(folder, "agent")
    with open(agent, "w") as file:  # as ssh: HOST COMMAND
        file.write("#!/bin/sh\n" + "".join(f"[ \"$1\" = {a} ] && host={h} core={CORES[h]}\n" for h, a in HOSTS.items()) +
                   "shift\nexec taskset -c $core ip netns exec $host unshare -u sh -c \"hostname $host; $*\"\n")
    os.chmod(agent, 0o755)
    return agent


def take_down():
    for host in HOSTS:
        sh(f"ip netns del {host}", check=False)
    sh("ip link del east", check=False)


def limit(rate):
    for host in HOSTS:
        sh(f"ip netns exec {host} tc qdisc replace dev {host} root tbf rate {rate} burst 64kb latency 400ms")


def main():
    program, out = os.path.abspath(sys.argv[1]), sys.argv[2]
    os.makedirs(out, exist_ok=True)
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    points = []
    with tempfile.TemporaryDirectory() as folder:
        config, profile = os.path.join(folder, "config.yaml"), os.path.join(folder, "profile.yaml")
        predicted, measured = os.path.join(folder, "predicted.json"), os.path.join(folder, "measured.json")
        agent = set_up(folder)
        launch = (f"taskset -c {CORES['east']} ip netns exec east unshare -u sh -c 'hostname east; exec mpirun --mca plm_rsh_agent {agent} "
                  f"--mca btl tcp,self --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 "
                  f"--host {','.join(HOSTS.values())} --bind-to none -n 2 {program} ")
        try:
            for schedule, micro_batches, rate in PLANS:
                pipeline = {"schedule": schedule, "micro_batches": micro_batches, "micro_batch_size": 2}
                with open(config, "w") as file:
                    json.dump(dict(MODEL, pipeline=pipeline), file)
                limit(rate)
                sh(launch + f"profile {config} -o {profile}'")
                simulated = json.loads(sh(f"{program} simulate {config} --set cluster.profile={profile} --trace {predicted} "
                                          "--json").stdout)
                free = json.loads(sh(f"{program} simulate {config} --set cluster.profile={profile} --json --set "
                                     "'cluster.link={latency: 0 ns, bandwidth: inf}'").stdout)
                done = sh(launch + f"run {config} --trace {measured} --json'")
                run = json.loads(done.stdout)
                alone = json.loads(sh(f"{program} run {config} --set run.transport=threads --json").stdout)
                compared = json.loads(sh(f"{program} compare {predicted} {measured} --json").stdout)
                link = next(line for line in open(profile) if line.strip().startswith("link:")).strip()
                point = {"schedule": schedule, "micro_batches": micro_batches, "rate": rate, "link": link,
                         "predicted_step_ns": simulated["step_time_ns"], "measured_step_ns": run["step_time_ns"],
                         "measured_spread_ns": run["step_time_spread_ns"],
                         "step_time_error": simulated["step_time_ns"] / run["step_time_ns"] - 1,
                         "free_step_time_error": free["step_time_ns"] / run["step_time_ns"] - 1,
                         "mechanics_error": compared.get("mechanics_error"), "error_parts": compared.get("error_parts"),
                         "same_weights": run["weights_hash"] == alone["weights_hash"],
                         "note": next((line for line in done.stderr.splitlines() if "ranks on" in line), "")}
                points.append(point)
                print(f"{rate:>8} {schedule:>6} m={micro_batches}: predicted {point['predicted_step_ns'] / 1e6:7.1f} ms, measured "
                      f"{point['measured_step_ns'] / 1e6:7.1f} ms (spread {point['measured_spread_ns'] / 1e6:.1f}), error "
                      f"{100 * point['step_time_error']:+.2f} %, with free messages {100 * point['free_step_time_error']:+.1f} %, "
                      f"mechanics {point['mechanics_error'] if point['mechanics_error'] is None else format(100 * point['mechanics_error'], '+.2f')}"
                      f" %, weights {'the same' if point['same_weights'] else 'OTHERS'}", flush=True)
        finally:
            take_down()
    with open(os.path.join(out, "two_hosts.json"), "w") as file:
        json.dump({"points": points}, file, indent=1)


if __name__ == "__main__":
    main()
