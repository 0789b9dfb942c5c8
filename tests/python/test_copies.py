"""Results of every kind are pickled and copied, shown in notebooks, and cannot be changed."""
import copy
import importlib.util
import json
import os
import pathlib
import pickle
import tempfile
import unittest
from concurrent.futures import ProcessPoolExecutor

import numpy as np

import pipewright as pw
from support import RESNET, TRAINED, UNIFORM

SEARCHED = {**RESNET, "workload": {"model": "mlp", "hidden": [512, 256, 128, 64]},
            "search": {"schedules": ["gpipe", "1f1b", "zb-h1"], "stages": [1, 2], "micro_batch_sizes": [2, 4]}}
# Device 0 holds stages 0 and 2, device 1 stage 1.
UNEQUAL = {**UNIFORM, "workload": {**UNIFORM["workload"], "stages": 3}, "cluster": {"devices": 2},
           "pipeline": {"schedule": "gpipe", "stages": 3, "micro_batches": 4}}


def simulated(micro_batches):
    return pw.simulate(UNIFORM, {"pipeline.micro_batches": micro_batches})


def every_result():
    compared = pw.compare({**UNIFORM, "run": {"backend": "emulated"}, "training": {"steps": 3}}, turns=0)
    yield pw.simulate(UNIFORM)
    yield pw.simulate(UNEQUAL)
    yield pw.sweep(UNIFORM, {"pipeline.schedule": ["1f1b", "zb-v"], "pipeline.micro_batches": [4, 8]})
    yield pw.search(SEARCHED)
    yield pw.search({**RESNET, "search": {"objective": "pipedream", "mini_batch": 8}})
    yield pw.run(TRAINED)
    yield compared
    yield pw.replay(compared.measured)
    yield pw.explain(UNIFORM)
    yield pw.what_if(UNIFORM, {"pipeline.schedule": "gpipe"})
    yield pw.stragglers(UNIFORM)
    yield pw.sample(UNIFORM, 10)


class Copies(unittest.TestCase):
    def assert_alike(self, one, other):
        self.assertIs(type(one), type(other))
        self.assertEqual(repr(one), repr(other))
        self.assertEqual(str(one), str(other))
        self.assertEqual(one.notes, other.notes)
        self.assertEqual(json.dumps(one.json()), json.dumps(other.json()))  # with nan, which is not equal to itself
        if isinstance(one, pw.Result):
            self.assertEqual(one.plan, other.plan)
            for table in ("devices", "trace", "memory"):
                for name, column in getattr(one, table).items():
                    np.testing.assert_array_equal(column, getattr(other, table)[name])

    def test_of_every_result_are_alike(self):
        for result in every_result():
            with self.subTest(result=repr(result)):
                kept = pickle.loads(pickle.dumps(result))
                self.assert_alike(result, kept)
                self.assert_alike(result, pickle.loads(pickle.dumps(kept)))
                self.assert_alike(result, copy.deepcopy(result))
                if hasattr(result, "plot"):
                    with tempfile.TemporaryDirectory() as folder:
                        files = [os.path.join(folder, name) for name in ("one.html", "other.html")]
                        result.plot(files[0])
                        kept.plot(files[1])
                        self.assertEqual(*[pathlib.Path(file).read_text() for file in files])

    def test_of_searches_have_the_table_and_the_config(self):
        found = pw.search(SEARCHED)
        kept = pickle.loads(pickle.dumps(found))
        for most in (1, 2, 3, 100):
            self.assertEqual(kept.text(most).split(), found.text(most).split())
        self.assertEqual(pw.simulate(kept.best_config).step_time_ns, found.objective_ns)

    def test_of_runs_are_compared(self):
        kept = pickle.loads(pickle.dumps(pw.run(TRAINED)))
        self.assertEqual(pw.compare_traces(kept, kept).step_time_error, 0)
        self.assertEqual(len(kept.losses), 3)

    def test_come_from_other_processes(self):
        with ProcessPoolExecutor(2) as pool:
            results = list(pool.map(simulated, [4, 8]))
        self.assertEqual([result.step_time_ns for result in results],
                         [simulated(micro_batches).step_time_ns for micro_batches in (4, 8)])

    def test_of_tables_and_points(self):
        sweep = pw.sweep(UNIFORM, {"pipeline.micro_batches": [4]})
        self.assertEqual(repr(pickle.loads(pickle.dumps(sweep[0]))), repr(sweep[0]))
        trace = pw.simulate(UNIFORM).trace
        for other in (pickle.loads(pickle.dumps(trace)), copy.deepcopy(trace), trace.copy()):
            self.assertIsInstance(other, pw.Trace)
            np.testing.assert_array_equal(other.end_ns, trace.end_ns)
        split = pw.auto_partition([1, 2, 3], [1, 2, 3], 4, num_stages=2)
        self.assertEqual(pickle.loads(pickle.dumps(split)).stages, split.stages)


