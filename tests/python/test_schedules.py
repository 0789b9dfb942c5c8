"""Schedules that are functions: against the schedules of the program, and their mistakes."""
import os
import pathlib
import pickle
import re
import tempfile
import traceback
import unittest

import pipewright as pw
from support import RESNET, SOURCE, TRAINED, UNIFORM, printed_json, said

UNEQUAL = {
    "workload": {"model": "uniform", "stages": 4, "forward": ["3 us", "5 us", "2 us", "4 us"],
                 "backward_input": ["2 us", "4 us", "3 us", "5 us"],
                 "backward_weight": ["1 us", "3 us", "2 us", "6 us"],
                 "output": "20 kB"},
    "cluster": {"devices": 4, "link": {"bandwidth": "10 GB/s", "latency": "1 us"}},
    "pipeline": {"schedule": "1f1b", "micro_batches": 8},
}


def mine_1f1b(shape):
    """1F1B from its definition: stage s holds at most p - s micro-batches."""
    lists = []
    for stage in range(shape.stages):
        tasks, forwards = [], 0
        for done in range(shape.micro_batches):
            while forwards < shape.micro_batches and forwards - done < shape.stages - stage:
                tasks.append(("F", stage, forwards))
                forwards += 1
            tasks.append(("B", stage, done))
        lists.append(tasks)
    return lists


def mine_h1(shape):
    """ZB-H1 from its definition: 1F1B with I for B, where W of stage s comes s micro-batches after its I."""
    lists = []
    for stage, whole in enumerate(mine_1f1b(shape)):
        tasks = []
        for op, _, micro_batch in whole:
            tasks.append((op.replace("B", "I"), stage, micro_batch))
            if op == "B" and micro_batch >= stage:
                tasks.append(("W", stage, micro_batch - stage))
        late = range(max(0, shape.micro_batches - stage), shape.micro_batches)
        lists.append(tasks + [("W", stage, micro_batch) for micro_batch in late])
    return lists


def mine_stuck(shape):
    """The last device begins with micro-batch 1. The first device runs micro-batch 1 after both passes of micro-batch 0."""
    first = [task for i in range(shape.micro_batches) for task in (("F", 0, i), ("B", 0, i))]
    last = [task for i in (1, 0, *range(2, shape.micro_batches)) for task in (("F", 1, i), ("B", 1, i))]
    return [first, last]


def by_devices(lists):
    """A schedule that returns these lists, whatever the shape."""
    def listed(shape):
        return lists
    return listed


