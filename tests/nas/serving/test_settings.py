"""Settings: checked, dealt out to cores, kept for a host, and chosen."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from nas.bundles.receipt import read_receipt
from nas.errors import MissingDependencyError, UserError
from nas.measure.host import HostFingerprint, fingerprint
from nas.progress import Progress, SilentProgress
from nas.runtimes.ort import OnnxRuntime
from nas.serving import choosing
from nas.serving.checks import checked_bundle, served_name, usual_settings
from nas.serving.choosing import chosen_settings
from nas.serving.settings import ServingSettings, replica_cores
from nas.serving.stored import NAME, Stored, load_stored, store

pytestmark = pytest.mark.xdist_group("serving")
TUNED = ServingSettings(replicas=1, threads=1, batch=8, wait_ms=0.5)


@pytest.mark.parametrize(
    "wrong", [{"replicas": 0}, {"batch": 1.5}, {"wait_ms": -1}, {"deadline_ms": float("nan")}, {"threads": True}]
)
def test_settings_without_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ServingSettings(**wrong)


def test_settings_come_back_from_json() -> None:
    assert ServingSettings.from_json(json.loads(json.dumps(TUNED.to_json()))) == TUNED


def test_replicas_have_cores_of_their_own() -> None:
    assert replica_cores(ServingSettings(replicas=2, threads=2), (0, 2, 4, 6, 8)) == [(0, 2), (4, 6)]
    with pytest.raises(UserError, match="3 replicas with 2 threads need 6 cores, and this machine has 5"):
        replica_cores(ServingSettings(replicas=3, threads=2), (0, 2, 4, 6, 8))


def other_host() -> HostFingerprint:
    return dataclasses.replace(fingerprint(), cpu_model="another", cores=64)


@pytest.fixture
def bundle(bundles: dict[str, Path], tmp_path: Path) -> Path:
    """A folder with the bundle's receipt."""
    (tmp_path / "receipt.json").write_bytes((bundles["classification"] / "receipt.json").read_bytes())
    return tmp_path


def test_settings_are_kept_for_a_host_and_a_bundle(bundle: Path) -> None:
    assert load_stored(bundle) is None
    theirs = Stored(slo_ms=5, settings=ServingSettings(replicas=32))
    ours = Stored(slo_ms=20, settings=TUNED)
    store(bundle, Stored(slo_ms=1, settings=ServingSettings()))
    store(bundle, theirs, other_host())
    assert store(bundle, ours) == bundle / NAME
    assert load_stored(bundle) == ours
    assert load_stored(bundle, other_host()) == theirs
    assert len(json.loads((bundle / NAME).read_text())["hosts"]) == 2
    receipt = bundle / "receipt.json"
    receipt.write_text(receipt.read_text() + "\n")  # another bundle has taken its place
    assert load_stored(bundle) is None


def test_a_folder_that_cannot_be_written_to(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("nas.serving.stored.os.access", lambda *_: False)
    assert (tmp_path / "cache") in store(bundle, Stored(slo_ms=20, settings=TUNED)).parents
    assert not (bundle / NAME).exists()
    assert load_stored(bundle) == Stored(slo_ms=20, settings=TUNED)


@pytest.mark.parametrize("damage", ["", "[]", '{"schema": 2}', '{"schema": 1, "hosts": 3}'])
def test_a_damaged_file_counts_as_none(damage: str, bundle: Path) -> None:
    (bundle / NAME).write_text(damage)
    assert load_stored(bundle) is None


def test_what_is_given_wins_over_what_was_measured(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receipt, calls = read_receipt(bundle), []
    monkeypatch.setattr(choosing, "usable_cores", lambda: (0, 1, 2, 3))

    def tune(folder: Path, slo_ms: float, progress: Progress) -> ServingSettings:
        calls.append(slo_ms)
        return TUNED

    def choose(slo_ms: float | None = None, again: bool = False, **given: Any) -> ServingSettings:
        return chosen_settings(bundle, receipt, given, slo_ms=slo_ms, again=again, tune=tune, progress=SilentProgress())

    assert choose() == usual_settings(receipt)
    assert (choose(threads=2).replicas, choose(replicas=4).threads) == (2, 1)
    assert choose(slo_ms=20) == dataclasses.replace(TUNED, deadline_ms=20)
    assert choose(slo_ms=20, batch=2, deadline_ms=50) == dataclasses.replace(TUNED, deadline_ms=50, batch=2)
    assert choose() == dataclasses.replace(TUNED, deadline_ms=20)
    assert calls == [20]
    choose(slo_ms=10)
    choose(slo_ms=10, again=True)
    assert calls == [20, 10, 10]


def test_names_that_fit_an_address() -> None:
    assert served_name(Path("/runs/photos/winners/1")) == "photos-1"
    assert served_name(Path("/data/my photos.bundle")) == "my-photos.bundle"


def test_a_runtime_that_is_not_installed(bundles: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OnnxRuntime, "missing", lambda _: "pip install onnxruntime")
    with pytest.raises(MissingDependencyError, match="the runtime 'onnxruntime' is not installed"):
        checked_bundle(bundles["classification"])
