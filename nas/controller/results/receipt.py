"""A winner of a search as a bundle."""

from functools import partial
from typing import Any

from nas.bundles.bundle import Claims, DataSource, complete_bundle
from nas.controller.results.outcome import Outcome
from nas.controller.values import Finalist
from nas.files.writing import write_json
from nas.measure.measurement import MeasureRequest
from nas.measure.site import Site
from nas.tasks import TaskData, task_of

SHIPPED_BYTES = 64 * 2**20
"""Inputs that travel to a device at once."""
_SHARED = ("objective", "recipe", "task", "space")
_OWN = ("rank", "key", "epochs", "predicted_latency_ms", "predicted_std_ms", "macs", "params", "energy_mj", "accuracy")


def write_receipt(
    outcome: Outcome, winner: Finalist, document: dict[str, Any], entry: dict[str, Any]
) -> dict[str, Any]:
    """Complete the folder of a winner, which holds its model files, with everything else a bundle has; its receipt.

    `entry` is the winner's place in the result `document`.
    """
    config = outcome.config
    folder = winner.deployed.onnx.parent
    write_json(folder / "architecture.json", entry["architecture"])
    claims = Claims(
        command=config.command,
        source=f"{outcome.folder.path}#{entry['rank']}",
        target=config.target,
        data=DataSource(source=config.data, seed=config.seed, options=config.data_options),
        max_drop=config.max_drop,
        limits=config.limits.to_json(),
        limits_text=config.limits.text,
        within_limit=winner.within_limit,
        margin_pct=entry["margin_pct"],
        torch_accuracy=winner.trained.accuracy,
        test_accuracy=entry["accuracy"]["test"],
        measured_on=outcome.target.site.fingerprint if outcome.target.site else None,
        accuracy_there=accuracy_on(outcome.target.site, winner, outcome.data),
        predicted_ms=None if entry["measured"] else winner.call_ms,
        more={"search": {**{k: document[k] for k in _SHARED}, **{k: entry[k] for k in _OWN}}},
    )
    return complete_bundle(folder, winner.deployed, outcome.data, claims)


def accuracy_on(site: Site | None, winner: Finalist, data: TaskData) -> float | None:
    """Fraction of the validation split that the delivered file of `winner` is worth on a machine elsewhere, by the
    task's metric; None where the machine is this host, or not at hand.

    Processors round int8 and bf16 differently, so that the accuracy which was computed here need not be that of the
    device.
    """
    if site is None or site.compute is None:
        return None
    chosen, signature = winner.deployed.chosen, winner.deployed.description.signature
    assert chosen is not None
    assert chosen.path is not None
    split = data.for_input("val", signature.input)
    request = MeasureRequest(chosen.path, chosen.deployment)
    batch = max(1, min(len(split), SHIPPED_BYTES // signature.input.zeros(1).nbytes))
    run = partial(site.compute, request)
    return task_of(data).accuracy_in_runtime(run, split, data.preprocess, signature, batch=batch)
