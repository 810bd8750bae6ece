"""Durations as people write them."""

import re

UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Seconds in `90s`, `30m`, `4h` or `1h30m`.

    Raises:
        UserError: no such duration, or one of 0.
    """
    compact = text.strip().lower()
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", compact, re.ASCII)
    seconds = sum(float(number) * UNITS_S[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != compact or not seconds > 0:
        from nas.errors import UserError

        problem = "has no unit" if re.fullmatch(r"\d+(\.\d+)?", compact, re.ASCII) else "is not a duration"
        raise UserError(f"the budget {text!r} {problem}", "write it like 90s, 30m or 4h")
    return seconds
