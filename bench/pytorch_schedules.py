#!/usr/bin/env python3
"""Runs pipewright's plans in PyTorch and PyTorch's schedules in pipewright, through schedule files.

    bench/pytorch_schedules.py PIPEWRIGHT [--processes 2,4] [--out DIR]

To PyTorch: every schedule is exported, loaded by _PipelineScheduleRuntime and run for one step on gloo, one process per
device, on 127.0.0.1; the gradients are compared with those of the same model in one piece, all in float64.
From PyTorch: its schedules, dumped as compute_only and compute_comms, are validated, simulated and run by backend
reference; losses and weights must equal those of `run --reference`.

Control: two schedules whose transfers are ordered for lanes that PyTorch does not have; their gradients may be wrong.

Prints one table, with --out also DIR/table.txt and DIR/runs.json. Exit status 77 without such a PyTorch, 1 when anything
fails that is not known to (REFUSED).
"""
import argparse
import csv
import json
import multiprocessing
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from records import write_records

try:
    import torch
    import torch.distributed as dist
    import torch.distributed.pipelining.schedules as pytorch
    from torch.distributed.pipelining import PipelineStage
    from torch.nn.functional import mse_loss
except ImportError as error:
    print(f"skipped: {error}", file=sys.stderr)
    sys.exit(77)

if not hasattr(pytorch._ComputationType, "WAIT_SEND_F"):
    print(f"skipped: PyTorch {torch.__version__} has no WAIT_SEND_F", file=sys.stderr)
    sys.exit(77)

TOLERANCE = 1e-12
WIDTH, SAMPLES = 8, 3  # of every layer; of a micro-batch
PATIENCE = 60          # seconds
REFUSED = {
    ("to", "forward-only"),  # PyTorch requires a backward pass of every micro-batch
}
# Left out: PyTorch's runtime has one copy of a stage, and no slices of sequences.
NOT_IN_PYTORCH = {"chimera", "dualpipe", "auto-bidirectional", "seq1f1b"}
EXPORTS = {"csv": ("compute_only", []), "csv-comms": ("compute_comms", []),
           "csv-comms, deferred": ("compute_comms", ["--set", "transfer.receive=deferred"])}
CONTROLS = {"csv-comms, edge": ("compute_comms", ["--set", "transfer.communicator=edge"])}
# stages on a rank; two: the second is the next round's, or that of a V
DUMPS = {"GPipe": 1, "1F1B": 1, "Interleaved1F1B": 2, "LoopedBFS": 2, "InterleavedZeroBubble": 2, "ZBVZeroBubble": 2,
         "DualPipeV": 2}
UNIFORM = "workload: {{model: uniform}}\ncluster: {{devices: {p}}}\ntraining: {{steps: 1}}\npipeline: {{micro_batches: {m}}}\n"
TINY = """\
workload: {model: gpt, sequence_length: 8, vocabulary: 16, embedding: 16, heads: 2, blocks: 8}
pipeline: {schedule: plan.csv}
training: {steps: 2}
run: {backend: reference}
"""


def pipewright(*arguments):
    run = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True)
    if run.returncode < 0:
        raise RuntimeError(f"{arguments[0]} ends by signal {-run.returncode}")
    if run.returncode > 0:
        lines = run.stderr.strip().splitlines()
        raise RuntimeError(next((line for line in lines if not line.startswith("note: ")), "").removeprefix("error: "))
    return run.stdout


def in_children(function, count, *arguments):
    """function(rank, *arguments) in `count` forked processes; what rank 0 to count - 1 return, or the first error."""
    context = multiprocessing.get_context("fork")
    answers = context.Queue()

    def child(rank):
        try:
            answers.put((rank, function(rank, *arguments), None))
        except Exception as error:  # the parent prints it
            answers.put((rank, None, str(error).strip().splitlines()[0] if str(error).strip() else repr(error)))
            answers.close()
            answers.join_thread()
            os._exit(1)  # a peer may never answer again

    children = [context.Process(target=child, args=(rank,)) for rank in range(count)]
    for process in children:
        process.start()
    found, end = {}, time.monotonic() + PATIENCE
    try:
        while len(found) < count:
            rank, value, error = answers.get(timeout=max(0.1, end - time.monotonic()))
            if error is not None:
                raise RuntimeError(error)
            found[rank] = value
    except multiprocessing.queues.Empty:
        raise RuntimeError(f"hangs: no answer in {PATIENCE} s") from None
    finally:
        for process in children:
            process.join(0.0 if len(found) < count else 5.0)
            if process.is_alive():
                process.kill()
                process.join()
    return [found[rank] for rank in range(count)]


