"""The balanced split of a chain of layers, for programs that have only costs."""
from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ._calls import search, simulate
from ._config import Config
from ._results import Result

__all__ = ["Partition", "auto_partition"]

_LARGEST_NS = 10_000_000  # of a cost as a time: seven digits of each cost count


@dataclass(frozen=True)
class Partition(Sequence["list[int]"]):
    """The split that was found: a sequence with the list of layers of every stage."""

    stages: list[list[int]]  # numbers of the layers of each stage
    step: float  # predicted, in the unit of the costs
    lower_bound: float  # no split has a shorter step
    bubble_rate: float  # of the predicted step
    result: Result  # the prediction, with 1 unit of cost = `unit_ns` nanoseconds
    unit_ns: float

    @property
    def sizes(self) -> list[int]:
        """The number of layers of each stage."""
        return [len(stage) for stage in self.stages]

    @property
    def cuts(self) -> list[int]:
        """The first layer of each stage but the first."""
        return [stage[0] for stage in self.stages[1:]]

    def __getitem__(self, index: Any) -> Any:
        return self.stages[index]

    def __len__(self) -> int:
        return len(self.stages)

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.stages)


def _unit(costs: Sequence[float]) -> float:
    """A power of ten that makes the largest cost about _LARGEST_NS nanoseconds."""
    largest = max(costs)
    return 10.0 ** math.floor(math.log10(_LARGEST_NS / largest)) if largest > 0 else 1.0


def _config(schedule: str, num_stages: int, num_devices: int, num_microbatches: int, comm_ns: int, model: str) -> Config:
    return Config({
        "workload": {"model": model},
        "cluster": {"devices": num_devices, "link": {"latency": f"{comm_ns} ns", "bandwidth": "1000 TB/s"}},
        "pipeline": {"schedule": schedule, "stages": num_stages, "micro_batches": num_microbatches},
    })


def auto_partition(fwd_costs: Sequence[float], bwd_costs: Sequence[float], num_microbatches: int,
                   comm_cost_per_stage: float = 0.0, schedule_type: str = "1f1b", *, num_stages: int,
                   num_devices: Optional[int] = None, time_limit: Optional[float] = None) -> Partition:
    """Splits a chain of layers into stages so that the simulated step is shortest.

    fwd_costs, bwd_costs  costs of the layers for one micro-batch, forward and whole backward, in any unit of time
    num_microbatches      micro-batches of a step
    comm_cost_per_stage   time of a message between two stages, in the same unit; messages travel while devices compute
    schedule_type         "1f1b", "interleaved_1f1b", "interleaved_zero_bubble" or any schedule of `pipewright list schedules`
    num_stages            stages in all; every stage has a layer
    num_devices           default: num_stages, for the two interleaved schedules half of it
    time_limit            seconds; by default the search ends by its own limit of work

    Schedules with separate backwards for inputs and weights take half of bwd_costs for each. The arguments are those of
    auto_partition in PyTorch's pull request 179212. Raises ValueError for costs that are negative or not finite, and
    Error for numbers of stages, devices and micro-batches that the schedule cannot use."""
    forward, backward = [float(cost) for cost in fwd_costs], [float(cost) for cost in bwd_costs]
    if len(forward) != len(backward) or not forward:
        raise ValueError(f"fwd_costs and bwd_costs are of the same layers, not {len(forward)} and {len(backward)}")
    if not all(math.isfinite(cost) and cost >= 0 for cost in [*forward, *backward, comm_cost_per_stage]):
        raise ValueError("costs are finite and not negative")
    if num_devices is None:
        interleaved = schedule_type in ("interleaved_1f1b", "interleaved_zero_bubble")
        num_devices = max(1, num_stages // 2) if interleaved else num_stages
    unit = _unit([*forward, *backward, comm_cost_per_stage])
    layers = []
    for layer, (fwd, bwd) in enumerate(zip(forward, backward)):
        whole = round(bwd * unit)
        layers.append({"name": f"l{layer}", "forward": f"{round(fwd * unit)} ns", "output": "1 B",
                       "backward_input": f"{whole - whole // 2} ns", "backward_weight": f"{whole // 2} ns"})
    with tempfile.TemporaryDirectory(prefix="pipewright-") as folder:
        model = os.path.join(folder, "layers.json")
        with open(model, "w", encoding="utf-8") as file:
            json.dump({"layers": layers}, file)
        found = search(_config(schedule_type.replace("_", "-"), num_stages, num_devices, num_microbatches,
                               round(comm_cost_per_stage * unit), model), time_limit=time_limit)
        stages = [[int(name[1:]) for name in stage["layers"]] for stage in found.best["stages"]]
        result = simulate(found.best_config)
        result._whole_report(), result.plan  # while the file is there
    return Partition(stages, result.step_time_ns / unit, found.lower_bound_ns / unit, result.bubble_rate, result, unit)
