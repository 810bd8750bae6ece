"""A network as a graph of its modules and operations, also where some of its modules cannot be traced."""

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from torch import fx, nn

from nas.errors import UserError


def traced(network: nn.Module, *, finely: bool = False) -> fx.GraphModule:
    """`network` as a graph of its modules and operations.

    Modules that cannot be traced are taken whole: those that timm lists (unless `finely`), and those whose forward
    fails to be traced.

    Raises:
        UserError: nothing below the network itself can be taken whole to make it traceable, or it takes several inputs.
    """
    listed, functions = _untraceable_of_timm()
    leaves: set[type[nn.Module]] = set() if finely else listed
    while True:
        tracer = _Tracer(leaves, functions)
        try:
            graph = tracer.trace(network)
        except Exception as error:
            culprit = tracer.innermost
            if culprit is None or culprit in leaves:
                raise UserError(
                    f"{type(network).__name__} cannot be traced: {type(error).__name__}: {error}",
                    "its forward depends on the values it is given: take that part into a module of its own",
                ) from error
            leaves = {*leaves, culprit}
            continue
        graph = fx.GraphModule(network, graph).graph
        graph.eliminate_dead_code(partial(_has_effects, network))
        for node in [node for node in graph.nodes if node.op == "placeholder" and not node.users]:
            graph.erase_node(node)
        inputs = [node for node in graph.nodes if node.op == "placeholder"]
        if len(inputs) != 1:
            raise UserError(
                f"{type(network).__name__} takes {len(inputs)} inputs", "wrap it in a module that takes one tensor"
            )
        return fx.GraphModule(network, graph)


def _has_effects(network: nn.Module, node: fx.Node) -> bool:
    """True for what has to stay although nobody uses its result: inputs, outputs, and changes in place."""
    if node.op in ("placeholder", "output"):
        return True
    if node.op == "call_module":
        return any(getattr(part, "inplace", False) for part in network.get_submodule(str(node.target)).modules())
    return str(getattr(node.target, "__name__", node.target)).endswith("_")


class _Tracer(fx.Tracer):
    """Takes some kinds of modules whole, and remembers where it was."""

    def __init__(self, leaves: set[type[nn.Module]], functions: Iterable[Callable[..., Any]]) -> None:
        super().__init__(autowrap_functions=tuple(functions))
        self._leaves = tuple(leaves)
        self.innermost: type[nn.Module] | None = None
        """Kind of the innermost module whose forward failed; None: the network's own."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, self._leaves) or super().is_leaf_module(m, module_qualified_name)

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Callable[..., Any], list[Any]]:
        """Arguments that nobody has to give keep their defaults: given a proxy, a network would not know `None`."""
        function, args = super().create_args_for_root(root_fn, is_module, concrete_args)
        parameters = inspect.signature(inspect.unwrap(root_fn)).parameters.values()
        defaults = [p.default for p in parameters]
        return function, [a if d is inspect.Parameter.empty else d for a, d in zip(args, defaults, strict=False)]

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        try:
            return super().call_module(m, forward, args, kwargs)
        except Exception:
            self.innermost = self.innermost or type(m)
            raise


def _untraceable_of_timm() -> tuple[set[type[nn.Module]], list[Callable[..., Any]]]:
    """What timm's own networks need to be taken whole, where timm is installed."""
    try:
        from timm.models import _features_fx as known
    except ImportError:
        return set(), []
    modules: list[type[nn.Module]] = known.get_notrace_modules()  # type: ignore[no-untyped-call]
    functions: list[Callable[..., Any]] = known.get_notrace_functions()  # type: ignore[no-untyped-call]
    return set(modules), functions
