"""Measure the networks of a kit on this device; needs Python >= 3.9, numpy and onnxruntime, nothing else.

    python measure.py [--threads N] [--sessions 2] [--seconds 0.15] [--out result.json]

Leave the device alone meanwhile. Interrupted, the same command goes on. The result goes back to where the kit was
made: `nas profile NAME --import-kit result.json`.
"""

# This file travels alone inside the kit, so it imports nothing of the project.
from __future__ import annotations

import argparse
import ctypes
import gc
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

HERE = Path(__file__).resolve().parent
SCHEMA = 1
ROUNDS = 6
NETWORK_S = 300
"""A network that takes longer hangs."""
KERNEL_TIME = "_kernel_time"
LINUX = hasattr(os, "sched_setaffinity")

Run = Callable[[], Any]
"""Runs a network once on fixed random inputs."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--threads", type=int, default=usable_threads())
    parser.add_argument("--sessions", type=int, default=2, help="freshly started processes per network")
    parser.add_argument("--seconds", type=float, default=0.15, help="timing per network and session")
    parser.add_argument("--out", type=Path, default=Path("result.json"))
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(json.loads(options.worker.read_text()))
        return
    if not 1 <= options.threads <= usable_threads():
        parser.error(f"--threads {options.threads}: this device can run 1 to {usable_threads()}")
    if options.sessions < 1 or not 0 < options.seconds < NETWORK_S / 4:
        parser.error(f"--sessions are at least 1, --seconds above 0 and below {NETWORK_S // 4}")
    text = (HERE / "kit.json").read_bytes()
    identity = {"kit_sha256": hashlib.sha256(text).hexdigest(), "host": host(), "threads": options.threads}
    kit = json.loads(text)
    result = resumed(options.out, identity) or {
        **identity, "schema": SCHEMA, "kit": kit, "batch": kit["batch"], "sessions": [], "unfinished": {},
        "seconds": 0.0,
    }  # fmt: skip
    try:
        save(result, options.out)  # before minutes of measuring, not after
    except OSError as error:
        parser.error(f"cannot write {options.out}: {error.strerror}")
    while len(result["sessions"]) < options.sessions:
        log(f"session {len(result['sessions']) + 1} of {options.sessions}\n")
        began = time.time()
        try:
            measured_session(kit, options.threads, options.seconds, result["unfinished"])
            result["sessions"].append(result["unfinished"])
            result["unfinished"] = {}
        except KeyboardInterrupt:
            sys.exit("\ninterrupted; the same command goes on")
        finally:
            result["seconds"] += time.time() - began
            save(result, options.out)
    print(f"wrote {options.out}; bring it back: nas profile NAME --import-kit {options.out.name}")


def resumed(path: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """Results that an earlier call with the same kit, host and threads has finished; any other file is kept as
    FILE.old."""
    if not path.exists():
        return None
    try:
        old: dict[str, Any] = json.loads(path.read_text())
        if all(old.get(key) == value for key, value in identity.items()):
            return {**old, "unfinished": old.get("unfinished", {})}
    except (AttributeError, OSError, ValueError):
        pass
    if path.is_file():
        os.replace(str(path), str(path) + ".old")
        log(f"{path} is of another kit, host or number of threads; it is kept as {path.name}.old\n")
    return None


def measured_session(kit: dict[str, Any], threads: int, seconds: float, found: dict[str, Any]) -> None:
    """Add to `found` the times of every network, in fresh processes: one that ends its process is noted and left out,
    and so is one that gives no answer within `NETWORK_S`."""
    networks = enumerate(kit["networks"])
    tasks = [(f"{i}/{name}", file) for i, network in networks for name, file in network["files"].items()]
    common = {"providers": kit["providers"], "threads": threads, "seconds": seconds}
    while len(found) < len(tasks):
        left = [task for task in tasks if task[0] not in found]
        with tempfile.TemporaryDirectory() as folder:
            job = Path(folder) / "job.json"
            job.write_text(json.dumps({"tasks": left, **common}))
            line = [sys.executable, __file__, "--worker", str(job)]
            # An interrupt from the keyboard is for us; we end the process.
            process = subprocess.Popen(line, stdout=subprocess.PIPE, universal_newlines=True, start_new_session=True)
            assert process.stdout is not None
            watch = killed_later(process)
            try:
                for answer in process.stdout:
                    watch.cancel()
                    values = json.loads(answer)
                    found[values.pop("task")] = values
                    log(f"\r{len(found)} of {len(tasks)}")
                    watch = killed_later(process)
                code = process.wait()
            finally:
                watch.cancel()
                process.kill()
                process.wait()
        culprit = next((task for task, _ in left if task not in found), None)
        if culprit is not None:
            found[culprit] = {"failed": f"its process ended with code {code}"}
    log("\n")


def killed_later(process: subprocess.Popen[str]) -> threading.Timer:
    """Kill a process after `NETWORK_S`, unless the timer is cancelled."""
    timer = threading.Timer(NETWORK_S, process.kill)
    timer.daemon = True
    timer.start()
    return timer


def work(job: dict[str, Any]) -> None:
    """Time the networks of a job one after the other, a line each on stdout."""
    if LINUX:
        usable = fast_cores() if len(fast_cores()) >= job["threads"] else sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, usable[-job["threads"] :])
    reference, _ = load("reference.onnx", job)
    for task, file in job["tasks"]:
        try:
            before = restarted_peak()
            run, _ = load(file, job)
            call_for(job["seconds"], run)  # warming up
            memory = None if before is None else max(0, status_bytes("VmHWM") - before)
            answer = {**timed(run, reference, job["seconds"]), "memory_bytes": memory}
            answer["nodes"] = node_times(file, job)
        except Exception as error:  # noqa: BLE001 - whatever a runtime raises is this network's result
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps({"task": task, **answer}), flush=True)


def load(file: str, job: dict[str, Any], profile: str | None = None) -> tuple[Run, Any]:
    """A function that runs the network once, and its session."""
    threads = job["threads"]
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if threads > 1 else "0")
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = profile
    session = ort.InferenceSession(str(HERE / file), options, providers=job["providers"])
    entry = session.get_inputs()[0]
    inputs = drawn(entry.type, entry.shape, session.get_modelmeta().custom_metadata_map)

    def run() -> Any:
        return session.run(None, {entry.name: inputs})[0]

    if not np.isfinite(run()).all():
        raise ValueError("its output is not finite")
    return run, session


def drawn(kind: str, shape: list[int], metadata: dict[str, str]) -> Any:
    """A random input: noise, or integers below the number that the file names (2 where it names none)."""
    rng = np.random.default_rng(0)
    if kind == "tensor(float)":
        return rng.standard_normal(shape, dtype=np.float32)
    usual = {"tensor(int64)": ("int64", 2), "tensor(uint8)": ("uint8", 256)}
    dtype, values = usual[kind]
    return rng.integers(int(metadata.get("input_values", values)), size=shape, dtype=dtype)


def timed(run: Run, reference: Run, seconds: float) -> dict[str, Any]:
    """Short windows in turns with the reference network."""
    times: list[float] = []
    beside: list[float] = []
    for _ in range(ROUNDS):
        for call, kept, share in ((reference, beside, 0.3), (run, times, 1.0)):
            time.sleep(0.02)  # worker threads of the other one spin on for a while
            call()
            kept += call_for(share * seconds / ROUNDS, call)
    return {"p50_ms": statistics.median(times), "reference_p50_ms": statistics.median(beside)}


def call_for(seconds: float, call: Run) -> list[float]:
    """Milliseconds of each call, at least one."""
    times = []
    until = time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        call()
        end = time.perf_counter()
        times.append(1e3 * (end - start))
        if end >= until:
            return times


def node_times(file: str, job: dict[str, Any]) -> list[tuple[str, float]]:
    """Name and milliseconds of each operator in the order they run: the mean without the slowest tenth."""
    with tempfile.TemporaryDirectory() as folder:
        run, session = load(file, job, str(Path(folder) / "nodes"))
        call_for(job["seconds"] / 2, run)
        events = json.loads(Path(session.end_profiling()).read_text())
    durations: dict[str, list[float]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith(KERNEL_TIME):
            durations.setdefault(event["name"][: -len(KERNEL_TIME)], []).append(event["dur"])
    kept = {name: sorted(times)[: max(1, len(times) * 9 // 10)] for name, times in durations.items()}
    return [(name, statistics.mean(times) / 1e3) for name, times in kept.items()]


def host() -> dict[str, Any]:
    """Description of this device, as far as it changes latency and can be read."""
    return {
        "cpuinfo": first_processor(read("/proc/cpuinfo")),
        "processor": platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if LINUX else os.cpu_count() or 1,
        "quota_cores": quota_cores(),
        "governor": read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip() or None,
        "memory": read("/proc/meminfo").split("\n")[0],
        "os": platform.platform(),
        "python": platform.python_version(),
        "packages": [["onnxruntime", ort.__version__], ["numpy", np.__version__]],
    }


def usable_threads() -> int:
    """Threads that can run at once: cores this process may run on, or fewer where its control group allows less."""
    cores = len(fast_cores()) if LINUX else os.cpu_count() or 1
    return max(1, int(min(cores, quota_cores() or cores)))


def fast_cores(root: str = "/sys/devices") -> list[int]:
    """One processor of each core that this process may run on, without efficiency cores where there are others."""
    first: dict[str, int] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        first.setdefault(read(f"{root}/system/cpu/cpu{cpu}/topology/thread_siblings_list").strip() or str(cpu), cpu)
    cores = sorted(first.values())
    slow: set[int] = set()
    for part in filter(None, read(f"{root}/cpu_atom/cpus").strip().split(",")):  # like 0-2,8
        low, _, high = part.partition("-")
        slow.update(range(int(low), int(high or low) + 1))
    capacity = {cpu: int(read(f"{root}/system/cpu/cpu{cpu}/cpu_capacity").strip() or 0) for cpu in cores}
    least = 0.7 * max(capacity.values())
    return [cpu for cpu in cores if cpu not in slow and capacity[cpu] >= least] or cores


def quota_cores(root: str = "/sys/fs/cgroup") -> float | None:
    """Processor time per time that the control group of a container allows, in cores; None where it sets no limit."""
    newer = read(f"{root}/cpu.max").split()  # "QUOTA PERIOD" or "max PERIOD", in microseconds
    older = [read(f"{root}/cpu/cpu.cfs_{name}_us").strip() for name in ("quota", "period")]  # a quota of -1: no limit
    for quota in (newer, older):
        if len(quota) == 2 and quota[0].isdigit() and int(quota[1] or 0):
            return int(quota[0]) / int(quota[1])
    return None


def restarted_peak() -> int | None:
    """Resident memory in bytes, from which its peak is counted anew; None where the system cannot do that."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)  # what the network before has freed must not be there for this one
        Path("/proc/self/clear_refs").write_text("5")
        return status_bytes("VmRSS")
    except (AttributeError, OSError, TypeError, ValueError):
        return None


def status_bytes(key: str) -> int:
    """A size in the kernel's account of this process."""
    line = next((row for row in read("/proc/self/status").split("\n") if row.startswith(key + ":")), "")
    if not line:
        raise ValueError(f"no {key}")
    return int(line.split()[1]) * 1024


def first_processor(cpuinfo: str) -> str:
    """The lines about the first processor, without the clock rate of the moment."""
    lines = cpuinfo.split("\n\n")[0].split("\n")
    return "\n".join(line for line in lines if not line.lower().startswith(("cpu mhz", "bogomips")))


def read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def save(result: dict[str, Any], path: Path) -> None:
    """The file is there whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(result))
    os.replace(str(partial), str(path))


def log(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


if __name__ == "__main__":
    main()