class Notebooks(unittest.TestCase):
    def test_show_every_result(self):
        for result in every_result():
            with self.subTest(result=repr(result)):
                shown = result._repr_html_()
                self.assertIn("<iframe srcdoc=" if hasattr(result, "plot") else "<pre>", shown)

    def test_show_large_plans(self):
        result = pw.simulate(UNIFORM, {"pipeline.micro_batches": 3000})
        self.assertGreater(result.tasks, 50_000)
        self.assertTrue(result._repr_html_().startswith("<iframe srcdoc=\"&lt;!doctype html&gt;"))


class Tables(unittest.TestCase):
    def test_have_unequal_numbers_of_stages(self):
        devices = pw.simulate(UNEQUAL).devices
        self.assertEqual(devices.stages.tolist(), [(0, 2), (1,)])
        busy = 4 * 7000  # ns of four micro-batches on a stage
        self.assertEqual(devices.busy_ns.tolist(), [2 * busy, busy])
        self.assertEqual(pw.sweep(UNEQUAL, {"pipeline.micro_batches": [4]}).devices("busy_ns").tolist(), [[2 * busy, busy]])

    @unittest.skipUnless(importlib.util.find_spec("pandas"), "no pandas")
    def test_are_those_of_pandas(self):
        import pandas

        for result in (pw.simulate(UNIFORM), pw.simulate(UNEQUAL)):
            self.assertEqual(result.to_pandas().stages.tolist(), [tuple(stages) for stages in result.stages_of])
            frame = pandas.DataFrame(result.trace)
            self.assertEqual(list(frame.columns), list(result.trace))
            self.assertEqual(frame.end_ns.tolist(), result.trace.end_ns.tolist())
        self.assertEqual(len(pw.search(SEARCHED).to_pandas()), len(pw.search(SEARCHED).plans))

    def test_are_read_only(self):
        result = pw.simulate(UNIFORM)
        with self.assertRaisesRegex(AttributeError, "read-only"):
            result.step_time_ns = 3
        with self.assertRaisesRegex(AttributeError, "read-only"):
            result.config = None
        for change in (lambda: setattr(result.devices, "idle_ns", 3), lambda: result.devices.update(idle_ns=3),
                       lambda: result.devices.pop("idle_ns")):
            with self.assertRaisesRegex(TypeError, "read-only"):
                change()
        with self.assertRaises(ValueError):
            result.devices.idle_ns[0] = 3

    def test_name_their_columns_where_one_is_missing(self):
        sweep = pw.sweep(UNIFORM, {"pipeline.micro_batches": [4]})
        for call in (lambda: sweep.devices("idle"), lambda: sweep[0].result.devices["idle"]):
            with self.assertRaisesRegex(KeyError, "idle_ns"):
                call()
        with self.assertRaisesRegex(TypeError, "no numbers"):
            sweep.devices("stages")


if __name__ == "__main__":
    unittest.main()
