"""What all commands share: the program, how a function becomes a command, and what is said when one fails."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import sys
import typing
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from fedroster.cli.terminal import err, was_interrupted
from fedroster.core.errors import ConfigurationError, FedrosterError, InvalidInputError, PausedError, UnknownNameError
from fedroster.core.outside import plain
from fedroster.version import __version__

F = TypeVar("F", bound=Callable[..., Any])

app = typer.Typer(
    name="fedroster",
    help="Decide which clients take part in each round of federated learning.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"fedroster {__version__}\n")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Decide which clients take part in each round of federated learning."""


class _Command(TyperCommand):
    """A command that says how several values of one option are given."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # of the click that typer brings
            if "unexpected extra argument" in getattr(error, "message", ""):
                error.message += "; several values of one option are separated by commas"  # type: ignore[attr-defined]
            raise


def command(name: str | None = None, *, group: typer.Typer = app) -> Callable[[F], F]:
    """Make a function a command of the program.

    A parameter whose type is a dataclass stands for the options that are the dataclass's fields.  Errors become one
    line on stderr and an exit code.  The command is called as the function is, if no name is given.
    """

    def register(function: F) -> F:
        parameters, groups = _options(function)

        @functools.wraps(function)
        def run(**values: Any) -> None:
            with_groups = {
                name: made(**{field.name: values.pop(field.name) for field in dataclasses.fields(made)})
                for name, made in groups.items()
            }
            _report_errors(functools.partial(function, **values, **with_groups))

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        group.command(name, cls=_Command)(run)
        return function

    return register


def _options(function: Callable[..., Any]) -> tuple[list[inspect.Parameter], dict[str, Any]]:
    """The parameters of a command, dataclasses spelt out, and these dataclasses by parameter."""
    hints = typing.get_type_hints(function, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if not dataclasses.is_dataclass(hints[name]):
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[name] = hints[name]
        inside = typing.get_type_hints(hints[name], include_extras=True)
        for field in dataclasses.fields(hints[name]):
            parameters.append(
                inspect.Parameter(
                    field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=inside[field.name]
                )
            )
    return parameters, groups


def _report_errors(call: Callable[[], None]) -> None:
    """Turn errors into one clear line and the exit code that fits."""
    try:
        call()
    except (FedrosterError, OSError, MemoryError) as error:
        is_usage = isinstance(error, (ConfigurationError, UnknownNameError, InvalidInputError))
        _fail(error, 2 if is_usage else 3 if isinstance(error, PausedError) else 1)
    except (KeyboardInterrupt, SystemError) as error:
        if not was_interrupted(error):
            raise
        words = error.args if isinstance(error, KeyboardInterrupt) else ()
        err().print(plain(": ".join(["interrupted", *map(str, words)])), markup=False, soft_wrap=True)
        raise typer.Exit(130) from error  # as shells say it; 1 would say that a log is bad


def _fail(error: Exception, code: int) -> None:
    if os.environ.get("FEDROSTER_DEBUG"):
        raise error
    err().print("error: ", style="bold red", end="")
    words = f"the memory does not suffice ({error})" if isinstance(error, MemoryError) else str(error)
    words = "\n  ".join(map(plain, [words, *getattr(error, "__notes__", ())]))
    err().print(words, markup=False, soft_wrap=True)
    raise typer.Exit(code) from error
