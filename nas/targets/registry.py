"""Targets by name: this host, the bundled profiles, and the ones a user made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import numpy as np

from nas.deployment import Deployment
from nas.errors import UnknownNameError, UserError
from nas.measure.host import HostFingerprint, differences, fingerprint
from nas.targets.profile import ENOUGH_NETWORKS, DeviceProfile, profiles_folder, quick_profile, saved_profile
from search_spaces import space_of

LOCAL = "local"
"""The name of this host; always a target."""

RUNTIME_PACKAGES = ("onnxruntime", "openvino")
"""Packages whose version changes latency."""


@dataclass(frozen=True, slots=True)
class BundledProfile:
    """A profile that comes with the package."""

    file: str
    description: str


BUNDLED: Mapping[str, BundledProfile] = {
    "xeon-spr": BundledProfile("xeon-spr.json", "Intel Xeon with AMX (Sapphire Rapids class), 2 cores"),
    "epyc-zen4": BundledProfile("epyc-zen4.json", "AMD EPYC with AVX512-BF16 (Zen 4), 2 cores"),
}


@dataclass(frozen=True, slots=True)
class Target:
    """A device to search for, as far as it is known before anything is measured."""

    name: str
    is_host: bool
    """True if networks can be measured here: the target is this host, or a profile of an equal one."""
    profile: DeviceProfile | None
    """None where nothing is known yet: the host has to be profiled first."""
    differences: tuple[str, ...]
    """Differences between this host and the profile's, in words."""


@dataclass(frozen=True, slots=True)
class TargetSummary:
    """One line of `nas targets`."""

    name: str
    description: str
    source: str
    """`this host`, `bundled`, `saved`, or `unreadable`, whose description says why."""
    device: str
    deployments: tuple[str, ...]
    matches_host: bool
    held_out: str | None
    """The profile's own error on held-out networks, best to worst deployment."""


def bundled_path(name: str) -> Path:
    return Path(str(files("nas.targets"))) / "profiles" / BUNDLED[name].file


def bundled_profiles() -> list[DeviceProfile]:
    """Every profile that comes with the package."""
    return [DeviceProfile.load(bundled_path(name)) for name in BUNDLED]


def bundled_of_others(host: HostFingerprint) -> list[DeviceProfile]:
    """Profiles that come with the package, of other devices than `host`."""
    return [p for p in bundled_profiles() if material_differences(host, p.fingerprint)]


def material_differences(here: HostFingerprint, there: HostFingerprint) -> list[str]:
    """Differences between two hosts that change latency: not the amount of memory, the kernel or Python's version.

    Nor a runtime that only one of them has: either the profile has no latencies of it, or this host cannot run it.
    """
    both = {name for name, _ in here.packages} & {name for name, _ in there.packages}
    compared = both & {*RUNTIME_PACKAGES, *(("torch",) if here.gpu else ())}  # PyTorch is deployed on GPUs alone

    def essence(host: HostFingerprint) -> HostFingerprint:
        # A patch release does not change kernels as a rule; a minor one may.
        runtimes = tuple((n, ".".join(v.split(".")[:2])) for n, v in host.packages if n in compared)
        return replace(host, packages=runtimes, memory_bytes=None, os="", python="")

    return differences(essence(here), essence(there))


def cached_profile(path: Path, like: DeviceProfile) -> DeviceProfile | None:
    """The profile that a search left at `path` in the cache; None where there is none, whole, of a host like that of
    `like`."""
    if not path.exists():
        return None
    try:
        found = DeviceProfile.load(path)
    except UserError:  # damaged, or of another version: to be written anew
        return None
    return None if material_differences(like.fingerprint, found.fingerprint) else found


def load_target(
    name: str, threads: int | None = None, device: HostFingerprint | None = None, task: str | None = None
) -> Target:
    """The target called `name`.

    `local` is known through a saved profile of this host, else through a bundled one of an equal host, and so is a
    `device` at hand: another machine that is the target, whatever its profile says. A profile for another number of
    threads than asked for, or without networks of `task`, does not count for these. Raises `UnknownNameError`.
    """
    here = fingerprint()
    if name == LOCAL or device is not None:
        machine = device or here
        best = _nearest_profile(name, machine, threads, task)
        found = tuple(material_differences(machine, best.fingerprint)) if best else ()
        return Target(name, is_host=name == LOCAL, profile=best, differences=found)
    if saved_profile(name).exists():
        profile = DeviceProfile.load(saved_profile(name))
    elif name in BUNDLED:
        profile = DeviceProfile.load(bundled_path(name))
    else:
        raise UnknownNameError("target", name, known_names())
    found = tuple(material_differences(here, profile.fingerprint))
    return Target(name, is_host=not found, profile=profile, differences=found)


