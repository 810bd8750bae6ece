"""The settings of a server: what was given, else what was measured for this host, else what suits the bundle."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nas.bundles.receipt import Receipt
from nas.progress import Progress
from nas.serving.checks import usable_cores, usual_settings
from nas.serving.settings import ServingSettings
from nas.serving.stored import Stored, load_stored, store

Tune = Callable[[Path, float, Progress], ServingSettings]
"""Measures which settings of a bundle answer most images within so many milliseconds."""


def chosen_settings(
    folder: Path,
    receipt: Receipt,
    given: Mapping[str, Any],
    *,
    slo_ms: float | None,
    again: bool,
    tune: Tune,
    progress: Progress,
) -> ServingSettings:
    """Settings for the bundle in `folder` on this host.

    Args:
        folder: the bundle's; what is measured is stored there, see `nas.serving.stored`.
        receipt: of the bundle.
        given: fields of `ServingSettings` that somebody asked for; they win.
        slo_ms: answers should take no longer; measured where it is not known. None: nothing is measured.
        again: measure even where it is known.
        tune: how to measure.
        progress: told what was found.
    """
    known = load_stored(folder)
    if slo_ms is not None and (again or known is None or known.slo_ms != slo_ms):
        known = Stored(slo_ms=slo_ms, settings=tune(folder, slo_ms, progress))
        progress.note(f"kept in {store(folder, known)}")
    if known is None:
        return _with_given(usual_settings(receipt), given)
    progress.note(f"settings measured on this host for answers within {known.slo_ms:g} ms")
    return _with_given(replace(known.settings, deadline_ms=known.slo_ms), given)


def _with_given(settings: ServingSettings, given: Mapping[str, Any]) -> ServingSettings:
    """Replicas and threads together take all cores: where one of them is given, the other follows."""
    cores, more = len(usable_cores()), dict(given)
    if "threads" in given and "replicas" not in given:
        more["replicas"] = max(1, cores // given["threads"])
    elif "replicas" in given and "threads" not in given:
        more["threads"] = max(1, min(settings.threads, cores // given["replicas"]))
    return replace(settings, **more)
