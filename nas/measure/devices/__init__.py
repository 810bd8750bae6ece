"""Devices as a measurement sees them: one probe per kind of device, chosen by the device's name."""

from nas.deployment import CPU, Placement
from nas.measure.devices.cpu import CpuProbe
from nas.measure.devices.cuda import CudaProbe
from nas.measure.devices.probe import DeviceProbe, Observation, Watch

__all__ = ["DeviceProbe", "Observation", "Watch", "probe_of", "why_no_energy"]


def probe_of(placement: Placement) -> DeviceProbe:
    """The probe of a device, with as many threads of the host as its deployments have. Touches nothing yet."""
    return CpuProbe(placement.threads) if placement.device == CPU else CudaProbe(placement.device, placement.threads)


def why_no_energy(device: str = CPU) -> str | None:
    """Reason why energy is not measured on a device of this host, None where it is."""
    return probe_of(Placement(device, 1)).why_no_energy()
