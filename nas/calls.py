"""The pattern in which a network is called: without a pause, so many times a second, or after a rest.

It changes the latency by a factor of up to four: between calls caches fill with other things, threads go to sleep and
clocks go down.
"""

import math
import re

CONTINUOUS, IDLE = "continuous", "idle"
CONTINUOUS_MS, IDLE_MS = 0.0, 200.0
"""Milliseconds from the start of one call to that of the next: none are waited for; long enough for all to be cold."""
CAMERA_MS = 50.0
"""20 calls per second: what continuous latencies are shown beside."""
LOWEST_RATE, HIGHEST_RATE = 5.0, 1000.0
"""Calls per second. Slower ones are as cold as `idle`, quicker ones as good as continuous."""


def interval_ms_of(calls: str) -> float:
    """Milliseconds from call to call of a pattern as people write it: `continuous`, `20/s`, `idle`.

    Raises:
        UserError: it is none, or a rate that is as good as idle or continuous.
    """
    text = calls.strip().lower()
    if text in (CONTINUOUS, IDLE):
        return CONTINUOUS_MS if text == CONTINUOUS else IDLE_MS
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*/\s*s", text, re.ASCII)
    rate = float(found[1]) if found is not None else math.nan
    if LOWEST_RATE <= rate <= HIGHEST_RATE:
        return 1e3 / rate
    if found is None:
        wrong = "is no pattern of calls"
    elif rate <= 0:
        wrong = "calls nothing at all"
    elif rate < LOWEST_RATE:
        wrong = f"is slower than {LOWEST_RATE:g}/s, where a call is as cold as with idle"
    else:
        wrong = f"is quicker than {HIGHEST_RATE:g}/s, which is as good as continuous"
    from nas.errors import UserError  # brings numpy along, and help must not wait for that

    raise UserError(f"--calls {calls!r} {wrong}", "give continuous, 20/s or idle")


def calls_text(interval_ms: float) -> str:
    """Inverse of `interval_ms_of`."""
    if interval_ms <= 0:
        return CONTINUOUS
    return IDLE if math.isclose(interval_ms, IDLE_MS) else f"{1e3 / interval_ms:g}/s"
