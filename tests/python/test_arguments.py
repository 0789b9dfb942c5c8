"""Wrong arguments have pipewright's own messages, and an interpreter ends while calls are under way."""
import subprocess
import sys
import unittest

import pipewright as pw
from support import UNIFORM, said

RESULT = pw.simulate(UNIFORM)
HALF = "\ud800"  # of a character

TYPES = {
    "threads is a whole number, not str: 'x'": lambda: pw.simulate_many([UNIFORM], threads="x"),
    "threads is a whole number, not float: 1.5": lambda: pw.search(UNIFORM, threads=1.5),
    "time_limit is a number of seconds, not str: 'x'": lambda: pw.search(UNIFORM, time_limit="x"),
    "titles[0] is a text, not int: 3": lambda: pw.plot([RESULT], "a.txt", titles=[3]),
    "titles is a list of texts, not str: 'x'": lambda: pw.plot([RESULT], "a.txt", titles="x"),
    "plot() has no keyword 'fontsize' here: figure, width, font_size": lambda: RESULT.plot("a.txt", fontsize=7),
    "plot() has no keyword 'range' here": lambda: pw.sweep(UNIFORM, {"pipeline.micro_batches": [4]}).plot("a.txt", range="1us.."),
    "without is a list of texts, not int: 3": lambda: RESULT.plot("a.txt", without=3),
    "title is a text, not int: 3": lambda: RESULT.plot("a.txt", title=3),
    "y is a text, not int: 3": lambda: pw.sweep(UNIFORM, {"pipeline.micro_batches": [4]}).plot("a.txt", y=3),
    "draws is a whole number, not float: 2.5": lambda: pw.sample(UNIFORM, 2.5),
    "jitter is a text, not int: 3": lambda: pw.sample(UNIFORM, 3, jitter=3),
    "steps is a whole number, not str: 'x'": lambda: pw.run(UNIFORM, steps="x"),
    "turns is a whole number, not str: 'x'": lambda: pw.compare(UNIFORM, turns="x"),
    "progress is a function": lambda: pw.search(UNIFORM, progress=3),
    "results is a Result": lambda: pw.plot([3], "a.txt"),
    "file is a path, not int: 3": lambda: RESULT.plot(3),
    "files is a path, not int: 3": lambda: pw.import_trace([3]),
    "predicted is a Result": lambda: pw.compare_traces(3, RESULT),
    "measured is a Result": lambda: pw.replay(3),
    "overrides is a mapping": lambda: pw.simulate(UNIFORM, [("a", 1)]),
    "a key of overrides is a text": lambda: pw.simulate(UNIFORM, {3: 1}),
    "axes is a mapping": lambda: pw.sweep(UNIFORM, 3),
    "configs is a list of configs, not dict": lambda: pw.simulate_many(UNIFORM),
    "text is a text, not int: 3": lambda: pw.Config.from_yaml(3),
}


def nested(depth):
    config = inner = {}
    for _ in range(depth):
        inner["a"] = {}
        inner = inner["a"]
    return config


CYCLE = {}
CYCLE["a"] = CYCLE

VALUES = {
    "figure: 'colum' is not column or page": lambda: RESULT.plot("a.svg", figure="colum"),
    "width: '10' is not a width from 200": lambda: RESULT.plot("a.svg", width=10),
    "without: 'memry' is no part of a picture": lambda: RESULT.plot("a.svg", without=["memry"]),
    "threads is -1\n  help: it must be at least 0": lambda: pw.simulate_many([UNIFORM], threads=-1),
    "time_limit is 0\n  help: it must be above 0": lambda: pw.search(UNIFORM, time_limit=0),
    "the config has half of a character": lambda: pw.simulate({**UNIFORM, "x": HALF}),
    "workload.model has half of a character": lambda: pw.simulate(UNIFORM, {"workload.model": HALF}),
    "a config has half of a character": lambda: pw.simulate(HALF),
    "nest more than 64 deep": lambda: pw.simulate(nested(100)),
    "the config has values that nest more than 64 deep": lambda: pw.simulate(nested(100_000)),
    "the config has a value that contains itself": lambda: pw.simulate(CYCLE),
    "the config has a number that is not finite": lambda: pw.simulate({**UNIFORM, "x": float("nan")}),
    "the values of 'pipeline.schedule' must be a list, not '1f1b'": lambda: pw.sweep(UNIFORM, {"pipeline.schedule": "1f1b"}),
    "the values of 'pipeline.micro_batches' must be a list, not 8": lambda: pw.sweep(UNIFORM, {"pipeline.micro_batches": 8}),
}


