"""Which operators the time of well-known networks goes to, on a processor and on a GPU.

`python -m experiments.operator_tables --out tables` times ConvNeXt-T, ViT-B/16, DeiT-T (random weights, one image of
224 px) and an encoder of BERT's base shape (128 tokens) in fp32: in eager PyTorch by the self time of each operator on
the processor, in ONNX Runtime and OpenVINO by their own profilers after their fusions, and in eager PyTorch on a CUDA
device by device time where there is one. It writes `tables.md` and `tables.json`. What is not installed is left out and
said. `--seconds` is the time of each network in each runtime, with a profiler and as long without.
"""

import argparse
import importlib
import json
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from nas.deployment import Deployment
from nas.machine import cgroup_quota_cores
from nas.runtimes.base import Session
from search_spaces.signature import TensorSpec

IMAGE = TensorSpec((3, 224, 224))
TOKENS = TensorSpec((128,), "int64", 30522)
MOST = 6
"""Kinds of operators in a table; the rest is one row."""
WHY = (
    "Times are self times: an operator's own, without those that it calls. On a GPU only device time counts, from "
    "events on the device. The time that the host takes to *enqueue* an operator says nothing about it: kernels run "
    "later, behind the host's back, so convolutions look cheap, and whatever first waits for the GPU (a copy to the "
    "host) seems to take all of the time. Tables of self CPU time for a GPU's work, as PyTorch's profiler prints them "
    "where it sees no device activity, mislead for that reason."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """All operators of one kind in a network."""

    kind: str
    """As the runtime calls it: `aten::addmm`, `Conv`, `FullyConnected`."""
    ms: float
    """Per call of the network."""
    share: float
    """Of the time of all operators."""
    calls: int
    """In one call of the network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One network in one runtime."""

    network: str
    runtime: str
    time: str
    """What the times are of: `self CPU`, `runtime's profiler`, `device`."""
    p50_ms: float
    """Of calls without a profiler."""
    operators: tuple[Operator, ...]
    """The most time first."""

    @property
    def sum_ms(self) -> float:
        return sum(o.ms for o in self.operators)


class Bert(nn.Module):
    """An encoder of the shape of BERT's base model (Devlin et al. 2019, https://arxiv.org/abs/1810.04805): token ids
    `(n, tokens)` to `(n, 2)` logits from the first token. Written out, so that every exporter can trace it."""

    def __init__(self, vocabulary: int, tokens: int, width: int = 768, heads: int = 12, layers: int = 12) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.randn(tokens, width) / width**0.5)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.words(ids) + self.places)
        for layer in self.layers:
            x = layer(x)
        logits: torch.Tensor = self.head(x[:, 0])
        return logits


