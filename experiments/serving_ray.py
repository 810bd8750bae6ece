"""The rate of the application on Ray Serve, in its settings for throughput, on this machine alone."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.request import urlopen

from experiments.serving_clients import closed_loop
from nas.serving.on_ray import serve_module
from nas.serving.settings import ServingSettings

PORT = 8765
START_S = 120
FAST = {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", "RAY_SERVE_ENABLE_HA_PROXY": "1"}
"""What Ray's documentation recommends for throughput."""


async def rate_on_ray(bundle: Path, settings: ServingSettings, posts: Sequence[bytes], clients: int) -> float:
    """Answers per second of a closed loop.

    Raises:
        MissingDependencyError: Ray Serve is not installed.
        RuntimeError: it did not answer in time.
    """
    serve_module()
    environment = {**os.environ, **FAST}
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    subprocess.run([*ray, "start", "--head", f"--num-cpus={settings.cores}"], env=environment, check=True)
    command = [sys.executable, "-m", "nas", "serve", str(bundle), "--ray", "auto", "--port", str(PORT)]
    options = ["--replicas", str(settings.replicas), "--threads", str(settings.threads), "--batch", str(settings.batch)]
    server = subprocess.Popen([*command, *options], env=environment)
    try:
        await asyncio.to_thread(_wait, f"http://127.0.0.1:{PORT}/v2/health/ready")
        url = f"http://127.0.0.1:{PORT}"
        await closed_loop(url, posts, clients=clients, seconds=3)
        return (await closed_loop(url, posts, clients=clients, seconds=10)).rate
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
        subprocess.run([*ray, "stop"], env=environment, check=False)


def _wait(url: str) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        try:
            with urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    raise RuntimeError(f"Ray Serve did not answer within {START_S} s")
