#!/usr/bin/env python3
"""Kills every rank at every step, before every kind of task, and before every call by which a checkpoint is written or removed,
with the launcher's own clean-up on and off; then resumes, on the same and on another number of devices, and compares the weights
with those of an undisturbed run. Some folders are not empty: they have checkpoints of the killed run, without --resume and with it,
or of another training. Losses are ranks that do not end, weights that differ, and changed files of another run: their number is
printed.

    tests/ranks/kill_everywhere.py FOLDER_OF_PROGRAMS [EVERY]      one kill of EVERY, by default all

FOLDER_OF_PROGRAMS is build/ndebug/bin: pipewright and under_fire, and, if they are there, pipewright_mpich and under_fire_mpich.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

BASE = {"workload": {"model": "mlp", "hidden": [32, 32, 32]}, "cluster": {"devices": 4},
        "training": {"steps": 4}, "run": {"timeout": "20 s"}}
PLANS = {
    "1f1b": {"schedule": "1f1b", "micro_batches": 4, "micro_batch_size": 2},
    "zb-h1": {"schedule": "zb-h1", "micro_batches": 4, "micro_batch_size": 2},
    "replicas": {"schedule": "1f1b", "micro_batches": 4, "micro_batch_size": 2, "stages": 2, "replicas": [2, 2]},
}
OPS = {"1f1b": ["F", "B", "U", "SEND_F", "RECV_F", "SEND_B", "RECV_B"], "zb-h1": ["I", "W"], "replicas": ["S", "U"]}
CALLS = ["write", "fsync", "rename"]
REMOVALS = ["unlink", "rmdir", "rename", "write"]  # of a resumed run that keeps one checkpoint
TIMEOUT_S = 20
OTHERS = {"1f1b": ["cluster.devices=2"], "zb-h1": ["cluster.devices=2"], "replicas": []}  # the holders of a stage determine the groups of its sums
LOSSES = ["did not end", "other weights", "not refused", "changed what is another's", "left drafts"]


def contents(folder):
    """All files of a folder except those of a process that is writing."""
    found = {}
    for place, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(place, name)
            if ".pipewright-" not in path and name != "pipewright.lock":
                with open(path, "rb") as file:
                    found[os.path.relpath(path, folder)] = file.read()
    return found


def has_checkpoint(folder):
    return os.path.isdir(folder) and any(name.startswith("step-") and os.path.exists(os.path.join(folder, name, "complete"))
                                         for name in os.listdir(folder))


class Kills:
    def __init__(self, programs, folder, every):
        self.programs, self.every = programs, every
        self.path, self.kept, self.used, self.other = (os.path.join(folder, name) for name in ("config.yaml", "kept", "used", "other"))
        self.counts = {"kills": 0, "that struck nothing": 0, "resumed": 0, "began anew": 0, "refused": 0,
                       **{loss: 0 for loss in LOSSES}}
        self.slowest = 0.0
        self.number = 0

    def losses(self):
        return sum(self.counts[loss] for loss in LOSSES)

    def lose(self, what, text):
        self.counts[what] += 1
        print(f"{what}: {self.case} {text}", flush=True)

    def start(self, *arguments):
        return subprocess.run([os.path.join(self.programs, "pipewright"), "run", self.path, "--json", *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *arguments):
        done = self.start(*arguments)
        return json.loads(done.stdout)["weights_hash"] if done.returncode == 0 else done.stderr

    def begin(self, name, plan):
        with open(self.path, "w") as file:
            json.dump(dict(BASE, pipeline=plan), file)
        self.name, self.whole = name, self.run()
        for folder, more in ((self.used, ["--steps", "2"]), (self.other, ["--steps", "3", "--set", "training.seed=2"])):
            shutil.rmtree(folder, ignore_errors=True)
            self.run("--checkpoint", folder, "--checkpoint-every", "1", "--keep", "9", *more)

    def expect_refusal(self, *arguments):
        """A run into a folder with entries that are not its own ends before it trains and changes nothing."""
        before = contents(self.kept)
        done = self.start("--checkpoint", self.kept, "--checkpoint-every", "1", *arguments)
        self.counts["refused"] += 1
        if done.returncode != 2:
            self.lose("not refused", f"{arguments}: exit {done.returncode}, {done.stderr}")
        if contents(self.kept) != before:
            self.lose("changed what is another's", f"{arguments}: {sorted(before)}, now {sorted(contents(self.kept))}")

    def next_to_another_training(self):
        """Its checkpoints are untouched, whether the killed run is resumed or not."""
        own = [name for name in os.listdir(self.kept) if name.startswith("step-")]
        alien = "step-00000001" if "step-00000001" not in own else "step-00000003"
        if alien in own:
            shutil.rmtree(os.path.join(self.kept, alien))
        shutil.copytree(os.path.join(self.other, alien), os.path.join(self.kept, alien))
        self.expect_refusal()
        for latest in sorted(name for name in os.listdir(self.kept) if name.startswith("step-"))[-1:]:
            self.expect_refusal("--resume", os.path.join(self.kept, latest), "--steps", "9")
        shutil.rmtree(os.path.join(self.kept, alien))

    def go_on(self):
        resumable = has_checkpoint(self.kept)
        self.counts["resumed" if resumable else "began anew"] += 1
        results = {}
        if resumable:
            self.expect_refusal()
            for other in OTHERS[self.name]:
                again = self.run("--resume", self.kept, "--set", other)
                results[other] = self.whole if "has done 4 steps" in again else again
        arguments = ["--checkpoint", self.kept, "--checkpoint-every", "1"] + (["--resume", self.kept] if resumable else [])
        resumed = self.run(*arguments)
        results[""] = self.whole if resumable and "has done 4 steps" in resumed else resumed  # it was killed after its last checkpoint
        for what, weights in results.items():
            if weights != self.whole:
                self.lose("other weights", f"{what}: {weights}")
        if resumed == self.whole:
            drafts = [name for name in os.listdir(self.kept) if not name.startswith("step-")]
            if drafts:
                self.lose("left drafts", drafts)
            if not os.path.exists(os.path.join(self.kept, "step-00000004", "complete")):
                self.lose("other weights", f"no checkpoint of its own in {os.listdir(self.kept)}")
        if has_checkpoint(self.kept):
            self.next_to_another_training()

    def kill(self, launcher, program, options, rank, step, op, is_used):
        self.number += 1
        if self.number % self.every:
            return
        self.case = f"{self.name} {launcher} {options} rank {rank} step {step} {op}{' in a used folder' if is_used else ''}"
        shutil.rmtree(self.kept, ignore_errors=True)
        if is_used:
            shutil.copytree(self.used, self.kept)
        begun = time.monotonic()
        try:
            done = subprocess.run([launcher, *options, "-n", "4", os.path.join(self.programs, program), self.path, str(rank), str(step),
                                   op, "9", self.kept, *(["1", "resume"] if is_used else [])], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S + 5)
        except subprocess.TimeoutExpired:
            self.lose("did not end", "")
            subprocess.run(["pkill", "-9", "under_fire"])
            return
        if self.whole in done.stdout:  # no device of the rank has such a task
            self.counts["that struck nothing"] += 1
            return
        self.counts["kills"] += 1
        self.slowest = max(self.slowest, time.monotonic() - begun)
        if is_used and not has_checkpoint(self.kept):
            self.lose("changed what is another's", "no checkpoint is left")
        self.go_on()


def main():
    programs = os.path.abspath(sys.argv[1])
    every = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")
    launchers = [("mpirun.openmpi", "under_fire", [], ["--enable-recovery"])]
    if os.path.exists(os.path.join(programs, "under_fire_mpich")):
        launchers.append(("mpirun.mpich", "under_fire_mpich", [], ["-disable-auto-cleanup"]))
    with tempfile.TemporaryDirectory() as folder:
        kills = Kills(programs, folder, every)
        for name, plan in PLANS.items():
            kills.begin(name, plan)
            points = [(rank, step, op, False) for op in OPS[name] for rank in range(4) for step in range(4)]
            if name == "1f1b":
                points += [(0, call, op, False) for op in CALLS for call in range(0, 24)]
                points += [(0, call, op, True) for op in REMOVALS for call in range(0, 12)]
            for launcher, program, *clean_ups in launchers:
                for options in clean_ups:
                    for point in points:
                        kills.kill(launcher, program, options, *point)
    print(", ".join(f"{what}: {count}" for what, count in kills.counts.items()))
    print(f"the slowest ended {kills.slowest:.1f} s after it was started; losses: {kills.losses()}")
    sys.exit(1 if kills.losses() else 0)


if __name__ == "__main__":
    main()
