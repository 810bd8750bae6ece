"""How data are read is a part of a search: asked once, the same for whoever goes on from it."""

import json
from pathlib import Path

import pytest

from nas.controller.config import SearchConfig
from nas.controller.runs.run_folder import check_folder
from nas.data_options import DataOptions
from nas.errors import UnknownNameError, UserError
from nas.limits import Limits
from nas.networks.find import FoundNetwork
from nas.networks.trained_on import trained_on
from nas.tasks.detection.task import Detection

ASKED = {"flip": False, "fit": "letterbox", "max_resolution": 320, "metric": "balanced-accuracy", "class_weights": True}


def config(out: Path, **settings: object) -> SearchConfig:
    return SearchConfig(limits=Limits.of(latency_ms=5, min_accuracy=0.5), out=out, space="mixed", **settings)  # type: ignore[arg-type]


def test_options_become_a_value_and_its_document_says_what_was_asked(tmp_path: Path) -> None:
    asked = config(tmp_path, **ASKED).data_options
    assert asked.to_json() == ASKED
    assert DataOptions.of(asked.to_json()) == asked
    assert config(tmp_path).data_options.to_json() == {}
    assert DataOptions.of({"data": "photos", "seed": 3}) == DataOptions()


def test_limits_on_accuracy_are_of_the_metric(tmp_path: Path) -> None:
    assert "50 % accuracy" in config(tmp_path).limits.text
    assert "50 % balanced accuracy" in config(tmp_path, metric="balanced-accuracy").limits.text


def test_larger_images_come_with_a_space_that_has_their_resolutions(tmp_path: Path) -> None:
    wider = config(tmp_path, max_resolution=300)
    assert max(wider.search_space.decisions[wider.search_space.column("resolution")].options) == 288
    assert wider.space.startswith("mixed@")
    again = config(tmp_path, max_resolution=300)
    assert (again.space, again.identity()) == (wider.space, wider.identity())
    assert config(tmp_path, max_resolution=200).space == "mixed"


def test_a_run_from_before_goes_on_and_another_reading_is_another_run(tmp_path: Path) -> None:
    known = config(tmp_path)
    old = {name: value for name, value in known.identity().items() if name not in ASKED}
    (tmp_path / "config.json").write_text(json.dumps(old))
    check_folder(known)
    with pytest.raises(UserError, match="fit was None, is 'letterbox'"):
        check_folder(config(tmp_path, fit="letterbox"))


def test_who_goes_on_from_a_run_reads_its_data_in_the_same_way(tmp_path: Path) -> None:
    identity = json.loads(json.dumps(config(tmp_path, data="digits", seed=1, **ASKED).identity()))
    (tmp_path / "config.json").write_text(json.dumps(identity))
    receipt = {"data": {"source": "digits", "seed": 1, "options": ASKED}}
    for found in ({"run": tmp_path}, {"receipt": receipt}):
        known = trained_on(FoundNetwork(text="x", kind="network", **found))  # type: ignore[arg-type]
        assert known is not None
        assert known.to_json() == receipt["data"]


@pytest.mark.parametrize("value", [{"fit": "stretch"}, {"metric": "f1"}])
def test_unknown_values_are_refused(tmp_path: Path, value: dict[str, str]) -> None:
    with pytest.raises(UnknownNameError):
        config(tmp_path, **value)


@pytest.mark.parametrize("value", [{"max_resolution": 8}, {"max_resolution": "300"}, {"flip": "no"}])
def test_values_that_make_no_sense_are_refused(value: dict[str, object]) -> None:
    with pytest.raises(UserError):
        DataOptions.of(value)


@pytest.mark.parametrize("name", ["fit", "metric", "class_weights"])
def test_detection_has_no_use_for_some(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')} is not for detection"):
        Detection().load(str(tmp_path), seed=0, options=DataOptions.of({name: ASKED[name]}))
