"""Option values that are checked here, so that a wrong one is answered by a sentence and a hint (exit code 1)."""

import math
import re
from collections.abc import Callable
from typing import Any

import click

from nas.calls import calls_text, interval_ms_of
from nas.cli.durations import parse_duration

Option = int | float | str
Allowed = dict[str, tuple[Option, ...]]


class LatencyMs(click.ParamType[float]):
    """A latency in milliseconds: finite and above 0."""

    name = "ms"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        latency_ms = _number(value)
        if latency_ms is None or not math.isfinite(latency_ms) or latency_ms <= 0:
            from nas.errors import UserError

            problem = "is not a number" if latency_ms is None or math.isnan(latency_ms) else "is not a possible latency"
            raise UserError(f"the latency limit {value!r} {problem}", "give milliseconds above 0: --latency-ms 10")
        return latency_ms


class Calls(click.ParamType[str]):
    """A pattern of calls: `continuous`, a rate like `20/s`, or `idle`; always written the same way."""

    name = "pattern"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return calls_text(interval_ms_of(str(value)))


class Device(click.ParamType[str]):
    """A device of a host: `cpu`, or a GPU as `cuda:N`; `cuda` is the first. Whether a host has it is asked later."""

    name = "device"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from nas.runtimes.devices import parse_device

        return parse_device(str(value))


class Seconds(click.ParamType[float]):
    """A duration such as `90s`, in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        return parse_duration(str(value))


class PercentagePoints(click.ParamType[float]):
    """Percentage points from 0 to 100; the value handed on is a fraction."""

    name = "points"

    def __init__(self, what: str = "largest drop", example: str = "1.0") -> None:
        self.what, self.example = what, example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        points = _number(value)
        if points is None or not 0 <= points <= 100:
            from nas.errors import UserError

            raise UserError(
                f"the {self.what} {value!r} is not between 0 and 100",
                f"give percentage points of accuracy: {self.example}",
            )
        return points / 100


class Share(click.ParamType[float]):
    """A share of a whole, `5%` or `0.05`, as a fraction in 0..1."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        number = _number(text.removesuffix("%"))
        share = number / 100 if number is not None and text.endswith("%") else number
        if share is None or not 0 <= share <= 1:
            from nas.errors import UserError

            raise UserError(f"{value!r} is no share of a whole", "give per cent, 0% to 100%, or a fraction: 5%, 0.05")
        return share


class Positive(click.ParamType[float]):
    """A finite number above 0; k, M and G may follow it."""

    def __init__(self, name: str, what: str, example: str) -> None:
        self.name, self.what, self.example = name, what, example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        factor = {"k": 1e3, "m": 1e6, "g": 1e9}.get(text[-1:].lower(), 1.0)
        number = _number(text if factor == 1.0 else text[:-1])
        if number is None or not math.isfinite(number) or number <= 0:
            from nas.errors import UserError

            raise UserError(f"the {self.what} {value!r} is not a number above 0", f"write it like {self.example}")
        return number * factor


class TaskReference(click.ParamType[str]):
    """A bundled task by name, or `package.module:ATTRIBUTE`."""

    name = "task"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from nas.tasks import task_named

        reference = str(value)
        task_named(reference)
        return reference


def only(decision: str) -> Callable[[click.Context, click.Parameter, tuple[Option, ...]], Allowed]:
    """Callback of a repeatable option: the options that alone are allowed of a space's decision; {} for all of them."""

    def allowed(context: click.Context, parameter: click.Parameter, value: tuple[Option, ...]) -> Allowed:
        return {decision: value} if value else {}

    return allowed


def _number(value: Any) -> float | None:
    text = str(value).strip()
    # `float` alone would also take "1_000" and digits of other scripts.
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(inf|infinity|nan)", text, re.IGNORECASE | re.ASCII):
        return None
    return float(text)
