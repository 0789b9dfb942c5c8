"""Predictions, runs and imported traces, with their numbers as NumPy arrays."""
from __future__ import annotations

import html
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

import numpy as np

from . import _core
from ._config import Config
from ._error import Error, ExitCode

if TYPE_CHECKING:
    import pandas
    from numpy.typing import NDArray

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]

__all__ = ["Columns", "Devices", "Memory", "Result", "Trace", "plot"]

_MOST_DRAWN_TASKS = 20_000  # in a notebook: beyond them a page has many megabytes


class Columns(Mapping[str, "np.ndarray[Any, Any]"]):
    """Columns of equal length: NumPy arrays by name, `columns["start_ns"]` or `columns.start_ns`."""

    def __init__(self, columns: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self._columns = dict(columns)

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        """The number of columns; `rows` is that of rows."""
        return len(self._columns)

    def __getattr__(self, name: str) -> np.ndarray[Any, Any]:
        columns: dict[str, np.ndarray[Any, Any]] = self.__dict__.get("_columns", {})
        if name not in columns:
            raise AttributeError(f"no column '{name}'; there are {', '.join(columns)}")
        return columns[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._columns]

    @property
    def rows(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def to_pandas(self) -> pandas.DataFrame:
        """The columns as a DataFrame. Needs pandas."""
        import pandas

        return pandas.DataFrame(self._columns)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.rows} rows of {', '.join(self._columns)}>"


class Devices(Columns):
    """Numbers of each device in a step, one row per device. Times are in nanoseconds, sizes in bytes (docs/metrics.md)."""

    name: NDArray[np.str_]
    busy_ns: IntArray  # computing
    idle_ns: IntArray  # makespan - busy
    exposed_communication_ns: IntArray  # part of idle in which the next task waits for a transfer under way
    peak_memory_bytes: IntArray
    reserved_memory_bytes: FloatArray  # before the first step; nan where a trace does not say it
    memory_limit_bytes: FloatArray  # inf where there is none
    peak_in_flight: IntArray  # micro-batches with activations
    weight_versions: IntArray


class Trace(Columns):
    """When every task ran, one row per task: by device, then in the order of its list. Arrays are read-only.

    `op` has the letters of operations: F forward, B backward, I and W backward for inputs and for weights, R recompute,
    U update, S gradient sum, SEND_F, RECV_F, SEND_B, RECV_B transfers (with the other stage in `peer`, else -1)."""

    step: NDArray[np.int32]
    device: NDArray[np.int32]
    op: NDArray[np.str_]
    stage: NDArray[np.int32]
    microbatch: NDArray[np.int32]
    peer: NDArray[np.int32]
    rank: NDArray[np.int32]
    version: NDArray[np.int32]  # of the weights used or made; -1: none
    start_ns: IntArray
    end_ns: IntArray
    bytes: IntArray  # moved, of transfers


class Memory(Columns):
    """Memory in use of devices, one row per change: bytes by kind from `time_ns` on."""

    step: IntArray
    device: IntArray
    time_ns: IntArray


def _array(values: list[Any], missing: Optional[float]) -> np.ndarray[Any, Any]:
    if missing is None:
        return np.array(values)
    return np.array([missing if value is None else value for value in values], dtype=np.float64)


_MISSING = {"reserved_memory_bytes": np.nan, "memory_limit_bytes": np.inf}


def devices_of(report: _core.Report, rows: list[dict[str, Any]]) -> Devices:
    """The column for each key of the JSON of devices; the kinds of memory have columns of their own."""
    columns: dict[str, np.ndarray[Any, Any]] = {"name": np.array(report.names, dtype=np.str_)}
    for key, first in (rows[0] if rows else {}).items():
        if isinstance(first, dict):
            for kind in first:
                columns[f"{kind}_bytes"] = _array([row[key][kind] for row in rows], None)
        else:
            columns[key] = _array([row[key] for row in rows], _MISSING.get(key))
    return Devices(columns)


def _from_memory(columns: dict[str, bytes], long: set[str]) -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.frombuffer(column, dtype=np.int64 if name in long else np.int32)
            for name, column in columns.items()}


class Answer:
    """What a call returned: the object that the program prints with --json, whose keys are attributes, and notes.

    `notes` are lines for the user, which the program prints as "note: ...". `print(answer)` shows the tables of the program."""

    def __init__(self, outcome: _core.Outcome) -> None:
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

    def __str__(self) -> str:
        return self._outcome.text(10)


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
    samples_per_second: float
    fits: bool  # into the memory of all devices
    tasks: int
    stages: int
    micro_batches: int
    micro_batch_size: int
    mini_batch: int  # samples
    plan_hash: str

    def __init__(self, outcome: _core.Outcome, report: _core.Report, config: Optional[Config] = None) -> None:
        super().__init__(outcome)
        self._report = report
        self._devices: Optional[Devices] = None
        self._plan: Optional[list[list[str]]] = None
        self.config = config

    @property
    def devices(self) -> Devices:
        if self._devices is None:
            self._devices = devices_of(self._report, self._numbers()["devices"])
        return self._devices

    def _whole_report(self) -> _core.Report:
        """With events: a prediction is kept without them, and simulated again."""
        if self._report.has_events() or self.config is None:
            return self._report
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

    def plot(self, file: Union[str, os.PathLike[str]]) -> None:
        """Draws the timeline: .html, .svg, .png, .pdf, .txt, .json (Chrome trace) or .gp by the name of the file."""
        plot(self, file)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._report.title()}>"

    def __str__(self) -> str:
        return self._report.text()

    def _repr_html_(self) -> str:
        table = f"<pre>{html.escape(str(self))}</pre>"
        if self.tasks > _MOST_DRAWN_TASKS:
            return table
        try:
            with tempfile.TemporaryDirectory() as folder:
                page = os.path.join(folder, "timeline.html")
                plot(self, page)
                with open(page, encoding="utf-8") as file:
                    text = file.read()
        except Error:  # too many devices for a picture
            return table
        height = min(900, 330 + 52 * self.devices.rows)
        return f'<iframe srcdoc="{html.escape(text)}" style="width: 100%; height: {height}px; border: 0"></iframe>'


def plot(results: Union[Result, Sequence[Result]], file: Union[str, os.PathLike[str]],
         titles: Optional[Sequence[str]] = None) -> None:
    """Draws timelines one above the other on one time axis, of runs one step.

    The name of the file chooses the format: .html (one page with zoom), .svg, .png, .pdf (these need gnuplot), .txt,
    .json (Chrome trace), .gp. Raises Error for another name, more devices than a picture shows, or a file that cannot be
    written."""
    drawn = [results] if isinstance(results, Result) else list(results)
    names = list(titles) if titles is not None else [""] * len(drawn)
    if len(names) != len(drawn):
        raise ValueError(f"{len(drawn)} results, but {len(names)} titles")
    _core.plot([result._whole_report() for result in drawn], names, os.fspath(file))
