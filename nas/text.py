"""Quantities as people read them; used by progress, tables and reports alike. Standard library only."""

import math


def duration(seconds: float) -> str:
    """`0.4 s`, `42 s`, `2 min 5 s`, `1 h 30 min`: two figures at most."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(round(whole / 60), 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def memory_size(size_bytes: float) -> str:
    """`950 KiB`, `12.3 MiB`, `16.8 GiB`: three figures at most."""
    for factor, unit in ((2**30, "GiB"), (2**20, "MiB")):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.3g} {unit}"
    return f"{size_bytes / 2**10:.0f} KiB"


def milliseconds(value: float | None) -> str:
    """Three significant digits without exponent: `0.0123`, `1.10`, `62.5`, `1200`; a dash for None or nan."""
    if value is None or not math.isfinite(value):
        return "-"
    if value == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def percent(fraction: float | None) -> str:
    """`80.5 %` of 0.805; a dash for None or nan."""
    return "-" if fraction is None or not math.isfinite(fraction) else f"{100 * fraction:.1f} %"


def worth(value: float | None, unit: str) -> str:
    """An estimate's value: `91.2 %` where its unit is `accuracy`, else `+1.30 sd`; a dash for None or nan."""
    if value is None or not math.isfinite(value):
        return "-"
    return percent(value) if unit == "accuracy" else f"{value:+.2f} sd"


def points(fraction: float | None) -> str:
    """A fraction like `percent`, without its sign, for columns whose heading has it."""
    return percent(fraction).removesuffix(" %")


def count(value: float | None) -> str:
    """`950`, `12.3 k`, `4.5 M`, `1.2 G`, and `4.7e13` from a thousand G on; a dash for None."""
    if value is None:
        return "-"
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 1000 * 1e9:
            return f"{value:.1e}".replace("e+", "e")
        if value >= factor:
            return f"{value / factor:.3g} {letter}"
    return f"{value:.0f}"
