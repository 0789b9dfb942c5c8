"""The calls: each is the command of the program that has its name."""
from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional, Union

from . import _core
from ._answers import Comparison, Search, Sweep
from ._arguments import Path, Progress, mapping, path_bytes, progress_of, seconds, text, texts, whole_number
from ._config import Config, ConfigLike, Overrides, config_of, settings_of, value_text
from ._error import Error
from ._results import Answer, Result
from ._schedule import ScheduleFunction

__all__ = ["compare", "compare_traces", "explain", "import_trace", "replay", "run", "sample", "search", "simulate",
           "simulate_many", "slack", "stragglers", "sweep", "what_if"]

_MOST_THREADS = 1024


def _result(outcome: _core.Outcome, config: Optional[Config]) -> Result:
    report = outcome.reports()[0]
    assert report is not None
    return Result(outcome, report, config)


def simulate(config: ConfigLike, overrides: Optional[Overrides] = None, *,
             schedule: Optional[ScheduleFunction] = None) -> Result:
    """Predicts the step of a config's plan. A config is a mapping, a path of a YAML file or a Config. `schedule` is a
    function from a Shape to the tasks of every device (docs/python.md), instead of the config's schedule.

    Raises Error: BAD_INPUT with every mistake of the config, INFEASIBLE for a plan that would deadlock. A plan that does
    not fit into memory is predicted, with `fits` False."""
    own = config_of(config, overrides, schedule)
    return _result(_core.simulate(own._source, False), own)


def simulate_many(configs: Iterable[ConfigLike], *, threads: int = 0, return_exceptions: bool = False,
                  progress: Progress = None) -> list[Any]:
    """Predicts many configs in one call, in parallel on `threads` threads (0: one per core), and returns their results in
    order. With return_exceptions, configs with mistakes give an Error in the list; otherwise the first is raised."""
    if isinstance(configs, (str, os.PathLike, Mapping, Config)) or not hasattr(configs, "__iter__"):
        raise TypeError(f"configs is a list of configs, not {type(configs).__name__}: simulate() takes one config")
    own = [config_of(config) for config in configs]
    outcomes = _core.simulate_many([config._source for config in own], whole_number("threads", threads, 0, _MOST_THREADS),
                                   progress_of(progress))
    results: list[Any] = []
    for outcome, config in zip(outcomes, own):
        if isinstance(outcome, Error):
            if not return_exceptions:
                raise outcome
            results.append(outcome)
        else:
            results.append(_result(outcome, config))
    return results


def sweep(config: ConfigLike, axes: Optional[Mapping[str, Sequence[Any]]] = None, overrides: Optional[Overrides] = None,
          *, schedule: Optional[ScheduleFunction] = None, progress: Progress = None) -> Sweep:
    """Simulates every combination of the values of some keys, {"pipeline.micro_batches": [4, 8]}; without `axes` those
    of the config's block `sweep`.

    {"pipeline.schedule": "all"} is every schedule that trains, and a list of names may have that of `schedule`, a
    function (docs/python.md), which is the config's schedule otherwise. `progress` is called with lines like "point 3 of 12".
    Points with mistakes have an error; if all have, the first is raised."""
    own = config_of(config, overrides, schedule)
    axis_texts = [(key, _values_of(key, values)) for key, values in mapping("axes", axes).items()]
    return Sweep(_core.sweep(own._source, axis_texts, progress_of(progress)), own)


def _values_of(key: str, values: Any) -> list[str]:
    if key == "pipeline.schedule" and isinstance(values, str) and values == "all":
        return ["all"]
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__iter__"):
        raise Error(f"the values of '{key}' must be a list, not {values!r}", help="write it as [first, second]", key=key)
    return [value_text(value, key) for value in values]


def search(config: ConfigLike, overrides: Optional[Overrides] = None, *, schedule: Optional[ScheduleFunction] = None,
           time_limit: Optional[float] = None, threads: int = 0, progress: Progress = None) -> Search:
    """Finds the fastest plan that fits, with a bound on all others (docs/search.md). `schedule`, a function
    (docs/python.md), is searched in addition to the schedules of search.schedules.

    `time_limit` is in seconds; without one the search ends by its own limit of work and always gives the same answer.
    `threads` (0: one per core) do not change the answer. Ctrl-C ends it with the best plan so far. Raises Error:
    INFEASIBLE if no plan fits, RUN_FAILED if it ended before a plan was tried."""
    own = config_of(config, overrides, schedule)
    return Search(*_core.search(own._source, seconds("time_limit", time_limit),
                                whole_number("threads", threads, 0, _MOST_THREADS), progress_of(progress)), own)


