"""A result document made for tests; its figures are invented and stand for no machine."""

from typing import Any

import numpy as np
import pandas as pd


def accuracy(deployed: float) -> dict[str, float]:
    return {
        "estimate": deployed - 0.02, "estimate_std": 0.03, "trained": deployed + 0.004, "deployed": deployed,
        "test": deployed - 0.01,
    }  # fmt: skip


def estimate(value: float = 0.78, **changes: Any) -> dict[str, Any]:
    return {
        "estimator": "short", "value": value, "unit": "accuracy", "interval": [value - 0.03, value + 0.03],
        "seconds": 17.0,
    } | changes  # fmt: skip


def estimator(**changes: Any) -> dict[str, Any]:
    return {
        "asked": "auto", "name": "short", "why": "240 s for estimates on 2 threads pay for 12 short trainings",
        "unit": "accuracy", "interval_level": 0.9, "prepared_s": 0.0,
        "evaluated_by": [{"estimator": "short", "candidates": 24, "median_s": 17.0}],
    } | changes  # fmt: skip


def latency(p50: float) -> dict[str, float]:
    return {"p50": p50, "p90": p50 * 1.05, "p99": p50 * 1.2}


def tried(name: str, judged_ms: float, deployed: float, **changes: Any) -> dict[str, Any]:
    """A deployment that keeps everything; `judged_ms` is of the slowest session."""
    p50 = round(judged_ms / 1.02, 4)
    return {
        "name": name, "p50_ms": p50, "worst_session_p50_ms": judged_ms, "judged_ms": judged_ms, "call_ms": p50,
        "images_per_s": 1000 / p50, "accuracy": deployed, "size_bytes": 2_000_000, "accepted": True,
        "latency_alone": False, "worth_it": True, "chosen": False, "reason": "",
    } | changes  # fmt: skip


