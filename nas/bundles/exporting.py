"""`nas export`: a trained network, its deployments tried, the best of them as a bundle."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nas.bundles.bundle import Claims, complete_bundle, deliver_files
from nas.bundles.receipt import read_receipt
from nas.bundles.source import Source, resolve
from nas.calls import CONTINUOUS, interval_ms_of
from nas.data_options import USUAL, DataSource
from nas.deploy.choosing import UpperBound, choose
from nas.deploy.deploy import deploy, deployed_accuracy
from nas.deploy.tried import FP32, Deployed, TriedDeployment
from nas.deployment import ALONE, CPU, PIPELINE, Deployment, Extent
from nas.errors import NotDeliverableError, UserError
from nas.files.folders import check_writable
from nas.files.writing import write_json
from nas.limits import Limits, Observation
from nas.measure.host import threads_here
from nas.measure.protocol import measure
from nas.networks.description import NetworkDescription
from nas.networks.find import EXPORTS, PAIR_SUFFIX, RECEIPT
from nas.networks.trained_on import data_of_run
from nas.progress import Progress, SilentProgress
from nas.runtimes import available_runtimes, deployments_here, load_runtime, nothing_runs, require
from nas.runtimes.base import check_supported, staging_folder
from nas.runtimes.devices import require_device
from nas.targets.latency import Z_90, LatencyModel
from nas.targets.registry import LOCAL, Target, load_target
from nas.tasks import TaskData, task_named, task_of, tries_dynamic_int8
from nas.tasks.same_data import require_same_data
from nas.training.precision import resolve_device
from search_spaces import Architecture, space_of

if TYPE_CHECKING:
    from torch import nn

AUTO = "auto"
MAX_DROP = 0.01
REFERENCE = "not asked for: it shows what a faster precision loses"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """Network to export and settings of the export; None: as the network's run was asked, or the usual value."""

    model: str
    """A network as `nas.networks.find` knows them."""
    checkpoint: Path | None = None
    runtimes: tuple[str, ...] | None = None
    """None: every installed one."""
    precision: str = AUTO
    max_drop: float | None = None
    """Accuracy (fraction) that a deployment may lose against fp32; usually 0.01."""
    target: str | None = None
    """Usually this host."""
    threads: int | None = None
    device: str | None = None
    """`cpu` or `cuda:N` of the target; usually the CPU of this host, or those that another target's profile knows."""
    data: str | None = None
    """Needed where the network is of no run."""
    seed: int | None = None
    """Seed of splits that are held out; usually 0."""
    latency_ms: float | None = None
    calls: str | None = None
    """Pattern of calls that latency is measured in, see `nas.calls`; usually without a pause."""
    limit_on: Extent | None = None
    """What latencies are of, see `nas.deployment.Extent`; usually the network alone."""
    out: Path | None = None
    """None: `RUN/exports/K` of `RUN#K` and of a winner's folder, else `NAME.bundle` beside the network's file."""
    command: str = ""

    def __post_init__(self) -> None:
        if self.max_drop is not None and not 0 <= self.max_drop <= 1:
            raise UserError(f"a largest drop of {self.max_drop} makes no sense", "give percentage points, 0 to 100")
        if self.threads is not None and self.threads < 1:
            raise UserError(f"--threads {self.threads} makes no sense", "give 1 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A bundle on disk."""

    folder: Path
    receipt: dict[str, Any]
    missed: str
    """Description of the missed limits; empty where all were kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Conditions:
    """The limits, asked of each deployment of one network."""

    limits: Limits
    params: int
    asked: frozenset[Deployment]
    upper_bound: UpperBound | None

    def seen(self, t: TriedDeployment) -> Observation:
        known = Observation(batch=t.deployment.batch, params=self.params, size_bytes=t.size_bytes, accuracy=t.accuracy)
        if self.upper_bound is not None:
            bound = self.upper_bound(t.deployment)
            return replace(known, latencies_ms=(bound,), medians_ms=(bound,), predicted=True)
        return self.limits.observe(known, t.measurement)

    def missed(self, t: TriedDeployment) -> str:
        return "; ".join(v.reason for v in self.limits.violations(self.seen(t)))

    def not_asked(self, t: TriedDeployment) -> str:
        return "" if t.deployment in self.asked else REFERENCE

    def rejection(self, t: TriedDeployment) -> str:
        return self.not_asked(t) or self.missed(t)

    def margin_pct(self, t: TriedDeployment) -> float | None:
        """See `Limits.margin_pct`."""
        return self.limits.margin_pct(self.seen(t))


def export_bundle(request: ExportRequest, progress: Progress | None = None) -> Exported:
    """Try the deployments that were asked for and write the best acceptable one as a bundle.

    That is the fastest of those that keep the limits and lose at most `max_drop`; where none keeps the limits, the
    fastest of the others, marked as a miss.

    Raises:
        UserError: wrong input; nothing was written.
        NotDeliverableError: every deployment loses too much or does not run, or ONNX does not compute what torch does.
    """
    progress = progress or SilentProgress()
    source = resolve(request.model, request.checkpoint)
    out = claim_folder(request.out or default_folder(source))
    place = out.resolve()  # `.` cannot be renamed, and a link should go on showing there
    data, reference = load_data(request, source)
    description = source.described(data.output_size)
    network = source.load(description)
    target = load_target(request.target or (source.run.target if source.run else LOCAL), request.threads)
    threads = request.threads or (source.run.threads if source.run else None)
    interval_ms = interval_ms_of(request.calls or (source.run.calls if source.run else CONTINUOUS))
    batch, products = images_per_call(request, source, target), tries_dynamic_int8(data.task)
    offered = choose_deployments(request, target, threads, batch, products)
    covers = request.limit_on or (source.run.limit_on if source.run else ALONE)
    if covers == PIPELINE and not target.is_host:
        raise UserError(
            f"--limit-on pipeline is measured where pre-processing runs, and target {target.name!r} is not this host",
            "export on the device itself, or give --limit-on network",
        )
    asked = [deployment.called(interval_ms).covering(covers) for deployment in offered]
    limits = source.run.limits if source.run else Limits()
    if request.latency_ms is not None:
        limits = limits.changed(latency_ms=request.latency_ms)
    max_drop = request.max_drop if request.max_drop is not None else source.run.max_drop if source.run else MAX_DROP
    conditions = _Conditions(
        limits=limits,
        params=_deployed_params(network),
        asked=frozenset(asked),
        upper_bound=None if target.is_host else predicted_bound(target, asked, description),
    )
    with staging_folder(place.parent) as staging:
        progress.note(f"measuring accuracy in torch on {len(data.val)} validation images")
        network.to(resolve_device("auto"))
        torch_accuracy = task_of(data).accuracy(
            network, data.for_input("val", description.signature.input), data.preprocess
        )
        progress.note(f"trying {', '.join(d.name for d in asked)}")
        deployed = deploy(
            network, description, data, with_reference(asked), folder=staging / "work",
            max_drop=max_drop, rejection=conditions.rejection, upper_bound=conditions.upper_bound,
            in_training=source.in_training.file if source.in_training is not None else None,
            isa=target.profile.fingerprint.isa if target.profile is not None and not target.is_host else None,
            measurer=partial(measure, least_calls=limits.least_calls) if limits.least_calls else None,
        )  # fmt: skip
        deployed, chosen = _choose(deployed, conditions, max_drop, task_of(data).metric_of(data))
        test = deployed_accuracy(chosen, data, "test", description) if len(data.test) else None
        claims = Claims(
            command=request.command, source=request.model, target=target.name, data=reference, max_drop=max_drop,
            limits=limits.to_json(), limits_text=limits.text, within_limit=not conditions.missed(chosen),
            margin_pct=conditions.margin_pct(chosen), torch_accuracy=torch_accuracy, test_accuracy=test,
            predicted_ms=conditions.upper_bound(chosen.deployment) if conditions.upper_bound is not None else None,
            in_training=source.in_training.story() if source.in_training is not None and chosen.in_training else None,
        )  # fmt: skip
        bundle = staging / "bundle"
        delivered = deliver_files(deployed, bundle)
        if isinstance(description.source, Architecture):
            architecture = space_of(description.source).to_json(description.source)
            write_json(bundle / "architecture.json", architecture)
        receipt = complete_bundle(bundle, delivered, data, claims)
        if place.exists():
            place.replace(staging / "replaced")  # it disappears with the staging folder
        bundle.replace(place)
    return Exported(folder=out, receipt=receipt, missed=conditions.missed(chosen))


def default_folder(source: Source) -> Path:
    """Folder of a bundle for which none was named."""
    folder = source.path.parent  # RUN/winners/K, or RUN/finalists/NAME
    if source.found.rank is not None:
        return folder.parent.parent / EXPORTS / str(source.found.rank)
    if source.found.run is not None and folder.absolute().parent == source.found.run / "winners":
        return folder.parent.parent / EXPORTS / folder.name
    return source.path.with_name(source.path.name.removesuffix(PAIR_SUFFIX).removesuffix(".json") + ".bundle")


def claim_folder(out: Path) -> Path:
    """`out`, where it is free, empty or a bundle to be replaced.

    Raises `UserError` where it holds anything else, or cannot be written.
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file", "name a folder")
    check_writable(out)
    if not out.is_dir():
        return out
    present = {path.name for path in out.iterdir()}
    known = {RECEIPT, *read_receipt(out).sha256} if RECEIPT in present else set()
    others = sorted(present - known)
    if others:
        raise UserError(f"--out {out} holds other files ({others[0]})", "name another folder")
    return out


def load_data(request: ExportRequest, source: Source) -> tuple[TaskData, DataSource]:
    """The data to calibrate and to measure the accuracy with, pre-processed as the network was trained."""
    known = source.data
    name = request.data or (known.source if known else None)
    if name is None:
        raise UserError(
            f"nothing says what {source.found.text} was trained on", "give the data: --data NAME, a folder or a file"
        )
    seed = request.seed if request.seed is not None else known.seed if known else 0
    used = DataSource(source=name, seed=seed, options=known.options if known else USUAL)
    data = task_named(source.found.task).load(used.source, seed=used.seed, options=used.options)
    run = source.found.run
    if run is not None and used == data_of_run(run):
        require_same_data(run, data)
    if len(data.val) == 0:
        raise UserError(f"the data set {name!r} has no validation images", "give data with at least one")
    if source.labels is not None and source.labels != data.classes:
        differing = next(
            (f"{a!r} and {b!r}" for a, b in zip(source.labels, data.classes, strict=False) if a != b),
            f"{len(source.labels)} and {len(data.classes)} classes",
        )
        raise UserError(
            f"{source.found.text} was trained on other classes than {name!r} has ({differing})",
            "give the data it was trained on with --data",
        )
    if source.preprocess is not None:
        data = data.with_preprocess(source.preprocess)
    return data, used


def images_per_call(request: ExportRequest, source: Source, target: Target) -> int:
    """The batch to export for: that of the network's run, or of the profile of another target that was asked for."""
    if request.target is not None and (source.run is None or source.run.target != request.target):
        return target.profile.batch if target.profile else 1
    return source.run.batch if source.run else 1


def choose_deployments(
    request: ExportRequest, target: Target, threads: int | None, batch: int = 1, dynamic_int8: bool = False
) -> list[Deployment]:
    """Every deployment that was asked for and is possible; `dynamic_int8`: of networks of matrix products.

    Raises `UserError` where there is none.
    """
    if target.is_host:
        device = request.device or CPU
        require_device(device)
        for name in request.runtimes or ():
            runtime = load_runtime(name)
            require(runtime)
            if request.precision != AUTO:
                check_supported(runtime, request.precision, device)
        known = deployments_here(threads_here(threads), request.runtimes, batch, device, dynamic_int8)
        if not known:
            raise UserError(*nothing_runs(device, request.runtimes))
    else:
        assert target.profile is not None
        if target.profile.batch != batch:
            raise UserError(
                f"the network's run had batch {batch}, the profile of {target.name!r} now has {target.profile.batch}",
                f"`nas profile {target.name} --batch {batch}` on that device, or --target local",
            )
        known = [
            t.deployment for t in target.profile.tables if t.deployment.fits_threads(threads or target.profile.threads)
        ]
        known = [d for d in known if request.runtimes is None or d.runtime in request.runtimes]
        known = [d for d in known if request.device in (None, d.device)]
    found = [d for d in known if request.precision in (AUTO, d.precision)]
    if not found:
        names = ", ".join(d.name for d in known) or ", ".join(available_runtimes())
        raise UserError(f"target {target.name!r} has no deployment in {request.precision}", f"it knows: {names}")
    return found


def with_reference(asked: Sequence[Deployment]) -> list[Deployment]:
    """`asked`, and an fp32 deployment to compare accuracies with where there is none among them."""
    if any(d.precision == FP32 for d in asked):
        return list(asked)
    reference = replace(asked[0], runtime="onnxruntime", precision=FP32, device=CPU)
    return [reference, *asked]


def predicted_bound(target: Target, asked: Sequence[Deployment], description: NetworkDescription) -> UpperBound:
    """The profile's upper bounds for a target that is not this host. Raises `UserError` where it cannot tell."""
    assert target.profile is not None
    if not isinstance(description.source, Architecture):
        raise UserError(
            f"nothing is known of {description.source} on {target.name!r}, and this host differs from it "
            f"({'; '.join(target.differences)})",
            "export on that device, or with --target local",
        )
    space = space_of(description.source)
    model = LatencyModel(target.profile, asked)
    found = model.predict(space, space.choices([description.source]), description.signature.output.size)
    bounds = {d: float(p.mean[0] + Z_90 * p.std[0]) for d, p in found.items()}
    return lambda deployment: bounds.get(deployment, math.inf)


def _choose(
    deployed: Deployed, conditions: _Conditions, max_drop: float, metric: str
) -> tuple[Deployed, TriedDeployment]:
    """The deployment to deliver: also one that misses the limits, where nothing better is there."""
    if deployed.parity is not None and deployed.parity.defect:
        raise NotDeliverableError(deployed.parity.defect, "report this network: it should not happen")
    if deployed.chosen is None:
        again = choose(
            deployed.tried,
            max_drop,
            conditions.not_asked,
            conditions.upper_bound,
            metric=metric,
        )
        deployed = replace(deployed, tried=tuple(again))
    if deployed.chosen is None:
        reasons = "; ".join(f"{t.name}: {t.reason}" for t in deployed.tried if t.deployment in conditions.asked)
        raise NotDeliverableError(
            f"no deployment can be delivered ({reasons})", "allow more with --max-drop, or try --precision auto"
        )
    return deployed, deployed.chosen


def _deployed_params(network: "nn.Module") -> int:
    from search_spaces.modules import folded

    return sum(p.numel() for p in folded(network).parameters())
