"""How fast this host trains: measured once, read afterwards."""

import json
import math
from pathlib import Path

import pytest

from nas.controller.pace import Pace, host_pace, rounded_pace
from nas.training.precision import faster
from search_spaces import load_search_space

SPACE = load_search_space("mobile").restrict("resolution", [32])


def test_a_pace_is_measured_once_and_then_read(tmp_path: Path) -> None:
    first = host_pace(SPACE, 10, 4, tmp_path)
    assert first.precision in ("fp32", "bf16")
    assert first.factor == rounded_pace(first.factor)
    (file,) = tmp_path.iterdir()
    (key, entry), *others = json.loads(file.read_text()).items()
    assert not others
    other = "bf16" if first.precision == "fp32" else "fp32"
    file.write_text(json.dumps({key: {**entry, "precision": other, "factor": 8.0}}))
    assert host_pace(SPACE, 10, 4, tmp_path) == Pace(other, 8.0), "what is known is not measured again"
    for damage in ({"precision": "fp8", "factor": 1.0}, {"precision": "fp32", "factor": -1.0}):
        file.write_text(json.dumps({key: damage}))
        again = host_pace(SPACE, 10, 4, tmp_path)
        assert again.precision in ("fp32", "bf16")
        assert again.factor > 0


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": 1}', '{"a": {"precision": "bf16"}}'])
def test_a_damaged_file_is_written_anew(tmp_path: Path, content: str) -> None:
    (tmp_path / "training-pace.json").write_text(content)
    host_pace(SPACE, 10, 4, tmp_path)
    assert len(json.loads((tmp_path / "training-pace.json").read_text())) == 1


@pytest.mark.parametrize(
    ("ratio", "rounded"), [(1.1, 1.0), (0.9, 1.0), (2.2, 2.0), (3.7, 4.0), (0.26, 0.25), (1e9, 64.0), (0, 1 / 64)]
)
def test_paces_are_rounded_to_half_octaves(ratio: float, rounded: float) -> None:
    assert rounded_pace(ratio) == pytest.approx(rounded)
    assert rounded_pace(1.4) == pytest.approx(math.sqrt(2))


def test_bf16_has_to_be_worth_its_rounding() -> None:
    assert faster({"fp32": 1.0, "bf16": 0.95}) == "fp32"
    assert faster({"fp32": 1.0, "bf16": 0.5}) == "bf16"
