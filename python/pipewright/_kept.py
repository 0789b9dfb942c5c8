"""What results keep when they are pickled or copied: all that the module can show of them, as plain data."""
from __future__ import annotations

import copy
import os
import tempfile
import zlib
from typing import Any, Optional, Union

from . import _core
from ._error import Error

__all__ = ["AnyOutcome", "AnyReport", "KeptNumbers", "KeptOutcome", "KeptReport", "kept_outcome", "kept_report", "whole_report"]

_ALL_ROWS = 1_000_000


def _trace_bytes(report: _core.Report) -> bytes:
    with tempfile.TemporaryDirectory(prefix="pipewright-") as folder:
        file = os.path.join(folder, "trace.json")
        report.write(os.fsencode(file))
        with open(file, "rb") as trace:
            return zlib.compress(trace.read(), 1)


class KeptReport:
    """A report; of a prediction without its trace, which is simulated again."""

    def __init__(self, report: _core.Report) -> None:
        self.names, self.limits, self.stages_of = report.names, report.limits, report.stages_of
        self._json, self._text, self._title = report.json(), report.text(), report.title()
        self._trace = _trace_bytes(report) if report.has_events() else None
        self._whole: Optional[_core.Report] = None

    def json(self) -> dict[str, Any]:
        return copy.deepcopy(self._json)

    def text(self) -> str:
        return self._text

    def title(self) -> str:
        return self._title

    def has_events(self) -> bool:
        return self._trace is not None

    def whole(self) -> _core.Report:
        """The report with its trace."""
        assert self._trace is not None
        if self._whole is None:
            with tempfile.TemporaryDirectory(prefix="pipewright-") as folder:
                file = os.path.join(folder, "trace.json")
                with open(file, "wb") as trace:
                    trace.write(zlib.decompress(self._trace))
                self._whole = _core.read_own_report(os.fsencode(file), self.names, self.limits)
        return self._whole

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_whole": None}


class KeptNumbers:
    """The numbers and notes of an outcome. Its texts and pictures come from its report."""

    def __init__(self, numbers: dict[str, Any], notes: list[str]) -> None:
        self.notes = notes
        self._json = numbers

    def json(self) -> dict[str, Any]:
        return copy.deepcopy(self._json)


class KeptOutcome:
    """An outcome without its reports. The `most` rows of a table are its first rows."""

    def __init__(self, outcome: _core.Outcome) -> None:
        self.notes = outcome.notes
        self._json = outcome.json()
        self._lines = outcome.text(_ALL_ROWS).split("\n")
        self._rows = len(self._lines) - outcome.text(1).count("\n")  # that a table with `most` rows may lack, and one
        self._config = outcome.config("") if outcome.has_config() else ""
        self._chart: Union[_core.Chart, Error, None] = None
        try:
            self._chart = outcome.chart() if outcome.has_chart() else None
        except Error as error:  # there is nothing to draw
            self._chart = error

    def json(self) -> dict[str, Any]:
        return copy.deepcopy(self._json)

    def text(self, most: int) -> str:
        return "\n".join([*self._lines[:1 + most], *self._lines[1 + max(most, self._rows):]])

    def has_chart(self) -> bool:
        return self._chart is not None

    def plot(self, file: bytes, view: dict[str, list[str]], x: str = "", y: str = "", z: str = "") -> None:
        if x or y or z:
            raise Error("a copied sweep has its usual chart only", help="draw the others before it is pickled or copied")
        if isinstance(self._chart, Error):
            raise self._chart
        assert self._chart is not None
        _core.plot_chart(self._chart, file, view)

    def has_config(self) -> bool:
        return bool(self._config)

    def config(self, file: Union[str, bytes]) -> str:
        """The config with whole paths, which are right in any folder."""
        return self._config


AnyReport = Union[_core.Report, KeptReport]
AnyOutcome = Any  # what has the methods of _core.Outcome that are used


def kept_report(report: AnyReport) -> KeptReport:
    return report if isinstance(report, KeptReport) else KeptReport(report)


def kept_outcome(outcome: Any) -> Any:
    return KeptOutcome(outcome) if isinstance(outcome, _core.Outcome) else outcome


def whole_report(report: AnyReport) -> _core.Report:
    return report.whole() if isinstance(report, KeptReport) else report
