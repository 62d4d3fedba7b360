"""Options of Ray's command of the same name that change nothing here: scripts written for Ray keep working."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from typer.core import TyperCommand

_FLAGS = frozenset(
    {
        "--verbose",
        "-v",
        "--disable-usage-stats",  # nothing is reported to anybody
        "--redirect-command-output",  # setup commands write to a log
        "--use-login-shells",
        "--use-normal-shells",  # setup commands run without a terminal
    }
)
_VALUED = frozenset({"--log-style", "--log-color"})


def without(
    arguments: Sequence[str], ours: Collection[str], valued: Collection[str], to_end: bool
) -> list[str]:
    """The arguments without Ray's options.

    Args:
        ours: the command's own options, which stay.
        valued: those of them that take a value.
        to_end: options may follow words; otherwise all after the first word is the command's own.
    """
    kept: list[str] = []
    place = 0
    while place < len(arguments):
        word = arguments[place]
        name, equals, _ = word.partition("=")
        if word == "--" or not (word.startswith("-") or to_end):
            break
        if name in _VALUED - set(ours):
            place += 1 if equals else 2
        elif word in _FLAGS - set(ours):
            place += 1
        else:
            width = 2 if word in valued else 1
            kept += arguments[place : place + width]
            place += width
    return [*kept, *arguments[place:]]


class RayOptions(TyperCommand):
    """A command that accepts them, without a word in its help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self.without_rays(ctx, args))

    def without_rays(self, ctx: Any, args: Sequence[str]) -> list[str]:
        """The arguments that are this command's."""
        options = [option for option in self.params if option.param_type_name == "option"]
        ours = {name for option in options for name in (*option.opts, *option.secondary_opts)}
        return without(args, ours, self.valued(), ctx.allow_interspersed_args)

    def valued(self) -> set[str]:
        """The names of its options that take a value."""
        return {
            name
            for option in self.params
            if option.param_type_name == "option" and not getattr(option, "is_flag", False)
            for name in option.opts
        }
