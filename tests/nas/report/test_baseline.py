"""What a report says of each unit of the network that a run began from."""

from typing import Any

import pytest

from nas.report.baseline import is_changed, unit_rows


def document(width: float | None, *became: str) -> dict[str, Any]:
    """Of a baseline with a unit for each of `became`, whose options take 4 ms, and half as wide 1 ms."""
    options = [
        {
            "option": name,
            "width": w,
            "loss": 0.0 if (name, w) == ("keep", 1.0) else 0.25,
            "ms": {"onnxruntime-int8": ms},
        }
        for name in ("keep", "conv3")
        for w, ms in ((1.0, 4.0), (0.5, 1.0))
    ]
    unit = {"name": "layer", "input": [8, 4, 4], "output": [8, 4, 4], "macs": 10, "options": options}
    baseline: dict[str, Any] = {"units": [{**unit, "became": name} for name in became]}
    if width is not None:
        baseline["width"] = width
    return {"best": [{"runtime": "onnxruntime", "precision": "int8"}], "baseline": baseline}


@pytest.mark.parametrize("width", [None, 1.0])
def test_a_unit_of_the_same_width_is_kept_or_another(width: float | None) -> None:
    kept, other = unit_rows(document(width, "keep", "conv3"))
    assert kept[3:] == ("4.00", "kept", "", "")
    assert other[3:] == ("4.00", "conv3", "4.00", "0.25")


def test_times_of_a_network_with_smaller_images_are_its_own() -> None:
    smaller = document(1.0, "keep", "conv3")
    smaller["baseline"]["input"] = "24 px"
    for unit in smaller["baseline"]["units"]:
        own = [{**option, "input": "32 px"} for option in unit["options"]]
        small = [{**option, "input": "24 px", "ms": {"onnxruntime-int8": 2.0}} for option in unit["options"]]
        unit["options"] = own + small
    kept, other = unit_rows(smaller)
    assert kept[3:] == ("4.00", "kept", "2.00", "")
    assert other[3:] == ("4.00", "conv3", "2.00", "0.25")


def test_every_unit_of_a_narrower_network_is_another() -> None:
    narrower = document(0.5, "keep", "conv3")
    kept, other = unit_rows(narrower)
    assert kept[3:] == ("4.00", "narrower", "1.00", "0.25")
    assert other[3:] == ("4.00", "conv3", "1.00", "0.25")
    assert all(is_changed(unit, narrower["baseline"]) for unit in narrower["baseline"]["units"])
