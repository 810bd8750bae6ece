"""The machine's ceiling: what it is computed from, and where it is kept."""

import math
from pathlib import Path

import pytest

from nas.advice import ceiling
from nas.advice.ceiling import (
    CHAINS,
    ceilings,
    outside_ms,
    profiler_ms,
    write_chain,
    write_copy,
    write_product,
    write_small_products,
)
from nas.advice.graph import read_graph
from nas.deployment import Deployment
from nas.measure.job import SessionTiming
from nas.measure.measurement import Measurement, MeasureRequest, summarise
from nas.runtimes.nodes import NodeTime

FP32 = Deployment("onnxruntime", "fp32", 1)


def measured(p50_ms: float, nodes: list[NodeTime], disturbance: str | None = None) -> Measurement:
    session = SessionTiming(
        p50_ms=p50_ms, p90_ms=p50_ms, p99_ms=p50_ms, calls=9, reference_p50_ms=1.0, load_ms=1.0, memory_bytes=1,
        cpu_share=1.0, disturbance=disturbance, nodes=tuple(nodes),
    )  # fmt: skip
    return summarise(MeasureRequest(Path("file.onnx"), FP32), [session], None, 1.0)


def test_the_profilers_time_is_what_more_operators_add_to_it_alone() -> None:
    short = measured(0.10, [NodeTime("a", 0.01)] * 10)
    long = measured(0.15, [NodeTime("a", 0.01)] * 20)
    assert profiler_ms(short, long) == pytest.approx((0.20 - 0.10 - 0.05) / 10)
    assert profiler_ms(short, measured(0.3, [NodeTime("a", 0.01)] * 20)) == pytest.approx(-0.01), "it left some out"
    assert profiler_ms(short, short) == 0, "a runtime that joined the operators tells nothing"


def test_a_calls_own_time_is_what_is_left_without_operators() -> None:
    short = measured(0.10, [NodeTime("a", 0.001)] * 10)
    assert outside_ms(short, measured(0.15, [NodeTime("a", 0.001)] * 20)) == pytest.approx(0.05)
    assert outside_ms(short, measured(0.25, [NodeTime("a", 0.001)] * 20)) == 0, "never below zero"
    assert outside_ms(short, short) == 0


def test_the_measured_networks_are_what_they_say(tmp_path: Path) -> None:
    write_product(tmp_path / "product.onnx")
    write_copy(tmp_path / "copy.onnx")
    write_chain(tmp_path / "chain.onnx", 16)
    write_small_products(tmp_path / "small.onnx", 8)
    product, copy, chain, small = (
        read_graph(tmp_path / f"{name}.onnx") for name in ("product", "copy", "chain", "small")
    )
    assert all(layer.macs > 50e6 for layer in product.layers)
    assert (copy.macs, copy.layers[0].elements) == (0, 2 * 64**3)
    assert (chain.macs, len(chain.layers)) == (0, 16)
    assert (small.macs, len(small.layers)) == (8 * 64 * 9 * 16**2, 16)


@pytest.mark.parametrize(("disturbance", "times"), [(None, 1), ("a busy neighbour", 2)])
def test_an_undisturbed_ceiling_is_measured_once(
    disturbance: str | None, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    asked = list[int]()

    def measure(requests: list[MeasureRequest], **_: object) -> list[Measurement]:
        asked.append(len(requests))
        products = [NodeTime(f"product{place}", 2.0, "Conv", "fp32") for place in range(5)]
        chains = [measured(0.1, [NodeTime(f"y{n}", 0.01) for n in range(count)]) for count in CHAINS]
        copied = measured(0.1, [NodeTime("copy", 0.1, "Relu")])
        return [measured(5.0, products, disturbance), *chains, copied, *chains]

    monkeypatch.setattr(ceiling, "measure", measure)
    found = [ceilings([FP32], tmp_path / str(turn))[FP32] for turn in range(2)]
    assert asked == [6] * times
    assert found[0] == found[1]
    assert found[0].gmacs_per_s["fp32"] == pytest.approx(28 * 28 * 256 * 256 * 9 / 2e6)
    assert found[0].gb_per_s == pytest.approx(4 * 2 * 64**3 / 0.1e6)
    assert found[0].profiler_ms == pytest.approx(0.01), "32 more operators of 0.01 ms, and the calls are as long"
    assert found[0].outside_ms == pytest.approx(0.1)


def test_no_ceiling_is_known_of_another_device(tmp_path: Path) -> None:
    gpu = Deployment("torch", "fp16", 1, 1, "cuda:0")
    found = ceilings([gpu], tmp_path)[gpu]
    assert math.isnan(found.product_ms(10, "fp16"))
