"""A PyTorch network recorded once as a CUDA graph and replayed for every call, with pinned memory on the host's side.

A call is: copy the inputs into pinned memory, launch upload, replay and download in one stream, wait once. Nothing else
of the host's work lies between, so small networks are not bound by launches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from nas.deployment import Deployment
from nas.errors import UserError
from nas.runtimes.base import Inputs, Outputs, run_in_batches
from search_spaces.signature import TensorSpec

if TYPE_CHECKING:
    import torch
    from torch import nn


class GraphDevice(Protocol):
    """What a recorded network needs of its device; a fake one lets the session be tested without a GPU.

    Replays and copies are launched in one order and run in that order, behind the host's back: what they read may not
    change, and what they write may not be read, before `synchronize` has returned.
    """

    @property
    def tensors_on(self) -> str:
        """PyTorch's name of the device that weights and inputs lie on."""
        ...

    def capture(self, call: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        """Record `call` once; returns what launches a replay, and the tensor each replay writes to."""
        ...

    def pinned(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Zeros in memory of the host that the device copies from and to by itself."""
        ...

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Launch a copy between the device's memory and `pinned` memory."""
        ...

    def synchronize(self) -> None:
        """Wait until all that was launched has finished."""
        ...


class CudaGraphDevice:
    """A CUDA device. Convolutions in fp32 are computed as such, not in TF32.

    Args:
        device: its PyTorch name, such as `cuda:0`.
        own_stream: launch in a stream of its own, so that the calls of several sessions overlap.
    """

    def __init__(self, device: str, *, own_stream: bool = False) -> None:
        self.tensors_on = device
        self._own_stream = own_stream
        self._stream: torch.cuda.Stream | None = None

    def capture(self, call: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        import torch

        # Libraries choose algorithms and allocate on their first calls, which must not happen during a capture:
        # a few calls on a side stream, as https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs asks.
        with torch.cuda.device(self.tensors_on), torch.backends.cudnn.flags(allow_tf32=False):
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    call()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                output = call()
            torch.cuda.synchronize()  # weights and inputs are there, whatever stream replays it

        return lambda: self._launch(graph.replay), output

    def pinned(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        import torch

        return torch.zeros(shape, dtype=dtype, pin_memory=True)

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        self._launch(lambda: target.copy_(source, non_blocking=True))

    def synchronize(self) -> None:
        import torch

        (self._stream or torch.cuda.current_stream(self.tensors_on)).synchronize()

    def _launch(self, work: Callable[[], object]) -> None:
        """Without a stream of its own nothing is changed and nothing changed back, which would take microseconds."""
        if not self._own_stream:
            work()
            return
        import torch

        if self._stream is None:
            self._stream = torch.cuda.Stream(self.tensors_on)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._stream):
            work()


class GraphSession:
    """Replays one recorded call; see `nas.runtimes.base.Session`.

    A call is timed with its copies to and from the device: inputs start and results end in the host's memory. Inputs
    are uploaded in their own type, a quarter of the bytes where that is uint8, and become `dtype` on the device.

    Args:
        network: in evaluation mode, on the device, its weights in `dtype`; see `graph_session`.
        dtype: that floating-point inputs are converted to.
        input: of the network.
        batch: inputs of one call.
        graphs: the device.
    """

    def __init__(
        self, network: nn.Module, dtype: torch.dtype, input: TensorSpec, batch: int, graphs: GraphDevice
    ) -> None:  # fmt: skip
        import torch

        self.input, self.batch = input, batch
        self._graphs = graphs
        self._network = network  # a recorded graph knows addresses alone: weights live as long as something holds them
        shape, taken = input.batched(batch), getattr(torch, input.dtype)
        self._staged = graphs.pinned(shape, taken)
        self._input = torch.zeros(shape, dtype=taken, device=graphs.tensors_on)

        def call() -> torch.Tensor:
            given = self._input
            if given.is_floating_point():
                given = given.to(dtype=dtype, memory_format=layout_of(dtype, len(shape)))
            result: torch.Tensor = network(given).float().contiguous()
            return result

        with torch.inference_mode():
            self._replay, self._output = graphs.capture(call)
        self._result = graphs.pinned(tuple(self._output.shape), torch.float32)

    def run(self, inputs: Inputs) -> Outputs:
        return run_in_batches(self._call, inputs, self.batch)

    def begin(self, inputs: Inputs) -> None:
        """Launch a call with `inputs` `(batch, ...)` and do not wait for it; the next one may begin after `end`."""
        import torch

        with torch.inference_mode():
            self._staged.copy_(torch.from_numpy(inputs))
            self._graphs.copy(self._staged, self._input)
            self.replay()
            self._graphs.copy(self._output, self._result)

    def end(self) -> Outputs:
        """Outputs `(batch, ...)` of the call that was begun."""
        self._graphs.synchronize()
        # A copy, because the next call overwrites the pinned result.
        outputs: Outputs = self._result.numpy().copy()
        return outputs

    def replay(self) -> None:
        """Launch the network alone on the inputs that lie on the device, without copies."""
        self._replay()

    def _call(self, inputs: Inputs) -> Outputs:
        self.begin(inputs)
        return self.end()


def layout_of(dtype: torch.dtype, rank: int) -> torch.memory_format:
    """Order of images `(n, c, h, w)` in memory: channels last for 16-bit types, whose products the tensor cores compute
    in that order; as they are for fp32, whose kernels are made for it, and for inputs of another rank."""
    import torch

    return torch.channels_last if rank == 4 and dtype.itemsize == 2 else torch.contiguous_format


def graph_session(
    network: nn.Module, dtype: torch.dtype, input: TensorSpec, batch: int, graphs: GraphDevice
) -> GraphSession:
    """A session of a network as a deployment on a GPU runs it: placed, converted and laid out. Changes the module."""
    placed = network.eval().to(device=graphs.tensors_on, dtype=dtype)
    placed = placed.to(memory_format=layout_of(dtype, len(input.shape) + 1))
    return GraphSession(placed, dtype, input, batch, graphs)


def recorded(make: Callable[[], GraphSession], name: str, deployment: Deployment) -> GraphSession:
    """What `make` returns.

    Raises:
        UserError: the network does not fit into the GPU's memory, or has a layer that cannot be recorded.
    """
    import torch

    try:
        return make()
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"{name} with batch {deployment.batch} does not fit into the memory of {deployment.device}",
            "choose a smaller batch, or end what else uses that GPU (`nvidia-smi` lists it)",
        ) from error
    except RuntimeError as error:
        if "captur" not in str(error):
            raise
        raise UserError(
            f"a layer of {name} cannot be recorded as a CUDA graph: {str(error).partition(chr(10))[0]}",
            "use another runtime for it, or a network whose shapes do not depend on its inputs",
        ) from error
