"""Configs: what a call is about."""
from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any, Optional, Union

from . import _core
from ._arguments import mapping, path_bytes, text as utf8_text
from ._error import Error
from ._schedule import OwnSchedule, ScheduleFunction, schedule_of

__all__ = ["Config", "ConfigLike", "Overrides"]

Overrides = Mapping[str, Any]


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays and paths as JSON has them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"a config holds numbers, texts, lists and dicts, not {type(value).__name__}: {value!r}")


def yaml_of(value: Any, name: str, indent: Optional[int] = None) -> str:
    """A value as JSON, which is YAML."""
    try:
        return utf8_text(name, json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False, indent=indent))
    except RecursionError:
        raise Error(f"{name} has values that nest more than 64 deep", help="no key of a configuration needs that") from None
    except ValueError as error:
        inside = "circular" in str(error).lower()
        raise Error(f"{name} has {'a value that contains itself' if inside else 'a number that is not finite'}",
                    help="write the inner one out" if inside else "leave the key out") from None


_PLAIN = re.compile(r"(?![-+.0-9eE]+$|true$|false$|null$)[A-Za-z0-9][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*", re.IGNORECASE)


def value_text(value: Any, key: str) -> str:
    """A value of an override in one line. Words and numbers with units have no quotes: tables show them."""
    return value if isinstance(value, str) and _PLAIN.fullmatch(value) else yaml_of(value, key)


def settings_of(overrides: Optional[Overrides]) -> list[str]:
    return [f"{key}={value_text(value, key)}" for key, value in mapping("overrides", overrides).items()]


class Config:
    """A config: a mapping with the blocks of docs/config.md, or the path of a YAML file, and overrides.

    A config is a description: it is read, and its mistakes are reported, by the calls that use it.
    Relative paths in a mapping or a text are relative to the current folder, those in a file to its folder.

        Config({"workload": {"model": "resnet50"}, "cluster": {"devices": 4}})
        Config("cfg.yaml", {"pipeline.micro_batches": 16})

    `schedule` is a function from a Shape to the tasks of every device (docs/python.md): the config gets its name as
    pipeline.schedule.
    """

    __slots__ = ("_source", "_schedule")
    _source: _core.Source
    _schedule: Optional[OwnSchedule]

    def __init__(self, source: ConfigLike, overrides: Optional[Overrides] = None, *,
                 schedule: Optional[ScheduleFunction] = None) -> None:
        added = settings_of(overrides)
        own_schedule = schedule_of(schedule)
        if own_schedule is not None:
            added += settings_of({"pipeline.schedule": own_schedule.name})
        elif isinstance(source, Config):
            own_schedule = source._schedule
        if isinstance(source, Config):
            own = source._source
            self._set(own.path, own.set + added, own.text, own_schedule)
        elif isinstance(source, Mapping):
            self._set("config", added, yaml_of(source, "the config", indent=1), own_schedule)
        elif isinstance(source, (str, os.PathLike)):
            path = path_bytes("a config", source)
            if b"\n" in path:
                raise Error("the name of a config's file has several lines", help="give a text to Config.from_yaml()")
            self._set(path, added, None, own_schedule)
        else:
            raise TypeError(f"a config is a mapping, a path or a Config, not {type(source).__name__}")

    @classmethod
    def from_yaml(cls, text: str, overrides: Optional[Overrides] = None, *, name: str = "config") -> Config:
        """A config from the text of a YAML file. Errors call it `name`; paths in it are relative to its folder."""
        config = cls.__new__(cls)
        config._set(path_bytes("name", name), settings_of(overrides), utf8_text("text", text), None)
        return config

    def _set(self, path: Union[str, bytes], settings: list[str], text: Optional[str], schedule: Optional[OwnSchedule]) -> None:
        self._source = _core.Source(path, settings, text, None if schedule is None else schedule.core)
        self._schedule = schedule

    def _with_schedule(self, schedule: Optional[OwnSchedule]) -> Config:
        """The config, which may name that schedule."""
        own = self._source
        return _restored(own.path, own.set, own.text, schedule)

    def override(self, overrides: Overrides) -> Config:
        """The config with other values of some keys: {"pipeline.micro_batches": 8, "cluster.devices[0].speed": 0.5}.
        None removes a key."""
        return Config(self, overrides)

    def complete(self) -> str:
        """The config with the values of all keys, as YAML. Raises Error for every mistake in it."""
        return _core.complete_text(self._source)

    def __repr__(self) -> str:
        own = self._source
        try:
            what = _core.summary_of(own)
        except Error as error:
            what = f"error: {error.fact}"
        file = "" if own.text is not None else f"{os.fsdecode(own.path)}: "
        return f"<Config {file}{what}{''.join('; ' + setting for setting in own.set)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        own = self._source
        return _restored, (own.path, own.set, own.text, self._schedule)


def _restored(path: bytes, settings: list[str], text: Optional[str], schedule: Optional[OwnSchedule] = None) -> Config:
    config = Config.__new__(Config)
    config._set(path, settings, text, schedule)
    return config


ConfigLike = Union[Config, Mapping[str, Any], str, "os.PathLike[str]"]


def config_of(config: ConfigLike, overrides: Optional[Overrides] = None,
              schedule: Optional[ScheduleFunction] = None) -> Config:
    plain = isinstance(config, Config) and not overrides and schedule is None
    return config if plain else Config(config, overrides, schedule=schedule)
