"""Pipeline-parallel training, predicted and executed from one plan.

    import pipewright as pw

    result = pw.simulate("cfg.yaml", {"pipeline.micro_batches": 16})
    print(result.step_time_ns, result.devices.idle_ns)
    best = pw.search("cfg.yaml").best_config

Times are in nanoseconds and sizes in bytes where a name ends in _ns or _bytes. Mistakes raise pipewright.Error. Nothing
is printed.
"""
from ._answers import Comparison, Point, Search, Sweep
from ._calls import (compare, compare_traces, explain, import_trace, replay, run, sample, search, simulate, simulate_many,
                     slack, stragglers, sweep, what_if)
from ._columns import Columns, Devices, Memory, Trace
from ._config import Config
from ._core import version as __version__
from ._error import Error, ExitCode
from ._partition import Partition, auto_partition
from ._results import Answer, Result, plot
from ._schedule import Costs, Shape

__all__ = ["Answer", "Columns", "Comparison", "Config", "Costs", "Devices", "Error", "ExitCode", "Memory", "Partition", "Point", "Result",
           "Search", "Shape", "Sweep", "Trace", "__version__", "auto_partition", "compare", "compare_traces", "explain",
           "import_trace", "plot", "replay", "run", "sample", "search", "simulate", "simulate_many", "slack", "stragglers",
           "sweep", "what_if"]