def stages_of(text):
    """stage -> rank"""
    ranks = {}
    for rank, row in enumerate(csv.reader(text.splitlines())):
        for cell in row:
            for part in cell.split(")")[0].lstrip("(").split(";"):
                if "F" in part and part.replace("F", "", 1).isdigit():
                    ranks[int(part.split("F")[0])] = rank
    return ranks


def make_layers(count):
    torch.manual_seed(1)
    layers = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(count)]
    return [layer.double() for layer in layers]


def boundary(differentiable=True):
    """The shapes of the tensors between stages, for PyTorch."""
    return torch.empty(SAMPLES, WIDTH, dtype=torch.float64, requires_grad=differentiable)


def train(rank, path, dialect, ranks, p, m, store):
    """One step of the stages of `rank`: whether the file was loaded, and the largest difference of a gradient."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    layers, whole = make_layers(len(ranks)), make_layers(len(ranks))
    x, y = torch.rand(m * SAMPLES, WIDTH).double(), torch.rand(m * SAMPLES, WIDTH).double()
    mse_loss(torch.nn.Sequential(*whole)(x), y).backward()
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=p)
    mine = sorted(stage for stage, holder in ranks.items() if holder == rank)
    stages = [PipelineStage(layers[s], s, len(ranks), torch.device("cpu"), input_args=boundary(s > 0), output_args=boundary())
              for s in mine]
    schedule = pytorch._PipelineScheduleRuntime(stages, m, loss_fn=mse_loss)
    try:
        schedule._load_csv(path, dialect)
    except Exception as error:
        return str(error).splitlines()[0], None
    schedule.step(*([x] if 0 in mine else []), **({"target": y} if len(ranks) - 1 in mine else {}))
    pairs = [(own.grad, expected.grad) for s in mine
             for own, expected in zip(layers[s].parameters(), whole[s].parameters())]
    dist.barrier()
    dist.destroy_process_group()
    return None, max(((own - expected).abs() / expected.abs().max()).max().item() for own, expected in pairs)


def to_pytorch(direction, schedule, form, p, folder):
    """A row: an exported plan, loaded and run there."""
    m, (dialect, more) = 2 * p, (EXPORTS | CONTROLS)[form]
    config, path = folder / "uniform.yaml", folder / "plan.csv"
    config.write_text(UNIFORM.format(p=p, m=m))
    pipewright("plan", config, "--format", form.split(",")[0], "--set", f"pipeline.schedule={schedule}", *more, "-o", path)
    ranks = stages_of(path.read_text())
    row = {"direction": direction, "schedule": schedule, "format": form, "processes": p, "stages": len(ranks), "micro_batches": m}
    store = folder / "store"
    store.unlink(missing_ok=True)
    try:
        answers = in_children(train, p, path, dialect, ranks, p, m, store)
        refused = next((why for why, _ in answers if why), None)
        if refused:
            return row | {"loaded": False, "ran": False, "why": refused}
        return row | {"loaded": True, "ran": True, "error": max(error for _, error in answers)}
    except RuntimeError as error:
        return row | {"loaded": True, "ran": False, "why": str(error)}


def dump(_, name, p, m, folder):
    """Writes the schedule in both formats: {format: path}."""
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", rank=0, world_size=p, store=FakeStore())
    count = p * DUMPS[name]
    second = [] if DUMPS[name] == 1 else [count - 1 if name in ("ZBVZeroBubble", "DualPipeV") else p]
    stages = [PipelineStage(torch.nn.Linear(WIDTH, WIDTH), s, count, torch.device("cpu")) for s in [0, *second]]
    kind = pytorch.get_schedule_class(name)
    schedule = kind(stages if second else stages[0], m, loss_fn=mse_loss)
    files = {form: folder / f"{form}.csv" for form in ("compute_only", "compute_comms")}
    if second:
        for form, path in files.items():
            schedule._dump_csv(path, format=form)
        return files
    # a single-stage schedule runs without a list; it has one for display, with the reductions
    order = schedule._get_pipeline_order()
    with open(files["compute_only"], "w", newline="") as file:
        csv.writer(file).writerows(order[rank] for rank in range(p))
    return {"compute_only": files["compute_only"]}


def from_pytorch(name, p, folder):
    """Rows: a schedule of PyTorch, validated, simulated and run here."""
    m = 2 * p
    (files,) = in_children(dump, 1, name, p, m, folder)
    for form, path in files.items():
        config = folder / "tiny.yaml"
        config.write_text(TINY)
        path.rename(folder / "plan.csv")
        row = {"direction": "from", "schedule": name, "format": form, "processes": p, "stages": p * DUMPS[name],
               "micro_batches": m}
        try:
            pipewright("validate", folder / "plan.csv")
            row["loaded"] = True
            row["step_time_ns"] = json.loads(pipewright("simulate", config, "--json"))["step_time_ns"]
            runs = [json.loads(pipewright("run", config, "--json", *more)) for more in ([], ["--reference"])]
            equal = all(runs[0][key] == runs[1][key] for key in ("losses", "weights_hash"))
            yield row | {"ran": True, "equal": equal}
        except RuntimeError as error:
            yield {"loaded": False} | row | {"ran": False, "why": str(error)}


def is_good(row):
    which = row["direction"], row["schedule"]
    if which in REFUSED:
        return not row["loaded"]
    if row["direction"] == "control":
        return row["loaded"]
    return row["ran"] and row.get("equal", row.get("error", 1) < TOLERANCE)


def line_of(row):
    result = row.get("why", "")
    if row["ran"]:
        result = f"{row['error']:.1e}" if "error" in row else "equal" if row["equal"] else "NOT EQUAL"
    words = {True: "yes", False: "no"}
    return (f"{row['schedule']:22}{row['format']:20}{row['processes']:>9}{row['stages']:>7}{row['micro_batches']:>6}"
            f"  {words[row['loaded']]:7}{words[row['ran']]:4} {result[:70]}".rstrip())


def table_of(versions, rows):
    text = f"{versions}\n"
    header = f"{'schedule':22}{'format':20}{'processes':>9}{'stages':>7}{'micro':>6}  {'loaded':7}{'ran':4} "
    for direction, title, last in (("to", "to PyTorch: exported here, run there", "largest relative error of a gradient"),
                                   ("control", "control: ordered for lanes that PyTorch does not have",
                                    "largest relative error of a gradient"),
                                   ("from", "from PyTorch: dumped there, run here", "losses and weights against --reference")):
        text += f"\n{title}\n\n{header}{last}\n"
        text += "".join(line_of(row) + "\n" for row in rows if row["direction"] == direction)
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pipewright", type=lambda path: str(Path(path).absolute()))
    parser.add_argument("--processes", default="2,4", help="comma separated numbers of devices")
    parser.add_argument("--out", type=Path, help="folder for table.txt and runs.json")
    arguments = parser.parse_args()
    global binary
    binary = arguments.pipewright
    schedules = [line.split()[0] for line in pipewright("list", "schedules").split("\n\n")[0].splitlines()[1:]]
    versions = {"torch": torch.__version__, "python": platform.python_version(),
                "pipewright": pipewright("--version").split(" (")[0].removeprefix("pipewright ")}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for p in map(int, arguments.processes.split(",")):
            for schedule in (name for name in schedules if name not in NOT_IN_PYTORCH):
                rows += [to_pytorch("to", schedule, form, p, Path(folder)) for form in EXPORTS]
            for schedule in ("zb1p", "zb-v"):
                rows += [to_pytorch("control", schedule, form, p, Path(folder)) for form in CONTROLS]
            for name in DUMPS:
                rows += from_pytorch(name, p, Path(folder))
    table = table_of(", ".join(f"{name} {version}" for name, version in versions.items()), rows)
    print(table, end="")
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "table.txt").write_text(table)
        write_records(arguments.out / "runs.json", {"versions": versions, "rows": rows})
    bad = [row for row in rows if not is_good(row)]
    for row in bad:
        print(f"unexpected: {line_of(row)}", file=sys.stderr)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
