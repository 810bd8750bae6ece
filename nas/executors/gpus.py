"""The GPUs of this machine, and which of them a process sees."""

import os

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Variable that tells a process, at its start, which GPUs there are for it."""


def visible_gpus() -> tuple[str, ...]:
    """The GPUs that this process may use, each by the name that `CUDA_VISIBLE_DEVICES` takes."""
    import torch

    count = torch.cuda.device_count()  # of those that are named up to the first that is not there, as CUDA does
    named = os.environ.get(VISIBLE)
    names = [str(n) for n in range(count)] if named is None else [name.strip() for name in named.split(",")]
    return tuple(names[:count])


def workers_here(asked: int | None) -> int:
    """Evaluations at once on this machine: as many as `asked`, else one for each GPU, or one where there is none."""
    return asked or max(1, len(visible_gpus()))
