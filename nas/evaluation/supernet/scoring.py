"""Accuracies of a trained supernet's paths."""

import time
from dataclasses import dataclass

import torch
from torch import nn

from nas.data.images import ImageData, ImageSplit
from nas.evaluation.supernet.config import Adaptation
from nas.evaluation.supernet.network import Supernet
from nas.tasks import classification
from nas.tasks.classification.evaluate import recalibrate_batch_norm
from nas.training.config import Precision, TrainConfig
from nas.training.loop import train
from nas.training.precision import autocast, resolve_device
from search_spaces import Architecture

_BATCH = 128


@dataclass(frozen=True, slots=True)
class PathScore:
    """What one path is worth with the shared weights."""

    accuracy: float
    """Fraction of the validation images. Below that of a network trained alone; what counts is the order."""
    loss: float
    """Mean cross-entropy on the same images: it changes with every image, where accuracy counts few that flip."""
    seconds: float
    """By the clock, adaptation included."""
    core_seconds: float
    """Processor time of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathScorer:
    """Cuts paths out, trains them a little where asked to, measures their batch norms' statistics afresh, and validates
    them. The supernet's weights stay as they are, and a path's score depends on them, the data and the seed alone.
    """

    supernet: Supernet
    data: ImageData
    precision: Precision = "fp32"
    device: str = "auto"
    calibration_images: int = 512
    seed: int = 0
    """Of the choice of the calibration images, which are training images, and of the adaptation."""
    adaptation: Adaptation | None = None
    """None: the shared weights are scored as they are."""

    def calibrated(self, arch: Architecture) -> nn.Module:
        """The stand-alone network of a path, in evaluation mode, with batch-norm statistics of its own.

        Raises `RuntimeError` where its adaptation diverges.
        """
        network = self.supernet.subnet(arch).to(resolve_device(self.device))
        split = self.data.for_input("train", self.supernet.space.input(arch))
        if self.adaptation is not None:
            self._adapt(network, split, self.adaptation)
        recalibrate_batch_norm(
            network,
            split,
            self.data.preprocess,
            images=self.calibration_images,
            device=self.device,
            seed=self.seed,
        )
        return network

    def score(self, arch: Architecture) -> PathScore:
        start, core_start = time.perf_counter(), time.process_time()
        split = self.data.for_input("val", self.supernet.space.input(arch))
        accuracy, loss = self._validated(self.calibrated(arch), split)
        return PathScore(accuracy, loss, time.perf_counter() - start, time.process_time() - core_start)

    def _adapt(self, network: nn.Module, split: ImageSplit, adaptation: Adaptation) -> None:
        """Train in place, on no more images than the steps can see, the same ones for every path."""
        batch = min(adaptation.batch_size, len(split))
        per_epoch = len(split) // batch
        epochs = -(-adaptation.steps // per_epoch)
        images = split.some(adaptation.steps * batch // epochs, self.seed)
        config = TrainConfig(
            epochs=epochs, batch_size=batch, lr=adaptation.lr, flip=self.data.flip_ok, precision=self.precision,
            seed=self.seed,
        )  # fmt: skip
        # one image to validate on: `score` validates
        result = train(network, images, split.some(1), config, preprocess=self.data.preprocess, device=self.device)
        if result.stopped is not None:
            raise RuntimeError(f"the path's adaptation {result.stopped}")

    def _validated(self, network: nn.Module, split: ImageSplit) -> tuple[float, float]:
        """Accuracy and mean cross-entropy."""
        where = resolve_device(self.device)
        correct, loss = 0, 0.0
        with torch.inference_mode():
            for start in range(0, len(split), _BATCH):
                images = torch.from_numpy(split.images[start : start + _BATCH]).to(where)
                targets = torch.from_numpy(split.labels[start : start + _BATCH]).to(where, torch.int64)
                with autocast(where, self.precision):
                    logits = network(self.data.preprocess.tensor(images))
                correct += classification.top1_correct(logits, targets)
                loss += float(classification.loss(logits, targets)) * len(targets)
        return correct / len(split), loss / len(split)
