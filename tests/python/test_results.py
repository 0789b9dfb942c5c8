"""Numbers, arrays, texts and pictures of predictions, runs and imported traces are those of the program."""
import importlib.util
import json
import os
import pathlib
import pickle
import tempfile
import threading
import unittest

import numpy as np

import pipewright as pw
from support import RESNET, SOURCE, TRAINED, UNIFORM, printed_json, said


class Predictions(unittest.TestCase):
    def test_have_the_json_of_the_program(self):
        for config in (UNIFORM, RESNET):
            self.assertEqual(pw.simulate(config).json(), printed_json("simulate", config))

    def test_have_a_row_per_device(self):
        result, rows = pw.simulate(RESNET), printed_json("simulate", RESNET)["devices"]
        for key in ("busy_ns", "idle_ns", "exposed_communication_ns", "peak_memory_bytes", "peak_in_flight"):
            self.assertEqual(result.devices[key].tolist(), [row[key] for row in rows])
            self.assertEqual(result.devices[key].dtype, np.int64)
        self.assertEqual(result.devices.activations_bytes.tolist(), [row["memory"]["activations"] for row in rows])
        self.assertEqual(result.devices.name.tolist(), ["0", "1"])
        self.assertTrue(np.isinf(result.devices.memory_limit_bytes).all())
        self.assertEqual(pw.simulate(UNIFORM).devices.memory_limit_bytes.tolist(), [64e6] * 4)

    def test_have_the_trace_of_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            said("simulate", "-", "--trace", path, config=RESNET)
            imported = pw.import_trace(path)
        trace = pw.simulate(RESNET).trace
        self.assertGreater(trace.rows, 40)
        for name, column in imported.trace.items():
            np.testing.assert_array_equal(trace[name], column, name)
        self.assertEqual(imported.label, "predicted")

    def test_have_tasks_by_names_of_a_person(self):
        folder = os.path.join(SOURCE, "tests", "cli", "kineto", "own-names")
        imported = pw.import_trace(folder, tasks=["F=run layers {mb} of part {stage}", "B=gradients {mb} of part {stage}"])
        self.assertEqual((imported.devices.name.tolist(), imported.label), (["0", "1", "2"], "measured"))
        with self.assertRaises(pw.Error) as caught:
            pw.import_trace(folder, tasks=["F=run layers {mb} of part {stage}", "B=nothing {mb}"])
        self.assertIn("no name matches the pattern 'B=nothing {mb}'", str(caught.exception))

    def test_count_busy_time_as_their_traces_do(self):
        result = pw.simulate(RESNET)
        trace = result.trace
        lengths = np.where(np.isin(trace.op, list("FBIWR")), trace.end_ns - trace.start_ns, 0)
        np.testing.assert_array_equal(np.bincount(trace.device, lengths), result.devices.busy_ns)
        for device, names in enumerate(result.plan):
            own = trace.device == device
            self.assertEqual(names, [f"{stage}{op}{mb}" + (f"{'>' if 'SEND' in op else '<'}{peer}" if "_" in op else "")
                                     for stage, op, mb, peer in zip(trace.stage[own], trace.op[own],
                                                                    trace.microbatch[own], trace.peer[own])])

    def test_have_the_peak_of_their_memory(self):
        result = pw.simulate(RESNET)
        memory = result.memory
        in_use = sum(column for name, column in memory.items() if name.endswith("_bytes"))
        for device, peak in enumerate(result.devices.peak_memory_bytes):
            self.assertEqual(in_use[memory.device == device].max(), peak)

    def test_print_the_tables_of_the_program(self):
        self.assertIn(str(pw.simulate(UNIFORM)), said("simulate", "-", config=UNIFORM))
        self.assertEqual(pw.simulate(UNIFORM).plan_csv(), said("plan", "-", "--format", "csv", config=UNIFORM))

    def test_follow_overrides(self):
        own = pw.Config(UNIFORM).override({"pipeline.micro_batches": np.int64(16)})
        self.assertEqual(pw.simulate(own).json(), printed_json("simulate", UNIFORM, "--set", "pipeline.micro_batches=16"))
        again = pickle.loads(pickle.dumps(own))
        self.assertEqual(pw.simulate(again, {"pipeline.schedule": "gpipe"}).schedule, "gpipe")

    def test_take_files_and_texts(self):
        file = os.path.join(SOURCE, "examples", "two_devices.yaml")
        with open(file) as text:
            by_text = pw.simulate(pw.Config.from_yaml(text.read()))
        self.assertEqual(pw.simulate(file).json(), json.loads(said("simulate", file, "--json")))
        self.assertEqual(by_text.json(), pw.simulate(file).json())
        self.assertIn("micro_batches:", pw.Config(file).complete())

    def test_come_with_the_notes_of_the_program(self):
        notes = pw.simulate(UNIFORM, {"pipeline.group": 2}).notes
        self.assertTrue(any("pipeline.group has no effect" in note for note in notes), notes)

    def test_of_many_configs_are_those_of_each(self):
        configs = [pw.Config(UNIFORM, {"pipeline.micro_batches": m}) for m in range(1, 21)]
        many = pw.simulate_many([*configs, {"workload": 3}], return_exceptions=True)
        self.assertEqual([result.json() for result in many[:-1]], [pw.simulate(config).json() for config in configs])
        self.assertIsInstance(many[-1], pw.Error)
        with self.assertRaises(pw.Error):
            pw.simulate_many([*configs, {"workload": 3}])
        self.assertEqual(pw.simulate_many([]), [])

    @unittest.skipUnless(importlib.util.find_spec("pandas"), "no pandas")
    def test_are_tables_of_pandas(self):
        result = pw.simulate(RESNET)
        self.assertEqual(result.to_pandas().idle_ns.tolist(), result.devices.idle_ns.tolist())
        self.assertEqual(len(result.trace.to_pandas()), result.tasks)
        self.assertEqual(pw.sweep(UNIFORM, {"pipeline.micro_batches": [4, 8]}).to_pandas().shape[0], 2)

    def test_are_made_by_several_threads_at_once(self):
        expected, results = pw.simulate(RESNET).json(), []
        threads = [threading.Thread(target=lambda: results.append(pw.simulate(RESNET).json())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [expected] * 4)

    def test_show_their_timeline_in_a_notebook(self):
        page = pw.simulate(UNIFORM)._repr_html_()
        self.assertTrue(page.startswith("<iframe srcdoc=\"&lt;!doctype html&gt;"), page[:80])

    def test_are_drawn_into_files(self):
        with tempfile.TemporaryDirectory() as folder:
            pages = [os.path.join(folder, name) for name in ("a.json", "b.txt", "page.html")]
            pw.simulate(UNIFORM).plot(pages[0])
            pw.plot([pw.simulate(UNIFORM), pw.simulate(UNIFORM, {"pipeline.schedule": "gpipe"})], pages[1], ["one", "two"])
            said("simulate", "-", "--plot", os.path.join(folder, "c.json"), config=UNIFORM)
            pw.simulate(UNIFORM).plot(pages[2])
            texts = [pathlib.Path(page).read_text() for page in [*pages, os.path.join(folder, "c.json")]]
        self.assertEqual(texts[0], texts[3])
        self.assertIn("Idle time by cause", texts[2])
        self.assertIn("one", texts[1])
        self.assertIn("two", texts[1])


class Pictures(unittest.TestCase):
    TIMELINES = [({"figure": "column"}, ["--figure", "column"]), ({"width": "8.5cm"}, ["--width", "8.5cm"]),
                 ({"width": 300, "figure": "page"}, ["--figure", "page", "--width", "300"]),
                 ({"font_size": 9.5, "title": "a step"}, ["--font-size", "9.5", "--title", "a step"]),
                 ({"without": ["memory", "legend"]}, ["--without", "memory,legend"]),
                 ({"without": "memory,legend", "device_names": ["a", "b", "c", "d"]},
                  ["--without", "memory,legend", "--device-names", "a,b,c,d"]),
                 ({"range": "10 us..30 us", "width": None, "without": []}, ["--range", "10 us..30 us"])]
    CHARTS = [({"y": "bubble", "figure": "column"}, ["--y", "bubble", "--figure", "column"]),
              ({"x": "pipeline.schedule", "y": "pipeline.micro_batches", "z": "step-time"},
               ["--x", "pipeline.schedule", "--y", "pipeline.micro_batches", "--z", "step-time"]),
              ({"width": 600, "without": ["titles"]}, ["--width", "600", "--without", "titles"])]
    AXES = {"pipeline.schedule": ["gpipe", "1f1b"], "pipeline.micro_batches": [4, 8]}

    def assert_alike(self, draw, config, options):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:  # scripts have their names
            files = [os.path.join(folder, "a.gp") for folder in (one, other)]
            draw(files[0])
            said("simulate", "-", "--plot", files[1], *options, config=config)
            self.assertEqual(*[pathlib.Path(file).read_text() for file in files])

    def test_take_the_options_of_the_program(self):
        result, sweep = pw.simulate(UNIFORM), pw.sweep(UNIFORM, self.AXES)
        for view, options in self.TIMELINES:
            with self.subTest(view=view):
                self.assert_alike(lambda file: result.plot(file, **view), UNIFORM, options)
        for view, options in self.CHARTS:
            with self.subTest(view=view):
                self.assert_alike(lambda file: sweep.plot(file, **view), {**UNIFORM, "sweep": self.AXES}, options)

    def test_of_copies_take_them_too(self):
        sweep = pw.sweep(UNIFORM, self.AXES)
        kept = pickle.loads(pickle.dumps(sweep))
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            files = [os.path.join(folder, "a.gp") for folder in (one, other)]
            sweep.plot(files[0], figure="column")
            kept.plot(files[1], figure="column")
            self.assertEqual(*[pathlib.Path(file).read_text() for file in files])
            with self.assertRaisesRegex(pw.Error, "before it is pickled"):
                kept.plot(files[1], y="bubble")


class Runs(unittest.TestCase):
    def test_end_with_the_weights_of_the_program(self):
        states = []
        result = pw.run(TRAINED, progress=states.append)
        printed = printed_json("run", TRAINED)
        for key in ("weights_hash", "losses", "gradient_norms", "plan_hash"):
            self.assertEqual(getattr(result, key), printed[key])
        self.assertEqual(result.label, "measured")
        self.assertEqual(len(pw.run(TRAINED, steps=2).losses), 2)
        self.assertEqual(set(result.trace.step.tolist()), {0, 1, 2})
        self.assertTrue(all("step" in state for state in states))

    def test_are_compared_with_their_prediction(self):
        emulated = {**UNIFORM, "run": {"backend": "emulated"}, "training": {"steps": 3}}
        comparison = pw.compare(emulated, turns=0)
        self.assertEqual(comparison.predicted.step_time_ns, pw.simulate(emulated).step_time_ns)
        again = pw.compare_traces(comparison.predicted, comparison.measured)
        self.assertEqual(again.step_time_error, comparison.step_time_error)
        self.assertIn("step time", str(comparison))
        replay = pw.replay(comparison.measured)
        self.assertEqual(replay.step_time_ns, comparison.measured.step_time_ns)


if __name__ == "__main__":
    unittest.main()
