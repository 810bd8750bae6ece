"""The one language of trainings: short ones, finalists, supernets and `nas finetune` are told by a `Recipe` alone.

Every setting has a unit in its name or is a count; unknown keys are errors. `nas.training.recipe_files` reads recipes
as YAML. Importing this is cheap: no torch.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from nas.errors import UnknownNameError, UserError

Fraction = Annotated[float, Field(ge=0, lt=1)]
Probability = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Settings = Mapping[str, Any]
"""Some settings of a recipe by name; those of a section as a mapping of their own."""
SMALLEST_BATCH = 32
"""Of those that a training with few steps is given: below it orthogonal steps, which cost the same whatever the batch,
take more time than the images."""
Crop = Literal["none", "shift", "light", "mosaic"]
AverageRise = Literal["power", "ratio"]


class Section(BaseModel):
    """A part of a recipe: a value, with no key that it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class OptimizerSettings(Section):
    """The optimiser. Norms and biases get no weight decay."""

    name: Literal["sgd", "muon", "adam", "adamw", "nadamw", "rmsprop", "lamb", "lion"] = "sgd"
    """timm's of that name; `sgd` has Nesterov momentum. All but `sgd` and `muon` want a lower rate. `muon` is SGD whose
    steps of the convolutions before norms are made orthogonal (`nas.training.muon`)."""
    lr: Positive = 0.05
    """Peak learning rate."""
    lr_batch_size: Annotated[int, Field(ge=1)] | None = None
    """The batch that `lr` is meant for: with another one it is scaled in proportion. None: `lr` as it is."""
    momentum: Fraction = 0.9
    """Momentum of sgd, rmsprop, and of what `muon` does not turn."""
    weight_decay: Amount = 5e-4
    norm_rate: Positive = 1.0
    """Rate of the scales and biases of batch norms, as a factor of `lr`."""
    turn_lr: Positive = 0.05
    """Of `muon`: peak rate of the convolutions before norms. With `lr_batch_size` it is scaled with the root of
    the batch."""
    turn_momentum: Fraction = 0.6
    """Of `muon`: momentum of these convolutions."""
    fused: bool = True
    """One pass over the weights where torch has such a form (sgd, adam, adamw): faster, its sums are rounded
    otherwise."""


class ScheduleSettings(Section):
    """The learning rate as a function of the share of the training that is done."""

    name: Literal["cosine", "linear", "step", "one-cycle"] = "cosine"
    warmup_epochs: Amount = 0.0
    """Linear rise to the peak; with `one-cycle` the rising half-cosine. `linear` falls on a straight line as well."""
    warmup_fraction: Fraction = 0.0
    """The same as a share of the whole training; the longer of the two counts."""
    step_epochs: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Epochs of the schedule `step`: after each of them the rate is multiplied by `step_factor`."""
    step_factor: Annotated[float, Field(gt=0, le=1)] = 0.1
    final_lr_fraction: Fraction = 0.0
    """Share of the peak that remains at the end of `cosine`, `linear` and `one-cycle`."""


class AugmentationSettings(Section):
    """Random changes of training images. All but `crop` and `flip` are for classification."""

    crop: Crop = "light"
    """`shift`: random shifts of images with mirrored borders, of classification, for short trainings. `light`: random
    shifts below 64 px, else random resized crops, see `nas.tasks.classification.augment`; in detection and pose random
    scales, places and colours, see `nas.tasks.detection.augment`. `mosaic`: four images in one, of both."""
    shift_fraction: Annotated[float, Field(ge=0, le=0.5)] = 0.0625
    """Of `shift`: the farthest, as a fraction of the image's side, in each direction."""
    smallest_crop: Annotated[float, Field(gt=0, le=1)] = 0.35
    """Of `light` from 64 px on: the smallest share of the area that a crop keeps."""
    flip: bool | Literal["auto"] = "auto"
    """Mirror half of the images; `auto`: where the data allow it (not so for digits)."""
    randaugment_ops: Count = 0
    """Operations per image (Cubuk et al. 2019); 0: none."""
    randaugment_magnitude: Annotated[int, Field(ge=0, le=30)] = 9
    erasing_probability: Probability = 0.0
    """Probability that an image loses a random box (Zhong et al. 2017)."""
    mixup_alpha: Amount = 0.0
    """Zhang et al. 2017; 0: none."""
    cutmix_alpha: Amount = 0.0
    """Yun et al. 2019; 0: none."""
    mix_probability: Probability = 1.0
    """Probability that a batch is mixed, where one of the two is on."""
    mix_from_epochs: Count = 0
    """Nothing is mixed in trainings of fewer epochs: mixed images keep a network from learning images by heart, and
    cost accuracy where each is seen a few times."""
    mix_from_weights: Amount = 0.0
    """Nothing is mixed where the network has fewer weights for each training image: it learns none by heart."""
    mix_until: Probability = 1.0
    """Share of the training after which nothing is mixed any more."""

    def mixes(self, epochs: int, weights_per_image: float) -> bool:
        """True if images are mixed in a training of so many epochs."""
        asked = self.mixup_alpha > 0 or self.cutmix_alpha > 0
        return asked and epochs >= self.mix_from_epochs and weights_per_image >= self.mix_from_weights


