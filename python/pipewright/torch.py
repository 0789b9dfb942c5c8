"""Layer graphs of PyTorch models: what `workload.model` takes.

    import pipewright.torch

    graph = pipewright.torch.layer_graph(model, (images,), measure=True)
    graph.save("layers.yaml")                       # workload: {model: layers.yaml}
"""
from __future__ import annotations

import json
import statistics
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_KEYS = ("name", "inputs", "forward", "backward", "weights", "output", "saved")
_QUIET_SHARE = 0.9  # of its core that an undisturbed thread gets
_USUAL_SPREAD = 0.5  # of measured times, as a part of their medians


@dataclass
class Layer:
    """A layer: a module of the model, or consecutive operations outside of its modules.

    Times are in nanoseconds, sizes in bytes, both for the samples of the example.
    """
    name: str
    inputs: list[str]
    forward_flops: int
    backward_flops: int
    weights_bytes: int
    output_bytes: int
    saved_bytes: int  # for the backward, in addition to inputs and parameters
    forward_ns: int = 0
    backward_ns: int = 0
    forward_spread_ns: int = 0  # of measured times: between their first and last tenths
    backward_spread_ns: int = 0


@dataclass
class LayerGraph:
    samples: int
    layers: list[Layer] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Returns the graph as the file has it, with units."""
        def entry(layer: Layer) -> dict[str, Any]:
            values = (layer.name, layer.inputs, f"{layer.forward_ns} ns", f"{layer.backward_ns} ns",
                      f"{layer.weights_bytes} B", f"{layer.output_bytes} B", f"{layer.saved_bytes} B")
            spreads = {"forward_spread": layer.forward_spread_ns, "backward_spread": layer.backward_spread_ns}
            return {**dict(zip(_KEYS, values)), **{key: f"{spread} ns" for key, spread in spreads.items() if spread > 0}}
        return {"samples": self.samples, "layers": [entry(layer) for layer in self.layers]}

    def save(self, path: str | Path) -> None:
        """Writes the graph as JSON, which is YAML, too: one layer per line."""
        lines = ",\n  ".join(json.dumps(entry) for entry in self.to_dict()["layers"])
        Path(path).write_text(f'{{"samples": {self.samples}, "layers": [\n  {lines}]}}\n', encoding="utf-8")


def layer_graph(model: Any, example: Sequence[Any], *, depth: int | None = None, measure: bool = False,
                compute: float | None = None, memory_bandwidth: float | None = None, repeats: int = 5) -> LayerGraph:
    """Returns the layers of a model, which torch.export traces with the inputs `example`, a batch.

    A layer is a module without submodules, or with `depth` a module that is at most so deep (1: those of the model
    itself); consecutive operations of one module are one layer. FLOPs are those of PyTorch's counter, sizes those of the
    tensors that the layers return, read, and save for their backward.

    With `measure` times are medians of `repeats` runs of each layer alone, where the model and the example are. Every
    layer runs once before any runs again, and the file has the spread of its times. A UserWarning says that other
    programs disturbed the measurement. Without `measure` times follow from `compute` in FLOP/s and `memory_bandwidth` in bytes/s: the larger of FLOPs / compute and bytes /
    memory_bandwidth.

    Raises ValueError without one of the two, TypeError for an example that is no sequence of inputs, and what
    torch.export raises for models that it cannot trace.
    """
    import torch

    if isinstance(example, (torch.Tensor, str, bytes, dict)) or not isinstance(example, Sequence):
        raise TypeError(f"example is the tuple of the model's inputs, not {type(example).__name__}: write (x,) for one")
    if measure and (isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1):
        raise ValueError(f"repeats is {repeats!r}: it must be a whole number of at least 1")
    if measure == (compute is not None and memory_bandwidth is not None):
        raise ValueError("times need one source: measure=True, or compute and memory_bandwidth")
    example = tuple(example)
    parts = _Parts(torch.export.export(model, example).module(), depth)
    batch = next((one.shape[0] for one in example if isinstance(one, torch.Tensor) and one.dim() > 0), 1)
    graph = LayerGraph(samples=int(batch))
    measured: list[_Part] = []  # by layer
    values: dict[Any, Any] = {}
    makers: dict[Any, set[int]] = {}  # positions of the layers that made a value
    remaining = iter(example)
    split = parts.split(model)
    for node in split.graph.nodes:
        arguments = torch.fx.node.map_arg(node.args, lambda one: values[one])
        sources = set().union(*(makers[one] for one in node.all_input_nodes))
        if node.op == "placeholder":
            values[node] = next(remaining)
        elif node.op == "get_attr":
            values[node] = _attribute(split, node.target)
        elif node.op == "call_function":  # takes one of several outputs
            values[node] = node.target(*arguments)
        elif node.op == "call_module":
            made = [one.op != "get_attr" for one in node.args]
            part = _Part(split.get_submodule(node.target), arguments, made)
            layer, values[node] = part.layer(parts.names[node.target])
            if measure:
                measured.append(part)
            else:
                layer.forward_ns = _bound(layer.forward_flops, part.moved_bytes, compute, memory_bandwidth)
                layer.backward_ns = _bound(layer.backward_flops, 2 * part.moved_bytes, compute, memory_bandwidth)
            layer.inputs = [graph.layers[one].name for one in sorted(sources)]
            sources = {len(graph.layers)}
            graph.layers.append(layer)
        makers[node] = sources
    if measure:
        _measure(graph, measured, repeats)
    return graph


def _measure(graph: LayerGraph, parts: list[_Part], repeats: int) -> None:
    """Sets the times of all layers, of which each runs once in every round, and warns of disturbed ones."""
    times: list[list[tuple[int, int]]] = [[] for _ in parts]
    _round(parts)  # warms up
    begin, cpu_begin = time.perf_counter_ns(), time.thread_time_ns()
    for _ in range(repeats):
        for own, pair in zip(times, _round(parts)):
            own.append(pair)
    wall, cpu = time.perf_counter_ns() - begin, time.thread_time_ns() - cpu_begin
    for layer, own in zip(graph.layers, times):
        layer.forward_ns, layer.forward_spread_ns = _median_and_spread([forward for forward, _ in own])
        layer.backward_ns, layer.backward_spread_ns = _median_and_spread([backward for _, backward in own])
    medians = sum(layer.forward_ns + layer.backward_ns for layer in graph.layers)
    spread = sum(layer.forward_spread_ns + layer.backward_spread_ns for layer in graph.layers) / max(medians, 1)
    share = cpu / max(wall, 1)
    if share < _QUIET_SHARE and not any(part.is_on_gpu() for part in parts):
        warnings.warn(f"the layers got {share:.0%} of their core: other programs are running; their times are not "
                      "comparable", stacklevel=3)
    if spread > _USUAL_SPREAD:
        warnings.warn(f"the spread of the measured times is {spread:.0%} of their medians: the machine was disturbed, or "
                      "its speed changes; predictions from them may be as far off", stacklevel=3)


def _round(parts: list[_Part]) -> list[tuple[int, int]]:
    return [part.times() for part in parts]


def _median_and_spread(times: list[int]) -> tuple[int, int]:
    tenths = statistics.quantiles(times, n=10, method="inclusive") if len(times) > 1 else [times[0]] * 9
    return round(statistics.median(times)), round(tenths[-1] - tenths[0])


class _Part:
    """A layer's operations, and what they read: parameters and buffers, and values that were `made`."""

    def __init__(self, module: Any, arguments: Sequence[Any], made: list[bool]):
        import torch

        self.module, self.arguments, self.made = module, arguments, made
        self.weights_bytes = sum(_bytes(one) for one in arguments if isinstance(one, torch.nn.Parameter))
        self.moved_bytes = 0

    def layer(self, name: str) -> tuple[Layer, Any]:
        """Runs the layer once for its numbers. Returns it, without times, and its outputs."""
        import torch
        from torch.utils.flop_counter import FlopCounterMode

        saved: dict[int, int] = {}

        def pack(tensor: Any) -> Any:
            saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        leaves, arguments = self._leaves()
        with FlopCounterMode(display=False) as forward, torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one):
            outputs = self.module(*arguments)
        kept = [*self.arguments, *arguments, *_tensors(outputs)]
        for one in kept:
            if isinstance(one, torch.Tensor):
                saved.pop(one.untyped_storage().data_ptr(), None)
        with FlopCounterMode(display=False) as backward:
            self._backward(outputs, leaves)
        output_bytes = sum(_bytes(one) for one in _tensors(outputs))
        self.moved_bytes = sum(_bytes(one) for one in self.arguments if isinstance(one, torch.Tensor)) + output_bytes
        layer = Layer(name, [], forward.get_total_flops(), backward.get_total_flops(), self.weights_bytes, output_bytes,
                      sum(saved.values()))
        return layer, torch.utils._pytree.tree_map_only(torch.Tensor, lambda one: one.detach(), outputs)

    def _leaves(self) -> tuple[list[Any], list[Any]]:
        """Returns what gradients are made for, and the arguments: copies, which the layer may change."""
        import torch

        leaves, arguments = [], []
        for one, made in zip(self.arguments, self.made):
            if isinstance(one, torch.nn.Parameter):
                leaves.append(one)
            elif made and isinstance(one, torch.Tensor) and one.is_floating_point():
                leaves.append(one.detach().requires_grad_())
                one = leaves[-1].clone()
            arguments.append(one)
        return [one for one in leaves if one.requires_grad], arguments

    @staticmethod
    def _backward(outputs: Any, leaves: list[Any]) -> None:
        import torch

        ends = [one for one in _tensors(outputs) if one.requires_grad]
        if ends and leaves:
            torch.autograd.grad(ends, leaves, [torch.ones_like(one) for one in ends], allow_unused=True)

    def times(self) -> tuple[int, int]:
        """Runs the layer once. Returns the times of its forward and its backward."""
        leaves, arguments = self._leaves()
        begin = self._now()
        outputs = self.module(*arguments)
        middle = self._now()
        self._backward(outputs, leaves)
        return middle - begin, self._now() - middle

    def is_on_gpu(self) -> bool:
        import torch

        return any(isinstance(one, torch.Tensor) and one.is_cuda for one in self.arguments)

    def _now(self) -> int:
        if self.is_on_gpu():
            import torch

            torch.cuda.synchronize()
        return time.perf_counter_ns()


