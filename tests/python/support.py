"""What the tests of the Python module share: configs, and the program that they compare with."""
import json
import os
import signal
import subprocess

import pipewright as pw

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if a shell started the tests in the background

PROGRAM = os.environ.get("PIPEWRIGHT_PROGRAM") or os.path.join(os.path.dirname(pw.__file__), "bin", "pipewright")
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

UNIFORM = {
    "workload": {"model": "uniform", "stages": 4, "forward": "3 us", "backward_input": "2 us", "backward_weight": "2 us",
                 "output": "10 MB"},
    "cluster": {"devices": 4, "memory": "64 MB", "link": {"bandwidth": "10 GB/s", "latency": "1 us"}},
    "pipeline": {"schedule": "1f1b", "micro_batches": 8},
}
RESNET = {
    "workload": {"model": "resnet50", "image_size": 64, "classes": 10},
    "cluster": {"devices": 2, "link": {"bandwidth": "10 GB/s"}},
    "pipeline": {"schedule": "zb-h1", "micro_batches": 4, "micro_batch_size": 2},
}
TRAINED = {
    "workload": {"model": "mlp", "image_size": 4, "hidden": [8, 8], "classes": 3},
    "cluster": {"devices": 2},
    "pipeline": {"schedule": "1f1b", "stages": 2, "micro_batches": 4, "micro_batch_size": 2},
    "training": {"steps": 3},
    "run": {"backend": "reference"},
}


def said(*arguments, config=None, code=0):
    """What the program prints on stdout; a config is given on stdin, as JSON."""
    done = subprocess.run([PROGRAM, *arguments], input=None if config is None else json.dumps(config),
                          capture_output=True, text=True)
    if done.returncode != code:
        raise AssertionError(f"{arguments}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def printed_json(command, config, *arguments):
    """The object that a command prints with --json."""
    return json.loads(said(command, "-", "--json", *arguments, config=config))
