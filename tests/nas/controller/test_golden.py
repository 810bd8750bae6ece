"""Two seeded searches make the same proposals, recipes and decisions as they did when their traces were recorded.

A trace changes only where a change of behaviour is meant. Then record it anew, look at its diff, and say in the commit
why it changed:

    NAS_RECORD_GOLDEN=1 python -m pytest tests/nas/controller/test_golden.py
"""

import json
import os
from pathlib import Path

import pytest

from tests.nas.controller.golden_trace import SEARCHES, differences, trace

GOLDEN = Path(__file__).with_name("golden")
SHOWN = 40


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHES)
def test_the_trace_of_a_seeded_search_is_as_recorded(name: str, tmp_path: Path) -> None:
    file = GOLDEN / f"{name}.json"
    found = trace(name, tmp_path)
    if os.environ.get("NAS_RECORD_GOLDEN"):
        file.write_text(json.dumps(found, indent=1) + "\n")
        pytest.skip(f"recorded {file}")
    lines = differences(json.loads(file.read_text()), found)
    more = [f"... and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    assert not lines, "\n".join([f"{len(lines)} values of the trace differ:", *lines[:SHOWN], *more])


def test_a_difference_is_told_with_its_place() -> None:
    expected = {"a": [1, {"key": "x", "proxies": [1.0]}], "b": 1.0, "gone": 0}
    found = {"a": [1, {"key": "y", "proxies": [1.01]}, 3], "b": 1.001, "new": None}
    assert differences(expected, expected) == []
    assert differences(expected, found) == [
        "a: 3 entries, was 2", "a[1].key: 'y', was 'x'", "b: 1.001, was 1.0", "gone: missing, was 0", "new: new, None",
    ]  # fmt: skip
    assert differences([1, True, "1"], [1.0, 1, 1]) == ["[1]: 1, was True", "[2]: 1, was '1'"]
