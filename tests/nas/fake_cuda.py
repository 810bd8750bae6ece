"""A host's CUDA side as a test wants it: driver, build of PyTorch, number and age of GPUs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FakeCuda:
    """See `nas.runtimes.devices.Cuda`."""

    gpus: int = 1
    driver: bool = True
    build: str | None = "12.8"
    bf16: bool = True

    def driver_present(self) -> bool:
        return self.driver

    def built_with_cuda(self) -> str | None:
        return self.build

    def device_count(self) -> int:
        return self.gpus

    def has_bf16(self, index: int) -> bool:
        return self.bf16
