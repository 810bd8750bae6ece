"""The part of PyTorch's CUDA that a probe uses, behind a protocol so that a fake one can stand in for a GPU."""

from typing import Protocol

from nas.measure.devices.nvml import Nvml, nvml_of
from nas.runtimes.torch_graph import CudaGraphDevice, GraphDevice
from nas.runtimes.torch_modules import Event

QUEUE_CYCLES = 20_000_000
"""Cycles of the GPU's clock that it spins before timed modules, some 10 ms: meanwhile the host launches all of them, so
that their events tell the GPU's time and not that of the launches."""


class CudaLibrary(Protocol):
    """One CUDA device."""

    @property
    def tensors_on(self) -> str:
        """PyTorch's name of the device that tensors lie on."""
        ...

    def start(self) -> None:
        """Make the device this process's current one and start its context."""
        ...

    def synchronise(self) -> None:
        """Wait until the device has finished all work of this process."""
        ...

    def release(self) -> None:
        """Give memory back that is kept for later allocations."""
        ...

    def memory_in_use(self) -> int:
        """Bytes in use on the device, by all processes."""
        ...

    def event(self) -> Event:
        """An event that tells time."""
        ...

    def queue(self) -> None:
        """Keep the device busy for a while, without waiting for it."""
        ...

    def graphs(self) -> GraphDevice:
        """The device that records networks as CUDA graphs."""
        ...

    def nvml(self) -> Nvml | str:
        """The same GPU in NVML, or why that cannot be asked."""
        ...


class TorchCudaLibrary:
    """A CUDA device by its PyTorch name, such as `cuda:0`."""

    def __init__(self, device: str) -> None:
        self.tensors_on = device

    def start(self) -> None:
        import torch

        torch.cuda.set_device(self.tensors_on)
        torch.zeros(8, 8, device=self.tensors_on) @ torch.zeros(8, 8, device=self.tensors_on)
        self.synchronise()

    def synchronise(self) -> None:
        import torch

        torch.cuda.synchronize(self.tensors_on)

    def release(self) -> None:
        import torch

        torch.cuda.empty_cache()

    def memory_in_use(self) -> int:
        import torch

        free, total = torch.cuda.mem_get_info(self.tensors_on)
        return total - free

    def event(self) -> Event:
        import torch

        event: Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        return event

    def queue(self) -> None:
        import torch

        torch.cuda._sleep(QUEUE_CYCLES)  # type: ignore[no-untyped-call]

    def graphs(self) -> GraphDevice:
        return CudaGraphDevice(self.tensors_on)

    def nvml(self) -> Nvml | str:
        import torch

        # By UUID: NVML counts all GPUs of the machine, PyTorch those that CUDA_VISIBLE_DEVICES shows it.
        return nvml_of(f"GPU-{torch.cuda.get_device_properties(self.tensors_on).uuid}")