def _nearest_profile(
    name: str, machine: HostFingerprint, threads: int | None, task: str | None
) -> DeviceProfile | None:
    """The profile of the host most like `machine`, of those saved as `name` and the bundled ones.

    Between hosts that are equally alike it is the one of more networks, up to as many as are enough: a profile made in
    two minutes must not take the place of a bundled one of the same processor. The saved one, which was measured on
    the very machine, wins ties, and always where its calls have another number of images: nobody else knows those.
    """
    saved = saved_profile(name)
    candidates = [p for p in (saved, quick_profile(name), *map(bundled_path, BUNDLED)) if p.exists()]
    known = [(p, _networks_by_deployment(p, threads, task)) for p in map(DeviceProfile.load, candidates)]
    usable = [(p, counts) for p, counts in known if any(counts) and _comparable(machine, p.fingerprint)]
    batch = known[0][0].batch if saved.exists() else 1

    def rank(found: tuple[DeviceProfile, list[int]]) -> tuple[bool, int, int]:
        profile, counts = found
        differences = len(material_differences(machine, profile.fingerprint))
        return profile.batch != batch, differences, -min(*counts, ENOUGH_NETWORKS)

    return min(usable, key=rank)[0] if usable else None


def _networks_by_deployment(profile: DeviceProfile, threads: int | None, task: str | None) -> list[int]:
    """Number of networks of a task measured in each deployment with so many threads; None: with any number."""
    one_of = {arch.space: arch for arch in profile.networks}
    spaces = {name for name, arch in one_of.items() if task in (None, space_of(arch).task)}
    of_task = np.array([arch.space in spaces for arch in profile.networks], dtype=bool)
    tables = [t for t in profile.tables if t.deployment.fits_threads(threads)]
    return [int((np.isfinite(t.column("latency_ms")) & of_task).sum()) for t in tables]


def _comparable(here: HostFingerprint, there: HostFingerprint) -> bool:
    """True if a profile of one host says something about the other once corrected by a factor: equal instructions."""
    return here.isa == there.isa and here.gpu == there.gpu


def known_names() -> list[str]:
    saved = [p.stem for p in sorted(profiles_folder().glob("*.json"))] if profiles_folder().is_dir() else []
    return [
        LOCAL,
        *(n for n in BUNDLED if bundled_path(n).exists()),
        *(n for n in saved if n not in BUNDLED and n != LOCAL),
    ]


def list_targets() -> list[TargetSummary]:
    """Every target, for people: this host first. One whose file cannot be read says so, and the others are listed."""
    here = fingerprint()
    summaries = []
    for name in known_names():
        try:
            target = load_target(name)
        except UserError as error:
            summaries.append(TargetSummary(name, str(error), "unreadable", "unknown", (), False, None))
            continue
        profile = target.profile
        source = "this host" if name == LOCAL else "saved" if saved_profile(name).exists() else "bundled"
        description = BUNDLED[name].description if name in BUNDLED else (profile.description if profile else "")
        device = here.cpu_model if name == LOCAL else profile.fingerprint.cpu_model if profile else "unknown"
        summaries.append(
            TargetSummary(
                name=name,
                description=description if name != LOCAL else _local_note(target),
                source=source,
                device=device,
                deployments=tuple(t.deployment.name for t in profile.tables) if profile else (),
                matches_host=target.is_host,
                held_out=_held_out(profile) if profile else None,
            )
        )
    return summaries


def _local_note(target: Target) -> str:
    if target.profile is None:
        return "no profile yet: the first search measures one"
    if target.differences:
        return f"profile {target.profile.name!r} with probes, because of: {'; '.join(target.differences)}"
    return f"known through profile {target.profile.name!r}"


def _held_out(profile: DeviceProfile) -> str | None:
    errors = [t.held_out.mape for t in profile.tables if t.held_out is not None]
    return f"{min(errors):.1%} to {max(errors):.1%} mean error" if errors else None


def usable_deployments(
    profile: DeviceProfile | None,
    here: Sequence[Deployment],
    runtimes: Sequence[str] | None,
    precisions: Sequence[str] | None,
    devices: Sequence[str] | None = None,
    *,
    is_host: bool,
) -> list[Deployment]:
    """Deployments that are known (in the profile), can run (where this is the host) and were asked for."""
    known = list(here) if profile is None else [t.deployment for t in profile.tables]
    return [
        d
        for d in known
        if (not is_host or d in here)
        and (not runtimes or d.runtime in runtimes)
        and (not precisions or d.precision in precisions)
        and (not devices or d.device in devices)
    ]
