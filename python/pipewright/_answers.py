"""What sweeps, searches and comparisons return."""
from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

import numpy as np

from . import _core
from ._arguments import Path, path_bytes, text, whole_number
from ._columns import Columns, column_of
from ._config import Config
from ._error import Error
from ._kept import KeptOutcome
from ._results import Answer, Result, in_frame, page_of
from ._view import ChartView, View, words_of

if TYPE_CHECKING:
    import pandas
    from numpy.typing import NDArray
    from typing_extensions import Unpack

__all__ = ["Comparison", "Point", "Search", "Sweep"]


@dataclass(frozen=True, repr=False, eq=False)
class Point:
    """A point of a sweep: `set` has its values by key, and there is either a `result` or an `error`."""

    set: dict[str, Any]
    config: Config
    result: Optional[Result]
    error: Optional[Error]

    def __repr__(self) -> str:
        what = repr(self.result) if self.result is not None else f"error: {self.error.fact if self.error else ''}"
        return f"<Point {', '.join(f'{key}={value}' for key, value in self.set.items())}: {what}>"


class _ReportOutcome:
    """The outcome of a report that has no JSON but its own."""

    def __init__(self, report: _core.Report) -> None:
        self.notes: list[str] = []
        self._report = report

    def json(self) -> dict[str, Any]:
        return self._report.json()


def _result_of(report: _core.Report, config: Optional[Config]) -> Result:
    return Result(_ReportOutcome(report), report, config)


