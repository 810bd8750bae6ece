"""What a recipe can say. Every setting has a unit in its name or is a count; unknown keys are errors."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Fraction = Annotated[float, Field(ge=0, lt=1)]
Probability = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Section(BaseModel):
    """A part of a recipe: a value, with no key that it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class OptimizerSettings(Section):
    """Who moves the weights. Norms and biases get no weight decay."""

    name: Literal["sgd", "adam", "adamw", "nadamw", "rmsprop", "lamb", "lion"] = "sgd"
    """timm's of that name; `sgd` has Nesterov momentum. All but `sgd` want a lower rate."""
    lr: Positive = 0.05
    """Peak learning rate."""
    lr_batch_size: Annotated[int, Field(ge=1)] | None = None
    """The batch that `lr` is meant for: with another one it is scaled in proportion. None: `lr` as it is."""
    momentum: Fraction = 0.9
    """Of sgd and rmsprop."""
    weight_decay: Amount = 5e-4


class ScheduleSettings(Section):
    """How the learning rate goes, as a function of the optimiser step alone."""

    name: Literal["cosine", "step", "one-cycle"] = "cosine"
    warmup_epochs: Amount = 0.0
    """Linear rise to the peak; with `one-cycle` the rising half-cosine."""
    step_epochs: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Of `step`: after each of these epochs the rate is multiplied by `step_factor`."""
    step_factor: Annotated[float, Field(gt=0, le=1)] = 0.1
    final_lr_fraction: Fraction = 0.0
    """Of `cosine` and `one-cycle`: what remains of the peak at the end."""


class AugmentationSettings(Section):
    """What is done to training images. All but `crop` and `flip` are for classification."""

    crop: Literal["none", "light", "mosaic"] = "light"
    """`light`: random shifts below 64 px, else random resized crops, see `nas.training.augment`; in detection random
    scales, places and colours, see `nas.tasks.detection.augment`. `mosaic`: four images in one, of detection."""
    flip: bool | Literal["auto"] = "auto"
    """Mirror half of the images; `auto`: where the data allow it (not so for digits)."""
    randaugment_ops: Count = 0
    """Operations per image (Cubuk et al. 2019); 0: none."""
    randaugment_magnitude: Annotated[int, Field(ge=0, le=30)] = 9
    erasing_probability: Probability = 0.0
    """Of an image to lose a random box (Zhong et al. 2017)."""
    mixup_alpha: Amount = 0.0
    """Zhang et al. 2017; 0: none."""
    cutmix_alpha: Amount = 0.0
    """Yun et al. 2019; 0: none."""
    mix_probability: Probability = 1.0
    """Of a batch to be mixed, where one of the two is on."""


class DistillationSettings(Section):
    """Learning from a teacher (Hinton et al. 2015)."""

    teacher: str | None = None
    """`RUN#k`, `NAME.network.json` or its folder, or `torchvision:NAME:FILE.safetensors`; empty: has to be set; None:
    none."""
    logits_weight: Probability = 0.7
    """Share of the loss that compares logits (in detection also boxes) with the teacher; the rest compares with the
    labels."""
    temperature: Positive = 2.0
    """Of classification."""
    features_weight: Amount = 0.0
    """Weight of 1 - cosine similarity of the last features, through a learnt linear map; 0: none. Of classification."""


class QuantizationSettings(Section):
    """Quantisation-aware training of the folded network, after all other training. Of classification."""

    epochs: Count = 0
    """0: none."""
    lr: Positive = 1e-3
    calibration_images: Annotated[int, Field(ge=1)] = 256
    """Training images that the first ranges are taken from."""


class EarlyStoppingSettings(Section):
    """Ends a training that does not get better."""

    patience_epochs: Annotated[int, Field(ge=1)] | None = None
    """Epochs without a better validation accuracy; None: never."""
    min_gain: Fraction = 0.0
    """What counts as better, as a fraction of the validation images."""


class CheckpointSettings(Section):
    """Which weights are kept and which are delivered."""

    average_epochs: Count = 0
    """The weights at the end of the last so many epochs are averaged (Izmailov et al. 2018); 0: no average."""
    deliver: Literal["auto", "best", "last", "average"] = "auto"
    """`auto`: what is most accurate on the validation images."""

    @model_validator(mode="after")
    def _has_average(self) -> "CheckpointSettings":
        if self.deliver == "average" and not self.average_epochs:
            raise ValueError("deliver: average needs average_epochs of at least 1")
        return self


class Recipe(Section):
    """A whole training."""

    description: str = ""
    validate_on: Literal["val", "train"] = "val"
    """`train`: whether a network can learn its images by heart, which proves that targets, loss and decoding agree."""
    start: Literal["trained", "scratch"] = "trained"
    """`trained`: from the candidate's weights where it has some; `scratch`: from random ones."""
    epochs: Count = 10
    """0: the weights as they are (for `qat` alone)."""
    batch_size: Annotated[int, Field(ge=2)] | Literal["auto"] = 32
    """Images per step, over all processes together; `auto`: by measuring speed and memory."""
    accumulate_steps: Annotated[int, Field(ge=1)] = 1
    """Batches whose gradients are added up for one step of the optimiser."""
    optimizer: OptimizerSettings = OptimizerSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    augmentation: AugmentationSettings = AugmentationSettings()
    label_smoothing: Fraction = 0.0
    """Of classification."""
    clip_norm: Positive | None = None
    """Largest norm of all gradients together; None: not clipped."""
    ema_decay: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Of the moving average of the weights, per step; validation and checkpoints use the average. None: none."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Of forward and backward passes (automatic mixed precision). `auto`: fp32 or bf16, by a short measurement; fp16,
    with scaled losses, is for GPUs without bf16."""
    channels_last: bool | Literal["auto"] = "auto"
    """Memory layout; `auto`: by a short measurement."""
    recalibrate_images: Count = 0
    """Training images that batch-norm statistics are measured afresh on at the end; 0: kept as they are. The average
    of checkpoints always gets fresh ones."""
    distillation: DistillationSettings = DistillationSettings()
    qat: QuantizationSettings = QuantizationSettings()
    early_stopping: EarlyStoppingSettings = EarlyStoppingSettings()
    checkpoints: CheckpointSettings = CheckpointSettings()
    seed: Annotated[int, Field(ge=0)] = 0