class Orders(unittest.TestCase):
    def assert_same(self, config, name, function, overrides):
        own = pw.simulate(config, overrides, schedule=function)
        built_in = pw.simulate(config, {**overrides, "pipeline.schedule": name})
        self.assertEqual(own.plan, built_in.plan)
        self.assertEqual(own.trace.start_ns.tolist(), built_in.trace.start_ns.tolist())
        self.assertEqual(own.trace.end_ns.tolist(), built_in.trace.end_ns.tolist())
        self.assertEqual((own.step_time_ns, own.plan_hash), (built_in.step_time_ns, built_in.plan_hash))
        self.assertEqual(own.devices.peak_memory_bytes.tolist(), built_in.devices.peak_memory_bytes.tolist())
        self.assertEqual(own.schedule, function.__name__)

    def test_of_published_schedules_take_the_same_nanoseconds(self):
        for name, function in {"1f1b": mine_1f1b, "zb-h1": mine_h1}.items():
            for micro_batches in (1, 3, 4, 8, 33):
                for config in (UNIFORM, UNEQUAL):
                    self.assert_same(config, name, function, {"pipeline.micro_batches": micro_batches})
            self.assert_same(RESNET, name, function, {"cluster.devices": 3})
            self.assert_same(UNEQUAL, name, function, {"cluster.devices": 8, "pipeline.replicas": 2})

    def test_of_every_placement_are_taken_as_texts(self):
        stages = {"zb-v": 8, "dualpipe-v": 8, "interleaved": 8, "bfs": 12, "gpipe": 4}
        for name, count in stages.items():
            workload = {"model": "uniform", "stages": count, "forward": "3 us", "output": "10 kB"}
            config = {**UNIFORM, "workload": workload}
            built_in = pw.simulate(config, {"pipeline.schedule": name})
            pairs = dict(re.findall(r"\((\w+);(\w+)\)", built_in.plan_csv()))
            lists = []
            for tasks in built_in.plan:
                passes = [task for task in tasks if re.fullmatch(r"\d+[FBIW]\d+", task)]
                seconds = {pairs[task] for task in passes if task in pairs}
                lists.append([(task, pairs[task]) if task in pairs else task for task in passes if task not in seconds])
            self.assertEqual(bool(pairs), name == "dualpipe-v")
            holders = enumerate(built_in.stages_of)
            placement = [device for _, device in sorted((stage, device) for device, own in holders for stage in own)]
            for where in (placement, "V" if name.endswith("v") else "looped"):
                function = by_devices(lists)
                function.placement = where
                own = pw.simulate(config, schedule=function)
                self.assertEqual((own.step_time_ns, own.plan_hash), (built_in.step_time_ns, built_in.plan_hash), name)

    def test_know_their_shape(self):
        shapes = []

        def seen(shape):
            shapes.append((shape, shape.stages_of(1)))
            return [[(op, stage, i) for i in range(shape.micro_batches) for op, stage in
                     [("F", stage) for stage in own] + [("B", stage) for stage in reversed(own)]]
                    for own in map(shape.stages_of, range(shape.devices))]

        seen.placement = [0, 1, 1, 0]
        pw.simulate(UNIFORM, {"cluster.devices": 2}, schedule=seen)
        self.assertEqual(shapes, [(pw.Shape(2, 4, 8, (0, 1, 1, 0)), [1, 2])])

    def test_may_go_by_costs(self):
        asked = []

        def costly(shape, costs):
            asked.append([costs.time(op, 1, 5) for op in "FBIW"])
            asked.append([costs.message(0, 1), costs.message(1, 0), costs.message(0, 2)])
            return mine_1f1b(shape)

        own = pw.simulate(UNEQUAL, schedule=costly)
        self.assertEqual(own.step_time_ns, pw.simulate(UNEQUAL).step_time_ns)
        message = 20_000 // 10 + 1_000  # 20 kB at 10 GB/s, and the latency
        self.assertEqual(asked, [[5_000, 7_000, 4_000, 3_000], [message, message, 0]])

    def test_are_plans_for_the_program(self):
        own = pw.simulate(UNEQUAL, schedule=mine_h1)
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "plan.csv")
            pathlib.Path(file).write_text(own.plan_csv())
            config = {**UNEQUAL, "pipeline": {"schedule": file}}
            self.assertEqual(printed_json("simulate", config)["step_time_ns"], own.step_time_ns)

    def test_go_with_configs(self):
        config = pw.Config(UNEQUAL, schedule=mine_h1)
        step = pw.simulate(UNEQUAL, {"pipeline.schedule": "zb-h1"}).step_time_ns
        for same in (config, pickle.loads(pickle.dumps(config)), config.override({"pipeline.micro_batches": 8})):
            self.assertEqual(pw.simulate(same).step_time_ns, step)
        self.assertEqual([result.step_time_ns for result in pw.simulate_many([config] * 5, threads=3)], [step] * 5)
        self.assertEqual(pw.simulate(UNEQUAL, {"pipeline.schedule": "gpipe"}, schedule=mine_h1).step_time_ns, step)
        self.assertEqual(pw.simulate(config.override({"pipeline.schedule": "gpipe"})).schedule, "gpipe")
        sweep = pw.sweep(UNEQUAL, {"pipeline.schedule": ["zb-h1", "mine_h1"]}, schedule=mine_h1)
        self.assertEqual([point.result.step_time_ns for point in sweep], [step] * 2)
        self.assertEqual(len(sweep[1].result.trace.start_ns), len(sweep[0].result.trace.start_ns))
        result = pickle.loads(pickle.dumps(pw.simulate(config)))
        self.assertEqual(result.plan_csv(), pw.simulate(UNEQUAL, {"pipeline.schedule": "zb-h1"}).plan_csv())
        self.assertEqual(pw.what_if(config, {"pipeline.schedule": "gpipe"}).what_if[0]["step_time_ns"],
                         pw.simulate(UNEQUAL, {"pipeline.schedule": "gpipe"}).step_time_ns)

    def test_of_the_readme_are_1f1b(self):
        text = (pathlib.Path(SOURCE) / "README.md").read_text()
        code = next(block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "schedule=" in block)
        names = {}
        exec(code, names)
        built_in = pw.simulate(names["config"], {"pipeline.schedule": "1f1b"})
        self.assertEqual(names["result"].step_time_ns, built_in.step_time_ns)