class Layer(nn.Module):
    """Self-attention and two dense layers, each with a residual and a norm behind: `(n, tokens, width)` unchanged."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, tokens, width = x.shape
        qkv = self.qkv(x).reshape(n, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
        x = self.first(x + self.out(mixed.transpose(1, 2).reshape(n, tokens, width)))
        out: torch.Tensor = self.second(x + self.down(nn.functional.gelu(self.up(x))))
        return out


def _of_torchvision(name: str) -> nn.Module:
    module: nn.Module = importlib.import_module("torchvision.models").get_model(name, weights=None)
    return module


def _of_timm(name: str) -> nn.Module:
    module: nn.Module = importlib.import_module("timm").create_model(name, pretrained=False)
    return module


NETWORKS: Mapping[str, tuple[Callable[[], nn.Module], TensorSpec]] = {
    "ConvNeXt-T": (lambda: _of_torchvision("convnext_tiny"), IMAGE),
    "ViT-B/16": (lambda: _of_torchvision("vit_b_16"), IMAGE),
    "DeiT-T": (lambda: _of_timm("deit_tiny_patch16_224"), IMAGE),
    "BERT base": (lambda: Bert(TOKENS.values or 0, TOKENS.shape[0]), TOKENS),
}


def ranked(times: Sequence[tuple[str, float]]) -> tuple[Operator, ...]:
    """Kinds of operators by their time, from (kind, ms) of each operator of one call."""
    whole = sum(ms for _, ms in times)
    kinds = dict.fromkeys(kind for kind, _ in times)
    found = [
        Operator(kind=kind, ms=ms, share=ms / whole if whole else 0.0, calls=sum(k == kind for k, _ in times))
        for kind in kinds
        if (ms := sum(ms for k, ms in times if k == kind)) > 0
    ]
    return tuple(sorted(found, key=lambda o: o.ms, reverse=True))


def p50_ms(call: Callable[[], object], seconds: float, least: int = 3) -> float:
    """Median milliseconds of calls for `seconds`, after one that is not timed."""
    call()
    times, end = list[float](), time.perf_counter() + seconds
    while len(times) < least or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return float(np.median(times))


def eager_table(name: str, network: nn.Module, inputs: torch.Tensor, seconds: float, device: str = "cpu") -> Table:
    """Operators of eager PyTorch: by self time on the processor, or by device time on a CUDA `device`."""
    from torch.profiler import ProfilerActivity, profile

    on_gpu = device != "cpu"
    placed, given = network.eval().to(device), inputs.to(device)
    wait: Callable[[], object] = torch.cuda.synchronize if on_gpu else lambda: None

    def call() -> None:
        placed(given)
        wait()

    with torch.inference_mode():
        alone_ms = p50_ms(call, seconds)
        calls = max(2, min(50, int(1e3 * seconds / alone_ms)))
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
        with profile(activities=activities) as seen:
            for _ in range(calls):
                call()
    attribute = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    rows = [(e.key, float(getattr(e, attribute)) / 1e3 / calls, e.count / calls) for e in seen.key_averages()]
    # A kernel stands under its own name and, once more, under the operator that launched it.
    rows = [row for row in rows if row[0].startswith("aten::")]
    whole = sum(ms for _, ms, _ in rows)
    found = [
        Operator(kind=k, ms=ms, share=ms / whole, calls=round(count)) for k, ms, count in rows if ms > 0 and whole > 0
    ]
    return Table(
        network=name, runtime="torch eager" + (f" on {device}" if on_gpu else ""),
        time="device" if on_gpu else "self CPU", p50_ms=alone_ms,
        operators=tuple(sorted(found, key=lambda o: o.ms, reverse=True)),
    )  # fmt: skip


def runtime_table(name: str, runtime: str, onnx: Path, inputs: np.ndarray, threads: int, seconds: float) -> Table:
    """Operators of ONNX Runtime or OpenVINO, as they ran after their fusions."""
    from nas.runtimes import load_runtime
    from nas.runtimes.nodes import NodeTimer

    loaded, deployment = load_runtime(runtime), Deployment(runtime, "fp32", threads)
    alone_ms = _alone_ms(loaded.load(onnx, deployment), inputs, seconds)
    assert isinstance(loaded, NodeTimer)
    nodes = loaded.node_times(onnx, deployment, inputs, max(seconds, 4 * alone_ms / 1e3))
    return Table(
        network=name, runtime=runtime, time="runtime's profiler", p50_ms=alone_ms,
        operators=ranked([(node.kind or node.name, node.ms) for node in nodes]),
    )  # fmt: skip


def _alone_ms(session: Session, inputs: np.ndarray, seconds: float) -> float:
    """In a function, so that the session is gone before the profiler loads another one."""
    return p50_ms(lambda: session.run(inputs), seconds)


def tables(
    networks: Mapping[str, tuple[Callable[[], nn.Module], TensorSpec]], threads: int, seconds: float,
    device: str | None = None, tell: Callable[[str], None] = print,
) -> tuple[list[Table], list[str]]:  # fmt: skip
    """The tables of all networks, and a sentence for each that there is none of.

    Args:
        threads: of the processor's runtimes.
        device: a CUDA device of PyTorch; None: none.
    """
    found, left_out = list[Table](), list[str]()
    torch.set_num_threads(threads)
    for name, (make, spec) in networks.items():
        torch.manual_seed(0)
        network = make().eval()
        inputs = spec.draw(np.random.default_rng(0), 1)
        tell(f"{name}: torch")
        found.append(eager_table(name, network, torch.from_numpy(inputs), seconds))
        if device is not None:
            found.append(eager_table(name, network, torch.from_numpy(inputs), seconds, device))
            network = network.to("cpu")
        with TemporaryDirectory(prefix="operators-") as folder:
            onnx = Path(folder) / "network.onnx"
            missing = [package for package in ("onnx", "onnxruntime") if find_spec(package) is None]
            if missing:
                left_out.append(f"{name}: no file for other runtimes, because {missing[0]} is not installed")
                continue
            from nas.deploy.onnx import export_onnx

            export_onnx(network, spec, onnx)
            for runtime in ("onnxruntime", "openvino"):
                tell(f"{name}: {runtime}")
                if find_spec(runtime) is None:
                    left_out.append(f"{name} in {runtime}: it is not installed")
                    continue
                found.append(runtime_table(name, runtime, onnx, inputs, threads, seconds))
    return found, left_out


def markdown(found: Sequence[Table], left_out: Sequence[str]) -> str:
    """The tables as text, one for each network, with the largest kinds of operators of each runtime."""
    parts = [WHY]
    for name in dict.fromkeys(table.network for table in found):
        parts += [f"### {name}", "| runtime (p50 ms) | operator | n | self ms | share % |\n|---|---|---|---|---|"]
        rows = []
        for table in (t for t in found if t.network == name):
            first = f"{table.runtime}, {table.time} ({table.p50_ms:.3g})"
            for operator in table.operators[:MOST]:
                rows.append(f"| {first} | {operator.kind} | {operator.calls} | {operator.ms:.3g} | "
                            f"{100 * operator.share:.1f} |")  # fmt: skip
                first = ""
            rest = table.operators[MOST:]
            if rest:
                rows.append(f"| | {len(rest)} other kinds | {sum(o.calls for o in rest)} | "
                            f"{sum(o.ms for o in rest):.3g} | {100 * sum(o.share for o in rest):.1f} |")  # fmt: skip
        parts[-1] += "\n" + "\n".join(rows)
    return "\n\n".join([*parts, *left_out]) + "\n"


def processor() -> str:
    """Name of this host's processor."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def usable_cores() -> int:
    """Cores that this process may use at once."""
    import os

    return max(1, int(min(len(os.sched_getaffinity(0)), cgroup_quota_cores() or 1024)))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("operator-tables"), help="Files OUT.md and OUT.json.")
    parser.add_argument("--seconds", type=float, default=3.0, help="Of each network in each runtime, twice.")
    parser.add_argument("--threads", type=int, default=usable_cores())
    given = parser.parse_args(arguments)
    device = "cuda:0" if torch.cuda.is_available() else None
    found, left_out = tables(NETWORKS, given.threads, given.seconds, device)
    document: dict[str, Any] = {
        "device": processor(), "gpu": torch.cuda.get_device_name(0) if device else None, "threads": given.threads,
        "torch": torch.__version__, "tables": [asdict(table) for table in found], "left_out": left_out,
    }  # fmt: skip
    given.out.with_suffix(".json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    given.out.with_suffix(".md").write_text(markdown(found, left_out), encoding="utf-8")
    print(f"wrote {given.out.with_suffix('.md')} and {given.out.with_suffix('.json')}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
