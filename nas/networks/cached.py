"""Published weights that lie on this machine already: what a search may begin from without a download."""

from pathlib import Path

from nas.networks.find import find_network
from nas.networks.libraries import baseline_names
from nas.tasks import task_of_baseline


def cached_networks(task: str) -> list[str]:
    """References of the networks of torchvision and timm for `task` whose published weights are in a cache, as
    `nas.networks.find.find_network` takes them; those of the smallest files first."""
    found = {**_of_torchvision(), **_of_timm()}
    fitting = [text for text in found if task_of_baseline(baseline_names(find_network(text))[0]) == task]
    return sorted(fitting, key=lambda text: (found[text], text))


def _of_torchvision() -> dict[str, int]:
    """Bytes of each file by the reference."""
    import torch

    folder, found = Path(torch.hub.get_dir()) / "checkpoints", {}
    if not folder.is_dir():
        return {}
    from torchvision import models

    for name in models.list_models(module=models):
        file = folder / Path(models.get_model_weights(name).DEFAULT.url).name
        if file.is_file():
            found[f"torchvision:{name}"] = file.stat().st_size
    return found


def _of_timm() -> dict[str, int]:
    """Bytes of each file by the reference: of the weights that timm would load for the plain name."""
    from huggingface_hub import constants, try_to_load_from_cache

    folders, found = sorted(Path(constants.HF_HUB_CACHE).glob("models--timm--*")), {}
    if not folders:
        return {}
    import timm

    for folder in folders:
        repository = folder.name.removeprefix("models--").replace("--", "/")
        name = repository.partition("/")[2].partition(".")[0]
        facts = timm.get_pretrained_cfg(name) if timm.is_model(name) else None
        if facts is None or facts.hf_hub_id != repository:
            continue
        file = try_to_load_from_cache(repository, "model.safetensors")
        if isinstance(file, str):
            found[f"timm:{name}"] = Path(file).stat().st_size
    return found
