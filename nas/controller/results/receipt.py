"""A winner of a search as a bundle."""

from typing import Any

from nas.bundles.bundle import Claims, complete_bundle
from nas.controller.results.outcome import Outcome
from nas.controller.values import Finalist
from nas.data_options import DataSource
from nas.files.writing import write_json

_SHARED = ("objective", "recipe", "task", "space")
_OWN = ("rank", "key", "epochs", "predicted_latency_ms", "predicted_std_ms", "macs", "params", "energy_mj", "accuracy")


def write_receipt(
    outcome: Outcome, winner: Finalist, document: dict[str, Any], entry: dict[str, Any], accuracy_there: float | None
) -> dict[str, Any]:
    """Complete the folder of a winner, which holds its model files, with everything else a bundle has; its receipt.

    `entry` is the winner's place in the result `document`. `accuracy_there`: see `Claims`.
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
        accuracy_there=accuracy_there,
        predicted_ms=None if entry["measured"] else winner.call_ms,
        more={"search": {**{k: document[k] for k in _SHARED}, **{k: entry[k] for k in _OWN}}},
    )
    return complete_bundle(folder, winner.deployed, outcome.data, claims)