def finalist(name: str, *files: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A network that was trained fully and is no winner."""
    kept = [file for file in files if file["accepted"]]
    return {
        "key": f"mixed:{name}", "folder": f"finalists/{name}", "input": "96 px", "epochs": 9, "params": 2_000_000,
        "within_limit": bool(kept), "slack": 0.0185, "deployments": list(files),
        "accuracy": {"trained": 0.8, "deployed": kept[0]["accuracy"] if kept else None},
    } | changes  # fmt: skip


def winner(rank: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "rank": rank, "key": f"mixed:0-1-2-{rank}", "architecture": {"space": "mixed", "decisions": {"resolution": 96}},
        "runtime": "openvino", "precision": "int8", "threads": 2, "input": "96 px", "predicted_latency_ms": 1.2,
        "predicted_std_ms": 0.05, "measured_latency_ms": latency(1.11 + 0.4 * (rank - 1)),
        "session_p50_ms": [1.1, 1.12, 1.11], "verdict": "quiet", "measured": True, "within_limit": True,
        "margin_pct": 72.3, "memory_bytes": 12_345_678, "accuracy": accuracy(0.80 - 0.01 * rank),
        "estimate": estimate(),
        "macs": 123_000_000, "params": 2_300_000, "onnx": f"winners/{rank}/model.onnx",
        "model": f"winners/{rank}/model.xml", "receipt": f"winners/{rank}/receipt.json", "parity": {"max_abs": 1e-5},
        "judged_ms": 1.13, "slack": 0.0185,
        "deployments": [
            tried("openvino-int8", 1.13, 0.79, p50_ms=1.11, worst_session_p50_ms=1.13, chosen=True,
                  reason="fastest that keeps the accuracy"),
            tried("onnxruntime-fp32", 3.5, 0.794, reason="slower than openvino-int8"),
            tried("onnxruntime-int8", 2.1, 0.70, accepted=False,
                  reason="loses 9.4 points of accuracy, more than 1.0"),
        ],
    } | changes  # fmt: skip


def baseline(name: str, kind: str = "zoo", p50: float = 2.0, deployed: float | None = 0.7) -> dict[str, Any]:
    return {
        "name": name, "kind": kind, "runtime": "openvino", "precision": "int8", "input": "96 px",
        "measured_latency_ms": latency(p50), "judged_ms": 1.02 * p50, "within_limit": p50 <= 4,
        "missed": [] if p50 <= 4 else ["latency_ms"], "macs": 300_000_000, "params": 11_000_000,
        "accuracy": None if deployed is None else
        {"trained": deployed, "deployed": deployed - 0.002, "test": deployed - 0.01},
        "note": "latency only: the budget was spent" if deployed is None else "",
    }  # fmt: skip


def document(**changes: Any) -> dict[str, Any]:
    return {
        "schema": 1, "nas_version": "0.0.test", "created": "2020-01-01T00:00:00Z", "run_dir": "runs/test", "seed": 0,
        "command": "nas search --target test-device --latency-ms 4 --data 'test photos'", "task": "classification",
        "metric": "accuracy", "objective": "accuracy",
        "limits": {"latency_ms": 4.0}, "limits_text": "at most 4 ms",
        "target": "test-device", "device": "Invented processor (2 threads)", "limit_ms": 4.0, "feasible": True,
        "space": "mixed", "space_size": 46_580_000_000_000, "restricted_to": {"resolution": [96, 128]},
        "recipe": {"short_s": 17.0, "final_epochs": 9, "precision": "bf16"},
        "data": {
            "name": "test photos", "classes": 10, "examples": "images", "train": 2720, "val": 480, "test": 800,
        },
        "budget_s": 1200.0,
        "seconds": {"prepare": 3.1, "calibrate": 20.0, "propose": 14.0, "short_training": 500.0,
                    "final_training": 400.0, "export": 9.0, "measure": 40.0, "baselines": 180.0, "total": 1170.0},
        "candidates_scored": 250_000, "candidates_evaluated": 24,
        "feasibility": [
            {"deployment": "openvino-int8", "min_ms": 0.31, "median_ms": 2.5, "max_ms": 31.0, "satisfiable": True},
            {"deployment": "onnxruntime-fp32", "min_ms": 0.8, "median_ms": 9.1, "max_ms": 122.0, "satisfiable": True},
        ],
        "predictor": [{"deployment": "openvino-int8", "mape": 0.04, "within_10pct": 0.93, "n_networks": 60,
                       "n_heldout": 15,
                       "corrected_by": 1.02}],
        "estimator": estimator(),
        "best": [winner()], "finalists": [],
        "baselines": [
            baseline("random search (best of 24)", "random", 1.9, 0.75), baseline("resnet10", p50=0.6, deployed=0.72),
            baseline("resnet18", p50=1.1, deployed=0.71), baseline("mobilenet_v3_large", p50=1.4, deployed=0.6),
            baseline("resnet50", p50=5.2, deployed=None),
        ],
        "agreement": {"kendall_tau": 0.5, "params_kendall_tau": 0.1, "n": 4},
        "notes": ["the machine was quiet while measuring"],
    } | changes  # fmt: skip


def candidates(n: int = 400, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    latency_ms = np.exp(rng.normal(0.7, 0.7, n))
    estimate = 0.45 + 0.12 * np.log1p(latency_ms) + rng.normal(0, 0.05, n)
    order = np.argsort(latency_ms)
    pareto = np.zeros(n, dtype=bool)
    pareto[order] = estimate[order] >= np.maximum.accumulate(estimate[order])
    evaluated = np.arange(n) % 16 == 0
    return pd.DataFrame({
        "estimator": "short", "estimate": estimate - 0.1,
        "key": [f"mixed:{i}" for i in range(n)], "trial": np.arange(n),
        "origin": np.array(["search", "search", "random", "anchor"])[rng.choice(4, n, p=[0.5, 0.2, 0.28, 0.02])],
        "predicted_latency_ms": latency_ms, "predicted_std_ms": 0.05 * latency_ms,
        "deployment": "openvino-int8", "accuracy_estimate": np.where(np.arange(n) % 50 == 7, np.nan, estimate),
        "accuracy_std": 0.03, "accuracy_short": np.where(evaluated, estimate - 0.1, np.nan), "accuracy_trained": np.nan,
        "macs": rng.integers(10**6, 10**9, n), "params": rng.integers(10**5, 10**7, n), "input": "96 px",
        "pareto": pareto, "state": np.where(evaluated, "evaluated", "scored"), "reason": "",
    })  # fmt: skip
