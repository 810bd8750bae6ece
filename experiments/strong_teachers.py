"""Train the networks that `nas search --baseline` is judged with: strong ones, on one GPU, in minutes.

    python -m experiments.strong_teachers train resnet18 --data cifar10.npz --seconds 240 --out parts
    python -m experiments.strong_teachers join parts/resnet18 teachers

`train` needs PyTorch, torchvision, safetensors and numpy alone, as bare GPUs have them. It reads `x_train`,
`y_train`, `x_val`, `y_val`, keeps all images on the device, and spreads its schedule over the seconds that it is given:
SGD with Nesterov momentum under a one-cycle rate, label smoothing, crops shifted by up to an eighth of the side,
mirrored views and one erased square. The validation images tell how good it became and decide nothing. Weights are
written as fp16, in parts that small limits on files do not refuse; `join` makes the two files of `--baseline`: weights
as safetensors and `preprocess.json`.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torchvision
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
PART_BYTES = 15_000_000
MOMENTUM, SMOOTHING, WARM_UP = 0.9, 0.1, 0.15


def resnet18(num_classes: int = 10) -> nn.Module:
    """ResNet-18 whose first convolution is 3x3 with stride 1, without the pooling after it: for 32 px."""
    network: nn.Module = torchvision.models.resnet18(weights=None, num_classes=num_classes)
    network.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    network.maxpool = nn.Identity()
    nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
    return network


@dataclass(frozen=True, slots=True)
class Teacher:
    """What is trained, and how. `reference` is its name for `--baseline`, before the colon of its file."""

    build: Callable[[int], nn.Module]
    reference: str
    resolution: int
    rate: float = 0.4
    decay: float = 5e-4
    batch: int = 512


TEACHERS: Mapping[str, Teacher] = {
    "resnet18": Teacher(resnet18, "experiments.strong_teachers:resnet18", 32),
    "resnet50": Teacher(
        lambda classes: torchvision.models.resnet50(weights=None, num_classes=classes), "torchvision:resnet50", 64
    ),
    "mobilenet_v3_large": Teacher(
        lambda classes: torchvision.models.mobilenet_v3_large(weights=None, num_classes=classes),
        "torchvision:mobilenet_v3_large", 64, decay=1e-4,
    ),
}  # fmt: skip


def augmented(images: Tensor, drawn: torch.Generator) -> Tensor:
    """Shifted, mirrored views with an erased square of half the side: (n, s, s, 3) uint8 to the same."""
    n, side = len(images), images.shape[1]
    room = side // 8

    def draw(high: int) -> Tensor:
        return torch.randint(high, (n,), generator=drawn, device=images.device)

    padded = nn.functional.pad(images, (0, 0, room, room, room, room))
    steps = torch.arange(side, device=images.device)
    columns = torch.where(draw(2)[:, None] == 1, steps.flip(0), steps) + draw(2 * room + 1)[:, None]
    rows = steps + draw(2 * room + 1)[:, None]
    views = padded[torch.arange(n, device=images.device)[:, None, None], rows[:, :, None], columns[:, None, :]]
    far = [(steps - draw(side)[:, None]).abs() > side // 4 for _ in range(2)]
    return views * (far[0][:, :, None] | far[1][:, None, :])[..., None]


def ready(images: Tensor, resolution: int) -> Tensor:
    """(n, s, s, 3) uint8 to normalised (n, 3, resolution, resolution)."""
    mean, std = (255 * torch.tensor(values, device=images.device) for values in (MEAN, STD))
    planes = ((images - mean) / std).permute(0, 3, 1, 2)
    if images.shape[1] != resolution:
        planes = interpolate(planes, size=(resolution, resolution), mode="bilinear", antialias=True)
    return planes


def rate_at(share: float) -> float:
    """Share of the highest rate after this share of the time: up in a line, then down by a cosine."""
    if share < WARM_UP:
        return share / WARM_UP
    return 0.5 * (1 + float(np.cos(np.pi * min(1.0, (share - WARM_UP) / (1 - WARM_UP)))))


def accuracy(network: nn.Module, images: Tensor, labels: Tensor, resolution: int) -> float:
    """Share of the images that are classified rightly, in fp32."""
    network.eval()
    with torch.inference_mode():
        parts = torch.split(images, 500)
        found = [network(ready(part, resolution)).argmax(1) for part in parts]
    return (torch.cat(found) == labels).float().mean().item()


def train(name: str, data: Mapping[str, np.ndarray], seconds: float, device: str, seed: int) -> nn.Module:
    """Train for `seconds` and tell once in a while how far it is."""
    teacher = TEACHERS[name]
    torch.manual_seed(seed)
    torch.backends.cudnn.benchmark = True
    x, y, x_val, y_val = (torch.from_numpy(data[k]).to(device) for k in ("x_train", "y_train", "x_val", "y_val"))
    y, y_val = y.long(), y_val.long()
    network = teacher.build(int(y.max()) + 1).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    plain = [p for p in network.parameters() if p.ndim < 2]
    decayed = [p for p in network.parameters() if p.ndim >= 2]
    groups = [{"params": decayed, "weight_decay": teacher.decay}, {"params": plain, "weight_decay": 0.0}]
    optimiser = torch.optim.SGD(groups, lr=0.0, momentum=MOMENTUM, nesterov=True)
    drawn = torch.Generator(device).manual_seed(seed)
    begun, epochs, told = time.perf_counter(), 0, 0.0
    while (share := (time.perf_counter() - begun) / seconds) < 1:
        network.train()
        order = torch.randperm(len(x), generator=drawn, device=device)
        for start in range(0, len(x) - teacher.batch + 1, teacher.batch):
            rows = order[start : start + teacher.batch]
            share = (time.perf_counter() - begun) / seconds
            for group in optimiser.param_groups:
                group["lr"] = teacher.rate * rate_at(share)
            views = ready(augmented(x[rows], drawn), teacher.resolution).contiguous(memory_format=torch.channels_last)
            with torch.autocast(torch.device(device).type, torch.bfloat16):
                answers = network(views)
            loss = cross_entropy(answers.float(), y[rows], label_smoothing=SMOOTHING)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        if device != "cpu":
            torch.cuda.synchronize()  # else the clock runs ahead of the device
        epochs += 1
        if share - told >= 0.1:
            told = share
            found = accuracy(network, x_val, y_val, teacher.resolution)
            print(f"{name}: {epochs} epochs, {share:.0%}, loss {loss.item():.3f}, val {found:.4f}", flush=True)
    print(f"{name}: {epochs} epochs in {time.perf_counter() - begun:.0f} s, "
          f"val {accuracy(network, x_val, y_val, teacher.resolution):.4f} of {len(y_val)}", flush=True)  # fmt: skip
    trained: nn.Module = network.cpu()
    return trained


def write_parts(network: nn.Module, folder: Path) -> None:
    """The weights as fp16 in files `0.safetensors`, `1.safetensors` and so on, of about `PART_BYTES` at most."""
    parts: list[dict[str, Tensor]] = [{}]
    held = 0
    for name, tensor in network.state_dict().items():
        kept = tensor.half().contiguous() if tensor.is_floating_point() else tensor
        if held + kept.nbytes > PART_BYTES and parts[-1]:
            parts.append({})
            held = 0
        parts[-1][name] = kept
        held += kept.nbytes
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(parts):
        save_file(part, folder / f"{number}.safetensors")


def join(folder: Path, out: Path) -> Path:
    """`OUT/NAME.safetensors` in fp32 and `preprocess.json` beside it, of the parts of one network."""
    tensors: dict[str, Tensor] = {}
    for part in sorted(folder.glob("*.safetensors")):
        tensors |= {k: v.float() if v.is_floating_point() else v for k, v in load_file(part).items()}
    file = out / folder.name / f"{folder.name}.safetensors"
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, file)
    (file.parent / "preprocess.json").write_text(json.dumps({"mean": MEAN, "std": STD}), encoding="utf-8")
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    actions = parser.add_subparsers(dest="action", required=True)
    training = actions.add_parser("train")
    training.add_argument("name", choices=TEACHERS)
    training.add_argument("--data", type=Path, required=True)
    training.add_argument("--seconds", type=float, default=240.0)
    training.add_argument("--seed", type=int, default=0)
    training.add_argument("--device", default="cuda")
    training.add_argument("--out", type=Path, required=True, help="OUT/NAME/0.safetensors and so on are written")
    joining = actions.add_parser("join")
    joining.add_argument("folder", type=Path)
    joining.add_argument("out", type=Path)
    given = parser.parse_args()
    if given.action == "join":
        file = join(given.folder, given.out)
        print(f"{TEACHERS[given.folder.name].reference}:{file}")
        return
    with np.load(given.data, allow_pickle=False) as arrays:
        data = {name: arrays[name] for name in ("x_train", "y_train", "x_val", "y_val")}
    write_parts(train(given.name, data, given.seconds, given.device, given.seed), given.out / given.name)


if __name__ == "__main__":
    main()