class _Parts:
    """Which layer every operation of an exported model is in."""

    def __init__(self, root: Any, depth: int | None):
        self.root, self.depth = root, depth
        self.names: dict[str, str] = {}  # of the submodules that split() makes

    def split(self, model: Any) -> Any:
        from torch.fx.passes.split_module import split_module

        part_of: dict[Any, int] = {}
        number, last, seen = -1, None, dict[str, int]()
        for node in self.root.graph.nodes:
            if node.op != "call_function":
                continue
            path = self._path(node)
            if path != last:
                number, last = number + 1, path
                name = path or str(node.name)
                seen[name] = seen.get(name, 0) + 1
                self.names[f"submod_{number}"] = name if seen[name] == 1 else f"{name}.{seen[name]}"
            part_of[node] = number
        return split_module(self.root, model, lambda node: part_of.get(node, 0))

    def _path(self, node: Any) -> str:
        stack = node.meta.get("nn_module_stack") or {}
        path = list(stack.values())[-1][0] if stack else ""
        parts = [part for part in path.replace("L['self']", "").split(".") if part]
        return ".".join(parts if self.depth is None else parts[:self.depth])


def _attribute(module: Any, target: str) -> Any:
    for name in target.split("."):
        module = getattr(module, name)
    return module


def _bound(flops: int, moved: int, compute: float, memory_bandwidth: float) -> int:
    return round(max(flops / compute, moved / memory_bandwidth) * 1e9)


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def _tensors(outputs: Any) -> list[Any]:
    import torch

    return [one for one in torch.utils._pytree.tree_leaves(outputs) if isinstance(one, torch.Tensor)]
