"""Sweeps, searches, answers, partitions, errors and interrupts."""
import ast
import itertools
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np

import pipewright as pw
from support import RESNET, TRAINED, UNIFORM, printed_json, said


def one_f_one_b(forward, backward, comm, micro_batches):
    """The step of 1F1B on stages with these times, computed from its definition: an oracle that shares no code."""
    p, ends = len(forward), {}
    lists = []
    for s in range(p):
        warm_up = min(p - s, micro_batches)
        order = [("F", k) for k in range(warm_up)]
        for k in range(micro_batches):
            order.append(("B", k))
            if warm_up + k < micro_batches:
                order.append(("F", warm_up + k))
        lists.append(order)
    at, free = [0] * p, [0.0] * p
    while any(at[s] < len(lists[s]) for s in range(p)):
        for s in range(p):
            while at[s] < len(lists[s]):
                op, k = lists[s][at[s]]
                above = (op, s - 1, k) if op == "F" else (op, s + 1, k)
                at_end = s == (0 if op == "F" else p - 1)
                if not at_end and above not in ends:
                    break
                ready = max(free[s], 0 if at_end else ends[above] + comm)
                free[s] = ends[op, s, k] = ready + (forward[s] if op == "F" else backward[s])
                at[s] += 1
    return max(free)


def splits(layers, stages):
    for cuts in itertools.combinations(range(1, layers), stages - 1):
        bounds = [0, *cuts, layers]
        yield [list(range(begin, end)) for begin, end in zip(bounds, bounds[1:])]


class AutoPartition(unittest.TestCase):
    def test_finds_the_shortest_step_of_all_splits(self):
        draw = random.Random(5)
        for layers, stages, micro_batches in ((5, 2, 3), (7, 3, 4), (8, 4, 6), (9, 3, 2)):
            for comm in (0, 3):
                forward = [draw.randint(1, 20) for _ in range(layers)]
                backward = [draw.randint(1, 40) for _ in range(layers)]

                def step(split):
                    return one_f_one_b([sum(forward[i] for i in stage) for stage in split],
                                       [sum(backward[i] for i in stage) for stage in split], comm, micro_batches)

                found = pw.auto_partition(forward, backward, micro_batches, comm, "1f1b", num_stages=stages)
                best = min(step(split) for split in splits(layers, stages))
                self.assertEqual([layer for stage in found for layer in stage], list(range(layers)))
                self.assertAlmostEqual(found.step, best, delta=1e-4 * best)
                self.assertAlmostEqual(step(found.stages), best, delta=1e-4 * best)
                self.assertLessEqual(found.lower_bound, found.step)

    def test_takes_the_schedules_of_pytorch(self):
        forward, backward = [1.5, 1, 1, 1, 1, 1, 1, 2.5], [3, 2, 2, 2, 2, 2, 2, 5]
        names = {"interleaved_1f1b": "interleaved", "interleaved_zero_bubble": "zb1p"}
        for schedule, own in names.items():
            found = pw.auto_partition(forward, backward, 4, 0.1, schedule, num_stages=4)
            self.assertEqual(found.result.schedule, own)
            self.assertEqual((len(found), found.result.devices.rows, sum(found.sizes)), (4, 2, 8))
            self.assertEqual(found.cuts, [found[1][0], found[2][0], found[3][0]])
        with self.assertRaises(ValueError):
            pw.auto_partition([1, 2], [1], 4, num_stages=2)
        with self.assertRaises(ValueError):
            pw.auto_partition([1, -2], [1, 1], 4, num_stages=2)


class Sweeps(unittest.TestCase):
    AXES = {"pipeline.micro_batches": [4, 8, 16], "pipeline.schedule": ["gpipe", "1f1b"]}

    def test_have_the_points_of_the_program(self):
        sweep, printed = pw.sweep(UNIFORM, self.AXES), printed_json("simulate", {**UNIFORM, "sweep": self.AXES})
        self.assertEqual(sweep.json(), printed)
        self.assertEqual(len(sweep), 6)
        np.testing.assert_array_equal(sweep.table.step_time_ns, [point["step_time_ns"] for point in printed["points"]])
        self.assertEqual(sweep.table["pipeline.schedule"].tolist(), ["gpipe", "1f1b"] * 3)
        self.assertEqual(sweep.best.set, printed["best"]["set"])
        self.assertEqual(pw.sweep({**UNIFORM, "sweep": self.AXES}).json(), printed)

    def test_have_the_devices_of_every_point(self):
        sweep = pw.sweep(RESNET, {"cluster.devices": [1, 2, 3], "pipeline.schedule": ["1f1b"]})
        idle = sweep.devices("idle_ns")
        self.assertEqual(idle.shape, (3, 3))
        for row, point in zip(idle, sweep):
            own = pw.simulate(point.config)
            self.assertEqual(row[:own.devices.rows].tolist(), own.devices.idle_ns.tolist())
            self.assertTrue(np.isnan(row[own.devices.rows:]).all())
            np.testing.assert_array_equal(point.result.trace.end_ns, own.trace.end_ns)

    def test_keep_points_with_mistakes(self):
        sweep = pw.sweep(UNIFORM, {"pipeline.schedule": ["zb-v", "1f1b"], "pipeline.micro_batches": [4]})
        self.assertIsNone(sweep[0].result)
        self.assertIn("stages", sweep[0].error.fact)
        self.assertTrue(np.isnan(sweep.table.step_time_ns[0]) and np.isnan(sweep.devices("busy_ns")[0]).all())

    def test_show_their_progress(self):
        states = []
        pw.sweep(UNIFORM, {"pipeline.micro_batches": [4, 8]}, progress=states.append)
        self.assertEqual(states[-1], "point 2 of 2")