class Runs(unittest.TestCase):
    def test_end_with_the_weights_of_the_schedules_of_the_program(self):
        for backend in ("cpu", "reference"):
            for name, function in {"1f1b": mine_1f1b, "zb-h1": mine_h1}.items():
                overrides = {"run.backend": backend, "cluster.devices": 3, "pipeline.stages": 3}
                built_in = pw.run(TRAINED, {**overrides, "pipeline.schedule": name})
                own = pw.run(TRAINED, overrides, schedule=function)
                self.assertEqual((own.weights_hash, own.losses), (built_in.weights_hash, built_in.losses))
                self.assertEqual(own.plan, built_in.plan)

    def test_are_refused_where_they_would_hang(self):
        with self.assertRaises(pw.Error) as raised:
            pw.run(TRAINED, schedule=mine_stuck)
        self.assertEqual(raised.exception.code, pw.ExitCode.INFEASIBLE)


class Searches(unittest.TestCase):
    CONFIG = {**RESNET, "workload": {"model": "mlp", "hidden": [512, 256, 128, 64]},
              "search": {"schedules": ["gpipe", "1f1b"], "stages": [2], "micro_batch_sizes": [2, 4]}}

    def test_have_them_in_addition_to_the_schedules_of_the_program(self):
        both = pw.search(self.CONFIG, {"search.schedules": ["gpipe", "1f1b", "zb-h1"]})
        found = [pw.search(self.CONFIG, schedule=mine_h1, threads=threads) for threads in (1, 4)]
        for one in found:
            self.assertEqual(one.objective_ns, both.objective_ns)
            self.assertLessEqual(one.lower_bound_ns, one.objective_ns)
            self.assertEqual({plan["schedule"] for plan in one.plans}, {"gpipe", "1f1b", "mine_h1"})
            steps = {plan["schedule"]: plan["step_time_ns"] for plan in reversed(one.plans)}
            expected = {plan["schedule"]: plan["step_time_ns"] for plan in reversed(both.plans)}
            self.assertEqual(steps["mine_h1"], expected["zb-h1"])
        self.assertEqual(found[0].plans, found[1].plans)
        alone = pw.search({**self.CONFIG, "search": {"stages": [2], "micro_batch_sizes": [2, 4]}}, schedule=mine_h1)
        self.assertEqual({plan["schedule"] for plan in alone.plans}, {"mine_h1"})
        copy = pickle.loads(pickle.dumps(alone))
        self.assertEqual(pw.simulate(copy.best_config).step_time_ns, alone.objective_ns)

    def test_raise_what_the_function_raises(self):
        def refuses(shape):
            raise KeyError(shape.micro_batches)

        def forgets(shape):
            return [tasks[:-1] for tasks in mine_1f1b(shape)]

        for function, error in ((refuses, KeyError), (forgets, pw.Error)):
            with self.assertRaises(error):
                pw.search(self.CONFIG, schedule=function, threads=4)

    def test_leave_out_shapes_that_the_function_refuses(self):
        def few(shape):
            if shape.micro_batches > 2:
                raise pw.Error(f"few has two micro-batches, not {shape.micro_batches}", help="take 2")
            return mine_h1(shape)

        found = pw.search(self.CONFIG, schedule=few)
        self.assertEqual({plan["micro_batches"] for plan in found.plans if plan["schedule"] == "few"}, {2})
        self.assertEqual({plan["micro_batches"] for plan in found.plans if plan["schedule"] == "gpipe"}, {2, 4})
        with self.assertRaises(pw.Error) as raised:
            pw.simulate(UNIFORM, schedule=few)
        error = raised.exception
        self.assertEqual((error.fact, error.help), ("few has two micro-batches, not 8", "take 2"))
        self.assertEqual(error.key, "pipeline.schedule")
        sweep = pw.sweep(UNIFORM, {"pipeline.micro_batches": [2, 4]}, schedule=few)
        self.assertEqual([point.error is None for point in sweep], [True, False])


