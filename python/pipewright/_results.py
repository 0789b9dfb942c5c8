"""Predictions, runs and imported traces, with their numbers as NumPy arrays."""
from __future__ import annotations

import html
import os
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

import numpy as np

from . import _core
from ._arguments import Path, path_bytes, texts
from ._columns import Devices, Memory, Trace, column_of
from ._config import Config
from ._error import Error, ExitCode
from ._kept import AnyOutcome, AnyReport, KeptNumbers, kept_outcome, kept_report, whole_report
from ._view import View, words_of

if TYPE_CHECKING:
    import pandas
    from typing_extensions import Unpack

__all__ = ["Answer", "Result", "plot"]

_CHART_HEIGHT = 520  # of a chart in a notebook, in pixels

_MISSING = {"reserved_memory_bytes": np.nan, "memory_limit_bytes": np.inf}


def devices_of(report: AnyReport, rows: list[dict[str, Any]]) -> Devices:
    """The column for each key of the JSON of devices; the kinds of memory have columns of their own."""
    columns: dict[str, np.ndarray[Any, Any]] = {"name": np.array(report.names, dtype=np.str_)}
    for key, first in (rows[0] if rows else {}).items():
        if isinstance(first, dict):
            for kind in first:
                columns[f"{kind}_bytes"] = column_of([row[key][kind] for row in rows])
        elif key != "name":
            columns[key] = column_of([row[key] for row in rows], _MISSING.get(key))
    return Devices(columns)


def _from_memory(columns: dict[str, bytes], long: set[str]) -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.frombuffer(column, dtype=np.int64 if name in long else np.int32)
            for name, column in columns.items()}


def in_frame(page: str, height: int) -> str:
    """A page as a part of a notebook."""
    return f'<iframe srcdoc="{html.escape(page)}" style="width: 100%; height: {height}px; border: 0"></iframe>'


def page_of(draw: Callable[[str], None]) -> str:
    """The page that `draw` writes to a file, or "" where there is nothing to draw."""
    with tempfile.TemporaryDirectory(prefix="pipewright-") as folder:
        file = os.path.join(folder, "page.html")
        try:
            draw(file)
        except Error:
            return ""
        with open(file, encoding="utf-8") as page:
            return page.read()


class Answer:
    """What a call returned: the object that the program prints with --json, whose keys are attributes, and notes.

    `notes` are lines for the user, which the program prints as "note: ...". `print(answer)` shows the tables of the
    program, and so does a notebook. Answers are read-only. They can be pickled and copied."""

    def __init__(self, outcome: AnyOutcome) -> None:
        self._outcome = outcome
        self._json: Optional[dict[str, Any]] = None

    def json(self) -> dict[str, Any]:
        """A new dict with what the program prints with --json."""
        return self._outcome.json()

    @property
    def notes(self) -> list[str]:
        return self._outcome.notes

    def _numbers(self) -> dict[str, Any]:
        if self._json is None:
            self._json = self.json()
        return self._json

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._numbers()[name]
        except KeyError:
            raise AttributeError(f"no '{name}' in {type(self).__name__}; its JSON has {', '.join(self._numbers())}") from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._numbers()]

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            raise AttributeError(f"'{name}' of {type(self).__name__} is read-only")
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_outcome": kept_outcome(self._outcome)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __str__(self) -> str:
        return self._outcome.text(10)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(key for key, value in self._numbers().items() if value is not None)}>"

    def _repr_html_(self) -> str:
        page = page_of(lambda file: self._outcome.plot(path_bytes("file", file), {})) if self._outcome.has_chart() else ""
        return (in_frame(page, _CHART_HEIGHT) if page else "") + f"<pre>{html.escape(str(self).strip())}</pre>"


