"""The remark of a search on published weights that lie on the machine."""

from dataclasses import replace
from typing import Any

import pytest

from nas.controller import preparation
from nas.controller.config import SearchConfig
from nas.controller.preparation import unused_weights
from nas.limits import Limits

CONFIG = SearchConfig(limits=Limits.of(latency_ms=5.0))


def test_it_names_one_and_how_many_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "cached_networks", lambda task: ["torchvision:resnet18"])
    assert unused_weights(CONFIG) == [
        "published weights of torchvision:resnet18 are in a cache here: --weights auto tries them"
    ]
    monkeypatch.setattr(preparation, "cached_networks", lambda task: ["torchvision:resnet18", "timm:a", "timm:b"])
    assert "torchvision:resnet18 and 2 more" in unused_weights(CONFIG)[0]


@pytest.mark.parametrize(
    "other",
    [
        {"limits": Limits.of(latency_ms=5.0, max_params=1e6)},
        {"limits": Limits.of(latency_ms=5.0, percentile=99)},
        {"objective": "pareto"},
        {"teacher": "RUN#1"},
        {"baselines": True},
        {"top": 2},
    ],
)
def test_it_is_not_made_beside_what_weights_refuses(other: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "cached_networks", lambda task: ["torchvision:resnet18"])
    assert unused_weights(replace(CONFIG, **other)) == []


def test_a_cache_that_cannot_be_read_ends_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(task: str) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(preparation, "cached_networks", forbidden)
    assert unused_weights(CONFIG) == []