class SizeStep(Section):
    """A part of a training on smaller images."""

    until: Annotated[float, Field(gt=0, le=1)]
    """Share of the training that is done when the part ends."""
    scale: Annotated[float, Field(gt=0, le=1)]
    """Side of the images, as a fraction of what the network takes in the end."""


class DistillationSettings(Section):
    """Learning from a teacher (Hinton et al. 2015)."""

    teacher: str | None = None
    """`RUN#k`, `NAME.network.json` or its folder, or `torchvision:NAME:FILE.safetensors` (or `timm:`); empty: has
    to be set; None: none."""
    logits_weight: Probability = 0.7
    """Share of the loss that compares logits (in detection also boxes) with the teacher; the rest compares with the
    labels."""
    temperature: Positive = 2.0
    """Temperature of the softened classes, for classification."""
    features_weight: Amount = 0.0
    """Weight of 1 - cosine similarity of the last features, through a learnt linear map (classification); 0: none."""
    views: Count = 0
    """Epochs with augmented examples of their own: those after them take the same ones again, in turn, and the teacher,
    whose answers are kept, is not asked any more (Shen and Xing 2022, https://arxiv.org/abs/2112.01528). 0: every epoch
    has new ones. Not with `growing_size` or `draws: stream`."""


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
    """Gain above which an epoch counts as better, as a fraction of the validation images."""