class Arguments(unittest.TestCase):
    def test_of_wrong_types_are_named(self):
        for text, call in TYPES.items():
            with self.subTest(text=text), self.assertRaises(TypeError) as raised:
                call()
            self.assertIn(text, str(raised.exception))

    def test_of_wrong_values_are_named(self):
        for text, call in VALUES.items():
            with self.subTest(text=text), self.assertRaises(pw.Error) as raised:
                call()
            self.assertIn(text, str(raised.exception))

    def test_have_one_form_of_error(self):
        for call in (lambda: pw.simulate(UNIFORM, {"pipeline.micro_batchs": 3}), lambda: pw.simulate("/nowhere/cfg.yaml")):
            with self.assertRaises(pw.Error) as raised:
                call()
            self.assertTrue(str(raised.exception).startswith(raised.exception.fact))

    def test_may_be_all_schedules(self):
        swept = pw.sweep(UNIFORM, {"pipeline.schedule": "all"})
        listed = said("list", "schedules").split()
        self.assertLessEqual({point.set["pipeline.schedule"] for point in swept}, set(listed))
        self.assertEqual(pw.sweep({**UNIFORM, "sweep": {"pipeline.schedule": "all"}}).json(), swept.json())
        self.assertGreater(len(swept), 10)

    def test_reach_a_device_of_a_number(self):
        slow = pw.simulate(UNIFORM, {"cluster.devices[0].speed": 0.5})
        listed = [{"speed": 0.5}, {}, {}, {}]
        self.assertEqual(slow.json(), pw.simulate({**UNIFORM, "cluster": {**UNIFORM["cluster"], "devices": listed}}).json())
        self.assertGreater(slow.step_time_ns, RESULT.step_time_ns)
        with self.assertRaisesRegex(pw.Error, "list of 4"):
            pw.simulate(UNIFORM, {"cluster.devices[4].speed": 0.5})

    def test_are_shown_by_configs(self):
        self.assertEqual(repr(pw.Config(UNIFORM, {"pipeline.micro_batches": 3})),
                         "<Config uniform, 1f1b; pipeline.micro_batches=3>")
        self.assertEqual(repr(pw.Config({"workload": 3})), "<Config error: 'workload' must be a map>")


# A daemon thread is in the middle of a call when the main thread ends.
ENDS = """
import pipewright as pw, threading, time
C = {"workload": {"model": "uniform"}, "cluster": {"devices": 4},
     "pipeline": {"stages": 4, "micro_batches": 1000, "schedule": "1f1b"}}
begun = threading.Event()
def work():
    begun.set()
    %s
threading.Thread(target=work, daemon=True).start()
begun.wait()
time.sleep(0.3)
"""
CALLS = ("pw.simulate_many([C] * 1000)", "[pw.simulate(C) for _ in range(1000)]", "[pw.simulate(C).trace for _ in range(1000)]",
         "pw.sweep(C, {'pipeline.micro_batches': list(range(1000, 3000))}, progress=lambda state: time.sleep(1000))")


class Ends(unittest.TestCase):
    def test_of_the_interpreter_do_not_abort(self):
        for call in CALLS:
            with self.subTest(call=call):
                done = subprocess.run([sys.executable, "-c", ENDS % call], capture_output=True, text=True, timeout=120)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_are_followed_by_calls_of_the_main_thread(self):
        text = f"import atexit\natexit.register(lambda: print(pw.simulate({UNIFORM}).step_time_ns))\nimport pipewright as pw\n"
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stdout.strip(), done.stderr), (0, str(RESULT.step_time_ns), ""))


if __name__ == "__main__":
    unittest.main()
