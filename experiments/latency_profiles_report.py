"""The page about one device profile: its errors on held-out networks, and predicted against measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from experiments.scatter_chart import scatter_svg
from nas.deployment import Deployment
from nas.targets.latency import Z_90, LatencyModel
from nas.targets.profile import DeviceProfile
from search_spaces import load_search_space

_HEADER = (
    "| deployment | networks | MAPE % | within 5 % | within 10 % | Kendall tau | 90 % interval holds | noise floor % "
    "| constant: within 10 % | MACs: within 10 % |\n|---|---|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True)
class Judged:
    """Predictions of one deployment beside what was measured, all (n,) and in ms."""

    deployment: Deployment
    spaces: NDArray[np.str_]
    measured: NDArray[np.float64]
    """Median over fresh sessions, scaled to the speed at which the device was profiled by the reference network."""
    unscaled: NDArray[np.float64]
    """The same, as it was seen."""
    predicted: NDArray[np.float64]
    std: NDArray[np.float64]
    macs_only: NDArray[np.float64]
    """A line in log MACs through the profile's networks."""
    constant: float
    """The profile's median."""
    noise_floor_pct: float

    def row(self, name: str, mask: NDArray[np.bool_], *, unscaled: bool = False) -> str:
        """One line of the table, for the networks in `mask`."""
        measured, predicted = (self.unscaled if unscaled else self.measured)[mask], self.predicted[mask]
        errors = np.abs(predicted / measured - 1)
        covered = np.abs(predicted - measured) <= Z_90 * self.std[mask]
        tau = kendalltau(predicted, measured).statistic
        constant = np.abs(self.constant / measured - 1) <= 0.1
        macs = np.abs(self.macs_only[mask] / measured - 1) <= 0.1
        shares = (errors <= 0.05, errors <= 0.10)
        cells = [f"{100 * errors.mean():.1f}", *(f"{100 * s.mean():.0f}" for s in shares), f"{tau:.3f}"]
        cells += [f"{100 * covered.mean():.0f}", f"{self.noise_floor_pct:.1f}"]
        cells += [f"{100 * constant.mean():.0f}", f"{100 * macs.mean():.0f}"]
        return f"| {name} | {int(mask.sum())} | {' | '.join(cells)} |"


def judge(profile: DeviceProfile, heldout: DeviceProfile) -> list[Judged]:
    """Predict the networks of `heldout` from `profile`, for each deployment both know."""
    found = []
    spaces = np.array([arch.space for arch in heldout.networks])
    for table in heldout.tables:
        if profile.table(table.deployment) is None:
            continue
        model = LatencyModel(profile, [table.deployment])
        mean, std = np.empty(len(spaces)), np.empty(len(spaces))
        for i, arch in enumerate(heldout.networks):
            space = load_search_space(arch.space)
            one = model.predict(space, space.choices([arch]), heldout.output_size)[table.deployment]
            mean[i], std[i] = one.mean[0], one.std[0]
        known = profile.table(table.deployment)
        assert known is not None
        seen = known.steady_latency_ms()
        usable = np.isfinite(seen)
        line = np.polyfit(np.log(_macs(profile)[usable]), np.log(seen[usable]), 1)
        unscaled = table.column("latency_ms")
        kept = np.isfinite(unscaled)
        speed = np.nanmedian(known.column("reference_ms")) / table.column("reference_ms")
        measured = unscaled * np.where(np.isfinite(speed), speed, 1.0)
        found.append(
            Judged(
                deployment=table.deployment,
                spaces=spaces[kept],
                measured=measured[kept],
                unscaled=unscaled[kept],
                predicted=mean[kept],
                std=std[kept],
                macs_only=np.exp(np.polyval(line, np.log(_macs(heldout)[kept]))),
                constant=float(np.median(seen[usable])),
                noise_floor_pct=float(np.nanmedian(table.column("spread_pct"))),
            )
        )
    return found