class Mistakes(unittest.TestCase):
    CONFIG = {**UNIFORM, "workload": {"model": "uniform", "stages": 2, "forward": "3 us", "output": "10 kB"},
              "cluster": {"devices": 2}, "pipeline": {"schedule": "1f1b", "micro_batches": 2}}
    LISTS = [[("F", 0, 0), ("F", 0, 1), ("B", 0, 0), ("B", 0, 1)],
             [("F", 1, 0), ("B", 1, 0), ("F", 1, 1), ("B", 1, 1)]]

    def error_of(self, function, config=None, **overrides):
        with self.assertRaises(pw.Error) as raised:
            pw.simulate(config or self.CONFIG, overrides, schedule=function)
        return raised.exception

    def changed(self, device, step, *tasks):
        lists = [list(tasks) for tasks in self.LISTS]
        lists[device][step:step + 1] = tasks
        return by_devices(lists)

    def test_name_the_task(self):
        pw.simulate(self.CONFIG, schedule=by_devices(self.LISTS))
        cases = [
            (self.changed(1, 2, ("F", 9, 1)), "device 1 step 2: ('F', 9, 1) is outside the pipeline",
             "stages are 0 to 1"),
            (self.changed(1, 2, ("F", 1, -1)), "('F', 1, -1) is outside", "micro-batches 0 to 1"),
            (self.changed(1, 2, ("F", 1, 2**70)), "is outside", "micro-batches 0 to 1"),
            (self.changed(0, 3, ("R", 0, 1)), "device 0 step 3: ('R', 0, 1) is no task", '"3F7"'),
            (self.changed(0, 3, "0B1 "), "'0B1 ' is no task", '"3F7"'),
            (self.changed(0, 3, ("B", 0, 1.5)), "('B', 0, 1.5) is outside", "micro-batches"),
            (self.changed(0, 3, None), "None is no task", '"3F7"'),
            (by_devices([[*self.LISTS[0][:1], ("B", 0, 1), *self.LISTS[0][1:3]], self.LISTS[1]]),
             "device 0 step 1 waits forever: 0B1 needs 0F1, which no device runs before it",
             "tasks that listed returns"),
            (self.changed(0, 3), "no device runs 0B1", "tasks that listed returns"),
            (self.changed(0, 3, ("B", 0, 1), ("B", 0, 1)),
             "device 0 step 4: 0B1 is listed twice; device 0 has it at step 3", "tasks that listed returns"),
            (self.changed(1, 2, ("I", 1, 1)), "device 1 waits forever at step 2: 1I1 needs 1F1, which no device runs",
             "tasks that listed returns"),
            (self.changed(0, 3, ("I", 0, 1)), "no device runs 0W1", "tasks that listed returns"),
            (self.changed(0, 1, ("B", 0, 1), ("F", 0, 1)), "0B1 is listed twice", "tasks that listed returns"),
            (self.changed(0, 3, ("B", 0, 1), ("F", 1, 1)), "device 0 step 4: 1F1 is not a task of this device",
             "tasks that listed returns"),
            (by_devices(self.LISTS[:1]), "returned 1 lists", "each of the 2 devices"),
            (by_devices(None), "returned None", "each of the 2 devices"),
            (by_devices([["0F0"], "0F1"]), "'0F1' for device 1", "list of tasks"),
            (by_devices([["0F0", "0F1"], ["1F0", "1F1"]]), "no backward", "B, or I and W"),
        ]
        for function, fact, help in cases:
            error = self.error_of(function)
            self.assertIn(fact, error.fact)
            self.assertIn(help, error.help)
            self.assertEqual((error.code, error.key), (pw.ExitCode.BAD_INPUT, "pipeline.schedule"))

    def test_of_deadlocks_name_the_cycle(self):
        error = self.error_of(mine_stuck)
        self.assertEqual(error.code, pw.ExitCode.INFEASIBLE)
        self.assertIn("plan 'mine_stuck' deadlocks", error.fact)
        cycle = re.findall(r"device (\d) step (\d): (\w+)", error.fact)
        expected = {("1", "0", "1F1"), ("0", "2", "0F1"), ("0", "1", "0B0"), ("1", "3", "1B0")}
        self.assertEqual(set(cycle), expected)
        self.assertIn("change the order of the tasks", error.help)

    def test_of_the_function_pass(self):
        def divides(shape):
            return [[("F", 0, 1 // (shape.devices - shape.devices))]]

        for call in (pw.simulate, pw.run):  # on this thread, and on one of the module
            try:
                call(self.CONFIG, {"run.backend": "emulated"}, schedule=divides)
            except ZeroDivisionError as error:
                self.assertIn("divides", [frame.name for frame in traceback.extract_tb(error.__traceback__)])
            else:
                self.fail("no exception")

    def test_of_names_and_placements(self):
        def gpipe(shape):
            return self.LISTS

        self.assertIn("like a schedule of pipewright", self.error_of(gpipe).fact)
        for placement, fact in (("W", "the placement 'W'"), ([], "the placement '[]'"), ([0, 2], "device 2"),
                                ([0, 0, 2], "no stage on device 1"), ([0, 1, 2], "2 devices do not fit"),
                                ([0, 1, 1, 0], "2 stages on 2 devices do not fit")):
            function = by_devices(self.LISTS)
            function.placement = placement
            self.assertIn(fact, self.error_of(function).fact)
        with self.assertRaisesRegex(TypeError, "pipeline.schedule takes names"):
            pw.simulate(self.CONFIG, schedule="1f1b")

    def test_of_the_program_that_has_no_python(self):
        said("simulate", "-", "--set", "pipeline.schedule=mine.py", config=self.CONFIG, code=2)


if __name__ == "__main__":
    unittest.main()
