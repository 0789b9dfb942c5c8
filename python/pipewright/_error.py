"""The exception of all calls."""
from __future__ import annotations

import enum

__all__ = ["Error", "ExitCode"]


class ExitCode(enum.IntEnum):
    """Kinds of errors: the exit codes of the program."""

    RUN_FAILED = 1  # device, file, lost peer, ended too early
    BAD_INPUT = 2  # malformed or incomplete input
    INFEASIBLE = 3  # does not fit into memory, or cannot complete
    CHECK_FAILED = 4
    PEER_SILENT = 5


class Error(Exception):
    """What is wrong, where, and the way out. `str(error)` is the text for people.

    fact   what is wrong, in one sentence
    help   the way out; "" if none is known
    key    the key of the config to change, "pipeline.stages"; "" if it is not about one
    place  file, line and column, "cfg.yaml:14:13", or the key of an override; "" if not known
    code   an ExitCode
    """

    def __init__(self, text: str, fact: str = "", help: str = "", key: str = "", place: str = "",
                 code: int = ExitCode.BAD_INPUT) -> None:
        super().__init__(text, fact, help, key, place, code)
        self.fact = fact or text
        self.help = help
        self.key = key
        self.place = place
        self.code = ExitCode(code)

    def __str__(self) -> str:
        text = str(self.args[0])
        return text if not self.help or self.help in text else f"{text}\n  help: {self.help}"