def run(config: ConfigLike, overrides: Optional[Overrides] = None, *, schedule: Optional[ScheduleFunction] = None,
        steps: Optional[int] = None, progress: Progress = None) -> Result:
    """Executes the plan of a config on this machine, `steps` steps or training.steps, and measures it.

    The result has the numbers of the step with the median time, and besides `losses`, `gradient_norms` and
    `weights_hash`. Ctrl-C ends the run after its current step, with the steps so far. Checkpoints, ranks and GPUs are
    left to `pipewright run`. Raises Error: INFEASIBLE if the plan does not fit into memory."""
    own = config_of(config, overrides, schedule)
    if steps is not None:
        own = own.override({"training.steps": whole_number("steps", steps, 1)})
    outcome, _ = _core.run(own._source, progress_of(progress))
    return _result(outcome, own)


def compare(config: ConfigLike, overrides: Optional[Overrides] = None, *, schedule: Optional[ScheduleFunction] = None,
            turns: Optional[int] = None, progress: Progress = None) -> Comparison:
    """Predicts the plan of a config, runs it on this machine, and compares. Without cluster.profile, costs are measured
    first, and the run takes `turns` with probes that calibrate them."""
    own = config_of(config, overrides, schedule)
    most = None if turns is None else whole_number("turns", turns, 0)
    return Comparison(_core.compare(own._source, most, progress_of(progress)))


def compare_traces(predicted: Result, measured: Result) -> Comparison:
    """Compares a prediction with a run, or with an imported trace, of the same plan."""
    return Comparison(_core.compare_traces(_report("predicted", predicted), _report("measured", measured)))


def _report(name: str, result: Any) -> _core.Report:
    if not isinstance(result, Result):
        raise TypeError(f"{name} is a Result, not {type(result).__name__}: {result!r}")
    return result._whole_report()


def import_trace(files: Union[Path, Sequence[Path]], *, tasks: Sequence[str] = ()) -> Result:
    """Reads a trace: of `pipewright run`, torch.profiler, Nsight Systems and others (docs/import.md). Several files, or
    a folder, are of the ranks of one job. `tasks` describe names of your own: ["fwd_mb{mb}_stage{stage}"]."""
    names = list(files) if hasattr(files, "__iter__") and not isinstance(files, (str, bytes)) else [files]
    return _result(_core.import_trace([path_bytes("files", name) for name in names], texts("tasks", tasks)), None)


def replay(measured: Result, *, explain: bool = True) -> Answer:
    """Simulates the plan of a measured trace with the times that its own tasks took; explains which stage is slow."""
    return Answer(_core.replay(_report("measured", measured), bool(explain)))


def _answer(config: Union[ConfigLike, Result], overrides: Optional[Overrides] = None, progress: Progress = None, *,
            samples: int = 0, jitter: str = "", seed: int = 0, stragglers: bool = False, what_if: Sequence[str] = (),
            explain: bool = False, slack: bool = False) -> Answer:
    if isinstance(config, Result):
        if config.config is None:
            raise Error("an imported trace has no config to ask about", help="replay() explains it")
        config = config.config
    own = config_of(config, overrides)
    return Answer(_core.answer(own._source, samples, jitter, seed, stragglers, list(what_if), explain, slack,
                               progress_of(progress)))


def explain(config: Union[ConfigLike, Result], overrides: Optional[Overrides] = None) -> Answer:
    """What is on the critical path, and why devices are idle: `explanation` (docs/answers.md)."""
    return _answer(config, overrides, explain=True)


def what_if(config: Union[ConfigLike, Result], *changes: Overrides, progress: Progress = None) -> Answer:
    """The step time with other values of keys, one row for each item, and where there are several one for all of them
    together: the list `what_if`.

        what_if(config, {"pipeline.schedule": "zb-h1", "cluster.link.bandwidth": "50 GB/s"})"""
    return _answer(config, None, progress, what_if=[setting for change in changes for setting in settings_of(change)])


def stragglers(config: Union[ConfigLike, Result], overrides: Optional[Overrides] = None, *,
               progress: Progress = None) -> Answer:
    """The step time with each device 10 % slower in turn: the list `stragglers`."""
    return _answer(config, overrides, progress, stragglers=True)


def sample(config: Union[ConfigLike, Result], draws: int, overrides: Optional[Overrides] = None, *,
           jitter: str = "lognormal:0.05", seed: int = 0, progress: Progress = None) -> Answer:
    """The distribution of the step time in `draws` draws in which tasks take longer or shorter: `jitter` is
    "lognormal:SIGMA" or "profile"."""
    return _answer(config, overrides, progress, samples=whole_number("draws", draws, 1), jitter=text("jitter", jitter),
                   seed=whole_number("seed", seed, 0, 2**64 - 1))


def slack(config: Union[ConfigLike, Result], overrides: Optional[Overrides] = None) -> str:
    """By how much each task could end later without a longer step, as CSV."""
    return str(_answer(config, overrides, slack=True))
