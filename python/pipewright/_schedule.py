"""Schedules of the caller: functions from a shape to the tasks of every device."""
from __future__ import annotations

import inspect
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional, Union

from . import _core

__all__ = ["Costs", "OwnSchedule", "ScheduleFunction", "Shape", "schedule_of"]

ScheduleFunction = Callable[..., Sequence[Sequence[Any]]]


@dataclass(frozen=True)
class Shape:
    """What a schedule orders: one pipeline, whose stages have devices."""

    devices: int
    stages: int
    micro_batches: int
    placement: tuple[int, ...]  # the device of each stage

    def stages_of(self, device: int) -> list[int]:
        """The stages of a device, ascending."""
        return [stage for stage, at in enumerate(self.placement) if at == device]


class Costs:
    """Predicted times in nanoseconds, each on the device of its stage and without other messages on the way."""

    def __init__(self, classes: Sequence[int], times: Sequence[Any], messages: dict[tuple[int, int], Sequence[int]]) -> None:
        self._classes, self._times, self._messages = classes, times, messages

    def time(self, op: str, stage: int, micro_batch: int = 0) -> int:
        """The time of "F", "B", "I" or "W"."""
        return self._times[stage][self._class_of(micro_batch)]["FBIW".index(op)]

    def message(self, stage: int, to: int, micro_batch: int = 0) -> int:
        """The time from the end of a pass of `stage` to the start of the pass of `to`, 0 on one device."""
        times = self._messages.get((stage, to))
        return times[self._class_of(micro_batch)] if times else 0

    def _class_of(self, micro_batch: int) -> int:
        return self._classes[micro_batch] if self._classes else 0


def _takes_costs(function: ScheduleFunction) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # a function without a signature
        return False
    return sum(one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
               for one in parameters) > 1


class OwnSchedule:
    """A function as the module takes it. Copies and pickles have the function alone."""

    def __init__(self, function: ScheduleFunction) -> None:
        if not callable(function):
            raise TypeError(f"schedule is a function of a shape, not {type(function).__name__}: {function!r}; "
                            "the key pipeline.schedule takes names")

        def lists(devices: int, stages: int, micro_batches: int, placement: tuple[int, ...], costs: Optional[Any]) -> Any:
            shape = Shape(devices, stages, micro_batches, placement)
            return function(shape) if costs is None else function(shape, Costs(*costs))

        self.function = function
        self.name: str = getattr(function, "__name__", type(function).__name__)
        placement: Union[str, Sequence[int]] = getattr(function, "placement", "any")
        if not isinstance(placement, str):
            placement = [operator.index(device) for device in placement]
        self.core = _core.OwnSchedule(self.name, placement, _takes_costs(function), lists)

    def __reduce__(self) -> tuple[Any, ...]:
        return OwnSchedule, (self.function,)


def schedule_of(function: Optional[ScheduleFunction]) -> Optional[OwnSchedule]:
    return None if function is None else OwnSchedule(function)