class CheckpointSettings(Section):
    """The choice of the weights that are kept and of those that are delivered."""

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
    least_steps: Count = 0
    """A batch size that is a number is halved, but not below 32, until the whole training has so many steps: few images
    or epochs would otherwise be few steps."""
    accumulate_steps: Annotated[int, Field(ge=1)] = 1
    """Batches whose gradients are added up for one step of the optimiser."""
    optimizer: OptimizerSettings = OptimizerSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    augmentation: AugmentationSettings = AugmentationSettings()
    growing_size: tuple[SizeStep, ...] = ()
    """Parts of the training on smaller images, which cost less (Howard 2018), the first one first; behind the last one
    the images are as large as they are. None is smaller than 32 px, sides are rounded to multiples of 16. Of
    classification."""
    norm_momentum: Annotated[float, Field(gt=0, le=1)] | None = None
    """Weight of a batch in the running statistics of batch norms; None: as the network has it, which well-known ones
    choose themselves. Short trainings forget early statistics sooner with a higher one."""
    label_smoothing: Fraction = 0.0
    """Label smoothing, for classification."""
    clip_norm: Positive | None = None
    """Largest norm of all gradients together; None: not clipped."""
    ema_decay: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Decay per step of the moving average of the weights; validation and checkpoints use the average. None: no
    average."""
    ema_rise: AverageRise = "power"
    """Rise of the decay in the first steps, see `nas.training.average.decay_at`."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Number format of forward and backward passes (automatic mixed precision). `auto`: fp32 or bf16, by a short
    measurement; fp16, with scaled losses, is for GPUs without bf16."""
    channels_last: bool | Literal["auto"] = "auto"
    """Memory layout; `auto`: by a short measurement."""
    recalibrate_images: Count = 0
    """Training images that batch-norm statistics are measured afresh on at the end; 0: kept as they are. The average
    of checkpoints always gets fresh ones."""
    distillation: DistillationSettings = DistillationSettings()
    qat: QuantizationSettings = QuantizationSettings()
    early_stopping: EarlyStoppingSettings = EarlyStoppingSettings()
    checkpoints: CheckpointSettings = CheckpointSettings()
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    draws: Literal["step", "stream"] = "step"
    """Source of random numbers. `step`: the seed and the number of the step, so that an interrupted training goes on
    without any state, and several processes agree. `stream`: one stream for the whole training."""
    time_limit_s: Positive | None = None
    """Wall-clock limit of the whole training, validation included; the learning rate still ends at zero. Of one process
    alone."""

    @model_validator(mode="after")
    def _can_take_views_again(self) -> "Recipe":
        if self.distillation.views and self.growing_size:
            raise ValueError("distillation.views is for images of one size: leave out growing_size, or set views to 0")
        if self.distillation.views and self.draws == "stream":
            raise ValueError("distillation.views needs draws: step, which draws the same again")
        return self

    @property
    def fixed_batch_size(self) -> int:
        """`batch_size` of a recipe that does not leave it to the machine; raises `ValueError` for one that does."""
        if self.batch_size == "auto":
            raise ValueError("this recipe leaves its batch size to the machine")
        return self.batch_size

    def batch_for(self, examples: int) -> int:
        """Images per step of a training on so many; `ValueError` where the recipe leaves that to the machine."""
        size = self.fixed_batch_size
        while size // 2 >= SMALLEST_BATCH and self.epochs * examples < self.least_steps * size:
            size //= 2
        return min(size, max(2, examples))

    def changed(self, **settings: Any) -> Self:
        """This recipe with other settings; those of a section as a mapping: `changed(optimizer={"lr": 0.1})`.

        Raises:
            UserError: an unknown setting (`UnknownNameError`), or a value that makes no sense.
        """
        return type(self).of(merged(self.to_json(), settings), "training setting")

    def to_json(self) -> dict[str, Any]:
        """All settings as a document for `of`."""
        return self.model_dump(mode="json")

    @classmethod
    def of(cls, settings: Settings, name: str) -> Self:
        """The recipe with these settings; `name` is what errors call them.

        Raises:
            UserError: an unknown key (`UnknownNameError`), or a value that makes no sense.
        """
        _check_keys(settings, cls, ())
        try:
            return cls.model_validate(settings)
        except ValidationError as error:
            first = error.errors()[0]
            # The last part may name a member of a union: not a key.
            key = ".".join(str(part) for part in first["loc"] if str(part) in _all_keys(cls))
            problem = str(first["msg"]).removeprefix("Value error, ")
            raise UserError(
                f"{name}: {key + ' = ' if key else ''}{first['input']!r}: {problem[:1].lower()}{problem[1:]}",
                "see `nas recipes show base` for every setting and a value that it takes",
            ) from error


INHERITS = "inherits"
"""The key of a file that names the recipe whose settings it changes."""


def merged(base: Settings, over: Settings) -> dict[str, Any]:
    """`base` with what `over` says; mappings are merged, everything else is replaced."""
    out = dict(base)
    for key, value in over.items():
        known = out.get(key)
        out[key] = merged(known, value) if isinstance(known, Mapping) and isinstance(value, Mapping) else value
    return out


def _check_keys(settings: Settings, model: type[BaseModel], path: tuple[str, ...]) -> None:
    for key, value in settings.items():
        if key not in model.model_fields:
            prefix = "".join(f"{part}." for part in path)
            known = [*model.model_fields, *([] if path else [INHERITS])]
            raise UnknownNameError("recipe key", f"{prefix}{key}", [f"{prefix}{name}" for name in known])
        section = _section(model, key)
        if section is not None and isinstance(value, Mapping):
            _check_keys(value, section, (*path, key))


def _section(model: type[BaseModel], key: str) -> type[BaseModel] | None:
    annotation = model.model_fields[key].annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _all_keys(model: type[BaseModel]) -> set[str]:
    sections = (_section(model, key) for key in model.model_fields)
    return set(model.model_fields).union(*(_all_keys(s) for s in sections if s is not None))