SEARCHED = {**RESNET, "workload": {"model": "mlp", "hidden": [512, 256, 128, 64]}, "search": {"schedules": ["gpipe", "1f1b"], "stages": [2], "micro_batch_sizes": [2, 4]}}


class Searches(unittest.TestCase):
    def test_find_the_plan_of_the_program(self):
        found, printed = pw.search(SEARCHED), printed_json("search", SEARCHED)
        for key in ("best", "plans", "lower_bound_ns", "objective_ns", "gap"):
            self.assertEqual(getattr(found, key), printed[key])
        self.assertEqual(pw.simulate(found.best_config).step_time_ns, found.objective_ns)
        self.assertFalse(found.interrupted)
        with tempfile.TemporaryDirectory() as folder:
            files = [os.path.join(folder, name) for name in ("a.yaml", "b.yaml")]
            found.save(files[0])
            said("search", "-", "-o", files[1], config=SEARCHED)
            self.assertEqual(*[pathlib.Path(file).read_text() for file in files])
            found.plot(os.path.join(folder, "found.html"))
            self.assertIn("best:", str(found))

    def test_say_that_nothing_fits(self):
        with self.assertRaises(pw.Error) as raised:
            pw.search(SEARCHED, {"cluster.memory": "100 kB"})
        self.assertEqual(raised.exception.code, pw.ExitCode.INFEASIBLE)
        self.assertIn("no plan fits", raised.exception.fact)

    def test_find_partitions_of_other_planners(self):
        config = {**RESNET, "search": {"objective": "pipedream", "mini_batch": 8}}
        found, printed = pw.search(config), printed_json("search", config)
        self.assertEqual(found.best, printed["best"])
        with self.assertRaises(pw.Error):
            found.best_config

    # A search that takes minutes.
    LONG = {**RESNET, "cluster": {"devices": 8, "link": {"bandwidth": "1 GB/s"}},
            "search": {"schedules": "all", "mini_batch": 256, "micro_batch_sizes": [1, 2, 4, 8], "replicas": True}}

    def test_end_with_the_best_so_far_on_ctrl_c(self):
        timers = []

        def interrupt_soon(state):
            if not timers and "best" in state:
                timers.append(threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)))
                timers[0].start()

        found = pw.search(self.LONG, time_limit=60, threads=1, progress=interrupt_soon)
        self.assertTrue(found.interrupted)
        self.assertEqual(pw.simulate(found.best_config).step_time_ns, found.best["step_time_ns"])

    def test_end_by_their_time_limit(self):
        self.assertFalse(pw.search(self.LONG, time_limit=1, threads=1).interrupted)


class Answers(unittest.TestCase):
    def test_are_those_of_the_program(self):
        changes = {"pipeline.schedule": "gpipe", "cluster.link.bandwidth": "1 GB/s"}
        options = [text for key, value in changes.items() for text in ("--what-if", f"{key}={value}")]
        printed = printed_json("simulate", UNIFORM, "--explain", "--stragglers", "--samples", "20", *options)
        rows = pw.what_if(UNIFORM, changes).what_if
        self.assertEqual([row["step_time_ns"] for row in rows], [row["step_time_ns"] for row in printed["what_if"]])
        result = pw.simulate(UNIFORM)
        self.assertEqual(pw.explain(result).explanation, printed["explanation"])
        self.assertEqual(pw.stragglers(UNIFORM).stragglers, printed["stragglers"])
        self.assertEqual(pw.sample(UNIFORM, 20).samples, printed["samples"])
        self.assertIn("slack", pw.slack(result).splitlines()[0])


