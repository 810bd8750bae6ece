"""Well-known networks taken apart: how many split into units that compute the same bits when they are joined again.

`python -m experiments.units_check --out docs/units.md` builds networks of torchvision and timm with random weights
(none is downloaded), takes each apart (`nas.networks.units`, which refuses what does not compute the same), and writes
a table.
"""

import gc
import time
from dataclasses import dataclass
from pathlib import Path

import click
import timm
import torch
from torch import nn
from torchvision.models import get_model

from nas.errors import UserError
from nas.files.writing import staged_file
from nas.networks.units import units_of

TORCHVISION = """
    alexnet convnext_tiny densenet121 densenet169 efficientnet_b0 efficientnet_b1 efficientnet_b2
    efficientnet_b3 efficientnet_v2_s googlenet inception_v3 mnasnet0_5 mnasnet1_0 mobilenet_v2
    mobilenet_v3_large mobilenet_v3_small regnet_x_400mf regnet_x_800mf regnet_x_1_6gf regnet_y_400mf
    regnet_y_800mf regnet_y_1_6gf resnet18 resnet34 resnet50 resnet101 resnext50_32x4d
    shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5 shufflenet_v2_x2_0 squeezenet1_0
    squeezenet1_1 swin_t vgg11 vgg11_bn vgg16 vit_b_16 wide_resnet50_2
"""
TIMM = """
    convnext_atto convnext_nano convnextv2_atto cspresnet50 cspdarknet53 densenet121 dla34 dpn68
    edgenext_xx_small efficientformer_l1 efficientnet_b0 efficientnet_lite0 efficientvit_b0 fastvit_t8
    fbnetc_100 fbnetv3_b ghostnet_100 hardcorenas_a hrnet_w18_small lcnet_050 levit_128s mixnet_s
    mnasnet_100 mobilenetv2_100 mobilenetv3_large_100 mobilenetv4_conv_small mobileone_s0 mobilevit_xxs
    nfnet_l0 regnety_004 repvgg_a0 repvit_m0_9 resnest14d resnet26d rexnet_100 seresnet18 starnet_s1
    tf_efficientnetv2_b0 tiny_vit_5m_224
"""
SIDE, LARGER = 128, {"vit_b_16": 224, "swin_t": 224, "inception_v3": 299, "efficientformer_l1": 224, "levit_128s": 224,
                     "tiny_vit_5m_224": 224, "mobilevit_xxs": 256, "fastvit_t8": 256}  # fmt: skip
REPLACEABLE = 4
"""Units without which there is little to choose from."""


@dataclass(frozen=True, slots=True)
class Row:
    """One network."""

    name: str
    units: int
    inner: int
    """Units that take and give feature maps: those that could be replaced by others."""
    seconds: float
    failed: str = ""


def all_names() -> list[str]:
    """Every network of the table."""
    return [
        f"{library}:{n}" for library, names in (("torchvision", TORCHVISION), ("timm", TIMM)) for n in names.split()
    ]


def build(name: str) -> nn.Module:
    """A network with random weights, `torchvision:NAME` or `timm:NAME`."""
    library, _, network = name.partition(":")
    torch.manual_seed(0)
    if library == "timm":
        made: nn.Module = timm.create_model(network, pretrained=False)
        return made
    options = {"aux_logits": False, "init_weights": True} if network in ("googlenet", "inception_v3") else {}
    built: nn.Module = get_model(network, weights=None, **options)
    return built


def check(name: str) -> Row:
    """Take one network apart."""
    side = LARGER.get(name.partition(":")[2], SIDE)
    network, example = build(name), torch.randn(2, 3, side, side)
    start = time.perf_counter()
    try:
        units = units_of(network, example)
    except UserError as error:
        return Row(name, 0, 0, time.perf_counter() - start, str(error))
    inner = sum(len(u.input_shape) == len(u.output_shape) == 4 for u in units[1:])
    return Row(name, len(units), inner, time.perf_counter() - start)


def page(rows: list[Row]) -> str:
    """The table, and the figures that it comes to."""
    split = [row for row in rows if not row.failed]
    rich = [row for row in split if row.inner >= REPLACEABLE]
    lines = [
        "# Networks taken apart",
        "",
        f"Of {len(rows)} networks of torchvision and timm, with random weights, {len(split)} split into units that",
        f"compute the same bits when they are joined again (`nas bench --blocks`); {len(rich)} of them have",
        f"{REPLACEABLE} or more units between feature maps, which could be replaced by others. Made by",
        "`python -m experiments.units_check --out docs/units.md`.",
        "",
        "| network | units | between feature maps | seconds |",
        "|---|---|---|---|",
        *(f"| {r.name} | {r.failed or r.units} | {'-' if r.failed else r.inner} | {r.seconds:.1f} |" for r in rows),
    ]
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--network", "names", multiple=True, help="Only this one (repeatable): torchvision:NAME or timm:NAME.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the table here.")
def main(names: tuple[str, ...], out: Path | None) -> None:
    """Take well-known networks apart."""
    rows = []
    for name in names or all_names():
        rows.append(check(name))
        click.echo(f"{name}: {rows[-1].failed or rows[-1].units}")
        gc.collect()
    if out is not None:
        with staged_file(out) as staged:
            staged.write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
