"""The data that a network was trained on, by the files beside it."""

from pathlib import Path

from nas.data_options import DataOptions, DataSource
from nas.networks.description import read_json
from nas.networks.find import FoundNetwork
from nas.networks.run_networks import read_run_json

FINE_TUNING = "result.json"
"""File beside the weights of a fine-tuning with its outcome."""
TRAINED_ON = "trained_on"
"""Its entry for the data, as `DataSource.to_json` gives them."""


def trained_on(found: FoundNetwork) -> DataSource | None:
    """The data of the fine-tuning that the weights are of, else of the network's run, else of its bundle; None where no
    file tells.

    Raises:
        UserError: a damaged file.
    """
    known = _of_fine_tuning(found.weights.parent) if found.weights is not None else None
    known = known or (data_of_run(found.run) if found.run is not None else None)
    return known or DataSource.of(found.receipt.get("data"))


def data_of_run(run: Path) -> DataSource | None:
    """The data of the run in a folder; None where it does not say. Raises `UserError` for a damaged file."""
    config = run / "config.json"
    document = read_run_json(config) if config.is_file() else {}
    name = document.get("data")
    if not isinstance(name, str):
        return None
    return DataSource(source=name, seed=int(document.get("seed", 0)), options=DataOptions.of(document))


def _of_fine_tuning(folder: Path) -> DataSource | None:
    path = folder / FINE_TUNING
    document = read_json(path) if path.is_file() else None
    return DataSource.of(document.get(TRAINED_ON)) if isinstance(document, dict) else None