def repetition_rows(heldout: DeviceProfile, again: DeviceProfile) -> list[str]:
    """How well one measurement of a network says what another one finds at another time: a line per deployment.

    Both are medians over sessions, scaled to the same speed by the reference network; over the networks in both.
    """
    first = {arch.key: i for i, arch in enumerate(heldout.networks)}
    pairs = [(first[arch.key], i) for i, arch in enumerate(again.networks) if arch.key in first]
    rows = []
    for table in heldout.tables:
        other = again.table(table.deployment)
        if other is None or not pairs:
            continue
        here, there = (np.array(side) for side in zip(*pairs, strict=True))
        steady = [table.steady_latency_ms()[here], other.steady_latency_ms()[there]]
        speed = np.nanmedian(table.column("reference_ms")) / np.nanmedian(other.column("reference_ms"))
        errors = np.abs(steady[1] * speed / steady[0] - 1)
        errors = errors[np.isfinite(errors)]
        cells = [f"{100 * errors.mean():.1f}", f"{100 * (errors <= 0.05).mean():.0f}"]
        cells.append(f"{100 * (errors <= 0.10).mean():.0f}")
        name = f"{table.deployment.name}, {table.deployment.threads} threads"
        rows.append(f"| {name} | {len(errors)} | {' | '.join(cells)} |")
    return rows


def write_report(
    profile: DeviceProfile,
    heldout: DeviceProfile,
    out: Path,
    again: DeviceProfile | None = None,
    *,
    command: str | None = None,
    speed: str = "",
) -> None:
    """Write the page to `out` and one plot per deployment beside it.

    `again`: some of the held-out networks measured at another time. `command`: what made the page, where it was not
    `measure` and `report`. `speed`: the section that `experiments.latency_speed` prints.
    """
    lines = [command] if command else [
        "measure --out heldout.json",
        f"report --profile PROFILE --heldout heldout.json {'' if again is None else '--again AGAIN '}"
        f"{'--speed SPEED ' if speed else ''}--out {out}",
    ]  # fmt: skip
    spaces = list(dict.fromkeys(arch.space for arch in heldout.networks))
    pixels = sorted({load_search_space(arch.space).resolution(arch) for arch in heldout.networks})
    parts = [
        "# Latency prediction on networks that were never measured for fitting\n",
        f"Profile `{profile.name}`: {profile.fingerprint.cpu_model}, {len(profile.networks)} random networks; "
        f"evaluated on {len(heldout.networks)} other random networks of {_listed(spaces)} at {pixels[0]} to "
        f"{pixels[-1]} px, measured in {heldout.sessions} freshly loaded sessions (the truth is their median; "
        "the noise floor is the median spread between them). Made by:\n",
        "```sh\n" + "".join(f"python -m experiments.latency_profiles {line}\n" for line in lines) + "```\n",
        f"{heldout.disturbed} of the measurements stayed disturbed after being repeated.\n",
        "The device ran at another speed than when it was profiled: the reference network, timed in turns with "
        f"every network, took {_reference_ms(heldout):.3f} ms, and {_reference_ms(profile):.3f} ms then. Latencies are "
        "scaled by that ratio; the last row of each table is without it.\n",
    ]
    if again is not None:
        parts.append(
            "## What measuring again says\n\nThe same networks, measured at another time by the same protocol and "
            "scaled to the same speed in the same way. No prediction can be expected to come nearer to the first "
            "measurement than the second one does.\n\n| deployment | networks | MAPE % | within 5 % | within 10 % |\n"
            "|---|---|---|---|---|\n" + "\n".join(repetition_rows(heldout, again)) + "\n"
        )
    for judged in judge(profile, heldout):
        name = f"{judged.deployment.name}, {judged.deployment.threads} threads"
        plot = out.with_name(f"{out.stem}-{judged.deployment.name}-{judged.deployment.threads}.svg")
        svg = scatter_svg(judged.measured, judged.predicted, judged.spaces, "measured ms", "predicted ms")
        plot.write_text(svg)
        rows = [judged.row(space, judged.spaces == space) for space in sorted(set(judged.spaces))]
        everyone = np.ones(len(judged.spaces), dtype=bool)
        rows.append(judged.row("all", everyone))
        rows.append(judged.row("all, as seen", everyone, unscaled=True))
        parts.append(f"## {name}\n\n{_HEADER.replace('deployment', 'space', 1)}\n" + "\n".join(rows) + "\n")
        parts.append(f"![predicted against measured, {name}]({plot.name})\n")
    out.write_text("\n".join([*parts, *([speed.strip() + "\n"] if speed else [])]))


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def _reference_ms(profile: DeviceProfile) -> float:
    return float(np.nanmedian(np.concatenate([table.column("reference_ms") for table in profile.tables])))


def _macs(profile: DeviceProfile) -> NDArray[np.float64]:
    found = []
    for arch in profile.networks:
        space = load_search_space(arch.space)
        found.append(float(space.costs(space.choices([arch]), profile.output_size)["macs"][0]))
    return np.array(found)
