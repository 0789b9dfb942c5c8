"""Tables of NumPy arrays."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional

import numpy as np

if TYPE_CHECKING:
    import pandas
    from numpy.typing import NDArray

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]

__all__ = ["Columns", "Devices", "Memory", "Trace", "column_of"]


def _refuse_change(self: Any, *arguments: Any, **named: Any) -> Any:
    raise TypeError(f"{type(self).__name__} is read-only: dict(table) is a copy that can change")


class Columns(dict):  # type: ignore[type-arg]  # which pandas.DataFrame(columns) takes for its columns
    """Columns of equal length: NumPy arrays by name, `columns["start_ns"]` or `columns.start_ns`. They are read-only."""

    def __init__(self, columns: Mapping[str, np.ndarray[Any, Any]]) -> None:
        super().__init__(columns)
        for column in self.values():
            column.flags.writeable = False

    def __missing__(self, name: str) -> np.ndarray[Any, Any]:
        raise KeyError(f"no column '{name}'; there are {', '.join(self)}")

    def __getattr__(self, name: str) -> np.ndarray[Any, Any]:
        if name not in self:
            raise AttributeError(f"no column '{name}'; there are {', '.join(self)}")
        return self[name]

    __setitem__ = __delitem__ = __setattr__ = __delattr__ = __ior__ = _refuse_change  # type: ignore[assignment]
    clear = pop = popitem = setdefault = update = _refuse_change  # type: ignore[assignment]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)

    def copy(self) -> Columns:
        return type(self)(self)

    @property
    def rows(self) -> int:
        """The number of rows; len() is the number of columns."""
        return len(next(iter(self.values()), ()))

    def to_pandas(self) -> pandas.DataFrame:
        """The columns as a DataFrame. Needs pandas."""
        import pandas

        return pandas.DataFrame(dict(self))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.rows} rows of {', '.join(self)}>"


class Devices(Columns):
    """Numbers of each device in a step, one row per device. Times are in nanoseconds, sizes in bytes (docs/metrics.md)."""

    name: NDArray[np.str_]
    stages: NDArray[np.object_]  # a tuple of the device's stages in each row
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


def column_of(values: Sequence[Any], missing: Optional[float] = None) -> np.ndarray[Any, Any]:
    """The column of these values: lists become tuples, None becomes `missing` where that is given."""
    if missing is not None:
        return np.array([missing if value is None else value for value in values], dtype=np.float64)
    if any(isinstance(value, (list, tuple, dict)) or value is None for value in values):
        column = np.empty(len(values), dtype=object)
        for row, value in enumerate(values):
            column[row] = tuple(value) if isinstance(value, list) else value
        return column
    return np.array(values)
