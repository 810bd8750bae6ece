"""A precision whose products are wrong is not offered."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nas.runtimes import deployments_here, ov
from nas.runtimes.ov import OpenVino
from nas.runtimes.self_test import Multiply, products_are_right


def rounded(values: Any) -> Any:
    """To bf16: the upper half of each fp32, to nearest."""
    bits = np.asarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32)


def wrong_at(change: Callable[[Any], Any]) -> Multiply:
    return lambda left, right: change(rounded(left) @ rounded(right))


def test_rounding_is_allowed_and_errors_are_not() -> None:
    assert products_are_right(lambda left, right: left @ right)
    assert products_are_right(wrong_at(lambda product: rounded(product)))
    assert not products_are_right(wrong_at(lambda product: 1.05 * product))
    assert not products_are_right(wrong_at(lambda product: product[:, ::-1]))
    assert not products_are_right(wrong_at(lambda product: np.where(product > 10, np.nan, product)))
    assert not products_are_right(wrong_at(lambda product: product[:-1]))
    last_inner_is_lost: Multiply = lambda left, right: left[:, :-16] @ right[:-16]  # noqa: E731
    assert not products_are_right(last_inner_is_lost)


def test_openvino_computes_right_here() -> None:
    assert ov.computes_right("f32")


@pytest.mark.parametrize("right", [True, False])
def test_wrong_products_are_a_reason_not_to_offer_bf16(monkeypatch: pytest.MonkeyPatch, right: bool) -> None:
    monkeypatch.setattr(ov, "_offers_bf16", lambda: True)
    monkeypatch.setattr(ov, "computes_right", lambda hint: right)
    offered = {d.precision for d in deployments_here(1, ["openvino"])}
    assert ("bf16" in offered) == right
    reason = OpenVino().unsupported("bf16")
    assert reason is None if right else reason is not None and "products in bf16 are wrong" in reason
