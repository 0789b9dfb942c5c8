"""What calls take: checked here, so that mistakes are reported in pipewright's words."""
from __future__ import annotations

import math
import operator
import os
from collections.abc import Mapping
from typing import Any, Callable, Optional, Union

from ._error import Error

__all__ = ["Path", "Progress", "mapping", "path_bytes", "progress_of", "seconds", "text", "texts", "whole_number"]

Progress = Optional[Callable[[str], object]]
Path = Union[str, "os.PathLike[str]"]


def whole_number(name: str, value: Any, least: int, most: int = 2**31 - 1) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is a whole number, not {type(value).__name__}: {value!r}") from None
    if not least <= number <= most:
        raise Error(f"{name} is {number}", help=f"it must be at {'least' if number < least else 'most'} "
                                                f"{least if number < least else most}")
    return number


def seconds(name: str, value: Any) -> Optional[float]:
    """A time above zero, or None: no limit."""
    if value is None:
        return None
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{name} is a number of seconds, not {type(value).__name__}: {value!r}")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is a number of seconds, not {type(value).__name__}: {value!r}") from None
    if math.isnan(number) or number <= 0:
        raise Error(f"{name} is {number:g}", help="it must be above 0; None is no limit")
    return number


def text(name: str, value: Any) -> str:
    """A text that UTF-8 can hold."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is a text, not {type(value).__name__}: {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Error(f"{name} has half of a character, {value[error.start]!r}, which UTF-8 cannot hold",
                    help="os.fsencode() and bytes.decode(errors='replace') make texts without such halves") from None
    return value


def texts(name: str, values: Any) -> list[str]:
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise TypeError(f"{name} is a list of texts, not {type(values).__name__}: {values!r}")
    return [text(f"{name}[{index}]", value) for index, value in enumerate(values)]


def mapping(name: str, value: Any) -> Mapping[str, Any]:
    """A mapping from keys, such as {"pipeline.micro_batches": 8}; None is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is a mapping, such as {{'pipeline.micro_batches': 8}}, not {type(value).__name__}: {value!r}")
    for key in value:
        text(f"a key of {name}", key)
    return value


def path_bytes(name: str, value: Any) -> bytes:
    """The name of a file as the system has it, whatever its bytes are."""
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise TypeError(f"{name} is a path, not {type(value).__name__}: {value!r}")
    try:
        return os.fsencode(value)
    except UnicodeEncodeError as error:
        raise Error(f"{name} has half of a character, {error.object[error.start]!r}, which no file name holds",
                    help="write another name") from None


def progress_of(value: Any) -> Progress:
    if value is not None and not callable(value):
        raise TypeError(f"progress is a function of a text, or None, not {type(value).__name__}: {value!r}")
    return value
