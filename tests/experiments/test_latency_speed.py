"""The predictor's speed: that it is timed and told for every deployment and space, not how fast this machine is."""

import json

from click.testing import CliRunner

from experiments.latency_speed import Speed, cli, measured_speeds, speed_section
from nas.targets.profile import DeviceProfile
from nas.targets.registry import bundled_path
from tests.nas.fake_device import fake_profile


def test_every_deployment_is_timed_in_every_space() -> None:
    found = measured_speeds(fake_profile(networks=12), ["mobile", "dense"], candidates=20, rounds=2)
    assert [(s.deployment, s.space) for s in found] == [
        (f"onnxruntime-{precision}", space) for precision in ("fp32", "int8") for space in ("mobile", "dense")
    ]
    assert all(s.per_s > 0 and s.once_s > 0 for s in found)


def test_the_section_has_a_row_for_each_deployment() -> None:
    speeds = [
        Speed("openvino-bf16", 2, "mobile", 150_000.0, 0.5), Speed("openvino-bf16", 2, "dense", 99_999.6, 1.5),
        Speed("openvino-bf16", 1, "mobile", 120_000.0, 0.5), Speed("openvino-bf16", 1, "dense", 110_000.0, 0.5),
    ]  # fmt: skip
    text = speed_section("xeon-spr", speeds, 1000)
    assert "python -m experiments.latency_speed --target xeon-spr\n```" in text
    assert "100,000 to 150,000 (100,000 were asked for)" in text
    assert "0.5 to 1.5 s more" in text
    assert "| deployment | mobile | dense |" in text
    assert "| openvino-bf16, 2 threads | 150,000 | 100,000 |" in text
    assert "| openvino-bf16, 1 threads | 120,000 | 110,000 |" in text


def test_the_command_times_a_bundled_profile() -> None:
    line = ["--target", "epyc-zen4", "--space", "mobile", "--candidates", "10", "--rounds", "1", "--json"]
    done = CliRunner().invoke(cli, line)
    assert done.exit_code == 0, done.output
    document = json.loads(done.output)
    known = DeviceProfile.load(bundled_path("epyc-zen4"))
    assert [(s["deployment"], s["threads"]) for s in document["speeds"]] == [
        (t.deployment.name, t.deployment.threads) for t in known.tables
    ]