class Result(Answer):
    """A prediction, a run or an imported trace: the numbers of one step.

    Every key of the JSON is an attribute; times are in nanoseconds. `devices`, `trace` and `memory` are tables of NumPy
    arrays. In a notebook a Result shows its timeline."""

    label: str  # "predicted" or "measured"
    schedule: str
    step_time_ns: int
    makespan_ns: int
    span_ns: int
    ideal_ns: int
    bubble_rate: float  # (makespan - ideal) / makespan
    bubble_ratio: float  # (makespan - ideal) / ideal
    samples_per_second: float  # of all replicas
    fits: bool  # into the memory of all devices
    tasks: int
    stages: int
    micro_batches: int
    micro_batch_size: int
    mini_batch: int  # samples, of all replicas
    plan_hash: str

    def __init__(self, outcome: AnyOutcome, report: AnyReport, config: Optional[Config] = None) -> None:
        super().__init__(outcome)
        self._report = report
        self._devices: Optional[Devices] = None
        self._plan: Optional[list[list[str]]] = None
        self._config = config

    def __getstate__(self) -> dict[str, Any]:
        numbers = KeptNumbers(self._outcome.json(), self._outcome.notes)
        return {**self.__dict__, "_outcome": numbers, "_report": kept_report(self._report)}

    @property
    def config(self) -> Optional[Config]:
        """The config that was simulated or run; None for an imported trace."""
        return self._config

    @property
    def devices(self) -> Devices:
        if self._devices is None:
            self._devices = devices_of(self._report, self._numbers()["devices"])
        return self._devices

    def _whole_report(self) -> _core.Report:
        """With events: a prediction is kept without them, and simulated again."""
        if self._report.has_events() or self.config is None:
            return whole_report(self._report)
        again = _core.simulate(self.config._source, True).reports()[0]
        assert again is not None
        if again.json() != self._report.json():
            raise Error("a file of the config has changed since it was simulated", help="call simulate() again",
                        code=ExitCode.RUN_FAILED)
        self._report = again
        return again

    @property
    def trace(self) -> Trace:
        """When every task ran: one row per task."""
        columns = _from_memory(self._whole_report().events(), {"start_ns", "end_ns", "bytes"})
        columns["op"] = np.array(_core.op_letters)[columns["op"]]
        return Trace(columns)

    @property
    def memory(self) -> Memory:
        """The memory in use of every device over time."""
        columns = self._whole_report().memory()
        return Memory(_from_memory(columns, set(columns)))

    @property
    def stages_of(self) -> list[list[int]]:
        """The stages of every device."""
        return self._report.stages_of

    @property
    def plan(self) -> list[list[str]]:
        """The names of every device's tasks in order: "3F7" is the forward of stage 3 on micro-batch 7."""
        if self._plan is None:
            if self.config is None:
                raise Error("an imported trace has no config to make its plan of", help="read the columns of `trace`")
            self._plan = _core.tasks(self.config._source)
        return self._plan

    def plan_csv(self) -> str:
        """The plan in PyTorch's schedule CSV (compute_only), for its pipeline runtime."""
        if self.config is None:
            raise Error("an imported trace has no config to make its plan of")
        return _core.csv(self.config._source)

    def to_pandas(self) -> pandas.DataFrame:
        """The devices as a DataFrame. Needs pandas."""
        return self.devices.to_pandas()

    def plot(self, file: Path, **view: Unpack[View]) -> None:
        """Draws the timeline, as plot() does and with its keywords."""
        plot(self, file, **view)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._report.title()}>"

    def __str__(self) -> str:
        return self._report.text()

    def _repr_html_(self) -> str:
        page = page_of(self.plot)
        return in_frame(page, min(900, 330 + 52 * self.devices.rows)) if page else f"<pre>{html.escape(str(self))}</pre>"


def plot(results: Union[Result, Sequence[Result]], file: Path, titles: Optional[Sequence[str]] = None,
         **view: Unpack[View]) -> None:
    """Draws timelines one above the other on one time axis, of runs one step. `titles` are of the timelines.

    The name of the file chooses the format: .html (one page with zoom), .svg, .png, .pdf, .tex (text for LaTeX, with a
    PDF of the rest; these four need gnuplot), .txt, .json (Chrome trace), .gp (gnuplot's script).

    figure        "column" or "page": the width and the text of a figure in a paper, 240 points with text of 7, or 504, 8
    width         in pixels, which are points in PDF, or "8.5cm", "85mm", "3.3in", "252pt"
    font_size     of the text in pixels, 11 by default
    title         above the picture
    without       parts to leave out: ["memory", "transfers", "legend", "titles"]
    device_names  the names of the rows
    range         a part of the time: "1.2ms..3ms"

    Raises Error for another name, more devices than a picture shows, a wrong value, or a file that cannot be written."""
    drawn = list(results) if hasattr(results, "__iter__") else [results]
    for one in drawn:
        if not isinstance(one, Result):
            raise TypeError(f"results is a Result or a list of them, not {type(one).__name__}: {one!r}")
    names = [""] * len(drawn) if titles is None else texts("titles", titles)
    if len(names) != len(drawn):
        raise ValueError(f"{len(drawn)} results, but {len(names)} titles")
    _core.plot([result._whole_report() for result in drawn], names, path_bytes("file", file), words_of(View, view))