class Sweep(Answer, Sequence[Point]):
    """The points of a sweep, in order: the last key is the fastest. `best` is the one with the most samples per second
    among those that fit, or None."""

    def __init__(self, outcome: _core.Outcome, config: Config) -> None:
        super().__init__(outcome)
        self._points = []
        for row, report, error in zip(self._numbers()["points"], outcome.reports(), outcome.errors()):
            own = config.override({**row["set"], "sweep": None})
            self._points.append(Point(row["set"], own, None if report is None else _result_of(report, own), error))

    def __getitem__(self, index: Any) -> Any:
        return self._points[index]

    def __len__(self) -> int:
        return len(self._points)

    def __iter__(self) -> Iterator[Point]:
        return iter(self._points)

    @property
    def points(self) -> list[Point]:
        return self._points

    @property
    def best(self) -> Optional[Point]:
        best = self._numbers()["best"]
        return next((point for point in self if best is not None and point.set == best["set"]), None)

    @property
    def table(self) -> Columns:
        """One row per point: its values, then numbers of its result (nan where there is an error)."""
        rows = self._numbers()["points"]
        columns = {key: column_of([row["set"][key] for row in rows]) for key in rows[0]["set"]}
        numbers = next(row for row in rows if "error" not in row)
        for key, value in numbers.items():
            if isinstance(value, (int, float)):
                columns[key] = np.array([row.get(key, np.nan) for row in rows], dtype=np.float64)
        return Columns(columns)

    def devices(self, name: str) -> NDArray[np.float64]:
        """A column of Result.devices of all points, [point, device]; nan where a point has no such device."""
        columns = [None if point.result is None else point.result.devices[name] for point in self]
        if any(column is not None and column.dtype.kind not in "biuf" for column in columns):
            raise TypeError(f"column '{name}' has no numbers: read Sweep[i].result.devices.{name}")
        most = max((len(column) for column in columns if column is not None), default=0)
        table = np.full((len(columns), most), np.nan)
        for row, column in zip(table, columns):
            if column is not None:
                row[: len(column)] = column
        return table

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a DataFrame. Needs pandas."""
        return self.table.to_pandas()

    def plot(self, file: Path, *, x: str = "", y: str = "", z: str = "", **view: Unpack[ChartView]) -> None:
        """Draws samples or tokens per second over a key with numbers, a line for each combination of the other keys.

        `x` is a key, or a number such as "step-time". `y` is a number, such as "bubble", or a second key: then `z` is
        the number in the cells of a map. The keywords of pipewright.plot() `figure`, `width`, `font_size`, `title` and
        `without=["titles"]` say how."""
        self._outcome.plot(path_bytes("file", file), words_of(ChartView, view), text("x", x), text("y", y), text("z", z))

    def __repr__(self) -> str:
        return f"<Sweep of {len(self)} points, best {self.best!r}>"


class Search(Answer):
    """What a search found. `plans` are ranked: those that fit first, then by step time; `best` is the first of them.

    Every key of the JSON is an attribute (docs/search.md): `best`, `plans`, `lower_bound_ns`, `gap`, `candidates`,
    `seconds`. `interrupted` says that Ctrl-C ended it: then this is the best so far."""

    best: dict[str, Any]
    plans: list[dict[str, Any]]
    lower_bound_ns: int  # no plan of the search has a shorter step
    gap: float  # (step - lower bound) / step
    seconds: float

    def __init__(self, outcome: _core.Outcome, interrupted: bool, config: Config) -> None:
        super().__init__(outcome)
        self._interrupted = interrupted
        self._schedule = config._schedule

    @property
    def interrupted(self) -> bool:
        return self._interrupted

    def best_yaml(self, file: Path = "config") -> str:
        """The config of the best plan as YAML, with paths relative to the folder of `file`."""
        if "plans" not in self._numbers():
            raise Error("the objectives of other planners have no schedule: there is no config of the best plan",
                        help="search objective makespan", key="search.objective")
        return self._outcome.config(path_bytes("file", file))

    @property
    def best_config(self) -> Config:
        """The config of the best plan, ready for simulate() and run()."""
        return Config.from_yaml(self.best_yaml())._with_schedule(self._schedule)

    def save(self, file: Path) -> None:
        """Writes the config of the best plan."""
        text = self.best_yaml(file)
        with open(file, "w", encoding="utf-8") as target:
            target.write(text)

    def text(self, most: int = 10) -> str:
        """The table of the `most` best plans and the stages of the best one."""
        return self._outcome.text(whole_number("most", most, 1))

    def to_pandas(self) -> pandas.DataFrame:
        """The plans as a DataFrame, one row each. Needs pandas."""
        import pandas

        return pandas.DataFrame(self.plans)

    def plot(self, file: Path, **view: Unpack[ChartView]) -> None:
        """Draws reserved memory against step time of all plans; with other objectives the time of every stage. The
        keywords are the keywords of Sweep.plot() without the axes."""
        self._outcome.plot(path_bytes("file", file), words_of(ChartView, view))

    def __repr__(self) -> str:
        numbers = self._numbers()
        plans = f" of {len(numbers['plans'])} plans" if "plans" in numbers else ""
        return f"<Search{plans}, best {numbers['objective']:.4g} s{', interrupted' * self.interrupted}>"


class Comparison(Answer):
    """A prediction and a measurement of one plan. Keys of the JSON are attributes (docs/accuracy.md); errors are signed,
    (predicted - measured) / measured."""

    def __init__(self, outcome: _core.Outcome) -> None:
        super().__init__(outcome)
        predicted, measured = outcome.reports()
        assert predicted is not None and measured is not None
        self._predicted, self._measured = _result_of(predicted, None), _result_of(measured, None)

    @property
    def predicted(self) -> Result:
        return self._predicted

    @property
    def measured(self) -> Result:
        return self._measured

    def plot(self, file: Path, **view: Unpack[View]) -> None:
        """Draws both timelines on one time axis, with the keywords of pipewright.plot()."""
        outcome = self._outcome
        if isinstance(outcome, KeptOutcome):
            outcome = _core.compare_traces(self.predicted._whole_report(), self.measured._whole_report())
        outcome.plot(path_bytes("file", file), words_of(View, view))

    def _repr_html_(self) -> str:
        page = page_of(self.plot)
        text = f"<pre>{html.escape(str(self).strip())}</pre>"
        return in_frame(page, min(900, 400 + 104 * self.predicted.devices.rows)) + text if page else text

    def __repr__(self) -> str:
        return f"<Comparison of {self.predicted!r} and {self.measured!r}>"