class NumbersOfClusters(unittest.TestCase):
    CONFIG = {"workload": {"model": "llama-3.2-1b", "sequence_length": 2048},
              "cluster": {"devices": 8, "device": "h100-sxm-80"}, "parallel": {"pipeline": 2},
              "pipeline": {"mini_batch": 16, "micro_batch_size": 1}, "training": {"precision": "bf16"}}

    def test_are_those_of_all_replicas(self):
        result = pw.simulate(self.CONFIG)
        self.assertEqual(result.mini_batch, 16)
        self.assertAlmostEqual(result.samples_per_second, 16e9 / result.step_time_ns)
        asked = pw.what_if(self.CONFIG, {"parallel.zero": 0}).what_if[0]
        self.assertAlmostEqual(asked["samples_per_second"], result.samples_per_second)
        best = pw.sweep(self.CONFIG, {"parallel.tensor": [1, 2, 4]}).best
        self.assertEqual(best.set["parallel.tensor"], 1)


class Errors(unittest.TestCase):
    def error_of(self, call):
        with self.assertRaises(pw.Error) as raised:
            call()
        return raised.exception

    def test_have_fields(self):
        text = "workload: {model: uniform, stages: 4}\ncluster: {devices: 4}\npipeline: {schedule: 1f1c}\n"
        error = self.error_of(lambda: pw.simulate(pw.Config.from_yaml(text, name="mine.yaml")))
        self.assertEqual(error.code, pw.ExitCode.BAD_INPUT)
        self.assertEqual(error.place, "mine.yaml:3:22")
        self.assertEqual(error.key, "pipeline.schedule")
        self.assertIn("1f1c", error.fact)
        self.assertIn("1f1b", error.help)
        self.assertIn(error.fact, str(error))
        error = self.error_of(lambda: pw.simulate(UNIFORM, {"pipeline.micro_batchs": 3}))
        self.assertEqual(error.place, "pipeline.micro_batchs")
        error = self.error_of(lambda: pw.run({**UNIFORM, "run": {"backend": "emulated"}}, {"cluster.memory": "1 kB"}))
        self.assertEqual(error.code, pw.ExitCode.INFEASIBLE)

    def test_name_files(self):
        error = self.error_of(lambda: pw.simulate("/nowhere/cfg.yaml"))
        self.assertIn("/nowhere/cfg.yaml", error.fact)
        self.assertIn("/nowhere/t.json", str(self.error_of(lambda: pw.import_trace("/nowhere/t.json"))))
        self.assertIn("nowhere", str(self.error_of(lambda: pw.simulate(UNIFORM).plot("/nowhere/t.svg"))))
        self.assertIn("t.doc", str(self.error_of(lambda: pw.simulate(UNIFORM).plot("t.doc"))))

    def test_have_texts_whatever_is_in_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "cfg.yaml"
            for content in (b"workload: {\xff\xfe: 1}", b"\x80\x00", b"", b"[" * 5000):
                file.write_bytes(content)
                self.assertIn("cfg.yaml", str(self.error_of(lambda: pw.simulate(file))))

    def test_refuse_what_is_no_config(self):
        self.error_of(lambda: pw.Config("workload:\n  model: uniform"))
        with self.assertRaises(TypeError):
            pw.simulate(3)
        with self.assertRaises(TypeError):
            pw.simulate({"workload": {1, 2}})
        self.assertIn("sweep()", self.error_of(lambda: pw.simulate({**UNIFORM, "sweep": {"pipeline.micro_batches": [4]}})).help)

    def test_of_progress_end_the_call(self):
        def refuse(state):
            raise ZeroDivisionError(state)

        with self.assertRaises(ZeroDivisionError):
            pw.sweep(UNIFORM, {"pipeline.micro_batches": list(range(1, 200))}, progress=refuse)
        with self.assertRaises(KeyboardInterrupt):
            pw.sweep(UNIFORM, {"pipeline.micro_batches": list(range(1, 200))},
                     progress=lambda state: signal.raise_signal(signal.SIGINT))

    def test_and_calls_print_nothing(self):
        calls = f"import pipewright as pw; pw.simulate({UNIFORM}); pw.search({SEARCHED}); pw.run({TRAINED})"
        done = subprocess.run([sys.executable, "-c", calls], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


class Stubs(unittest.TestCase):
    def test_name_what_is_in_the_module(self):
        stub = ast.parse((pathlib.Path(pw.__file__).parent / "_core.pyi").read_text())

        def names(body):
            found = {node.target.id for node in body if isinstance(node, ast.AnnAssign)}
            return {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))} | found

        def public(value):
            return {name for name in vars(value) if not name.startswith("_")}

        self.assertEqual(names(stub.body), public(pw._core))
        for node in stub.body:
            if isinstance(node, ast.ClassDef):
                self.assertEqual(names(node.body) - {"__init__"}, public(getattr(pw._core, node.name)), node.name)


if __name__ == "__main__":
    unittest.main()
