"""Layer graphs of PyTorch models. Skipped where Python has no PyTorch."""
import os
import tempfile
import unittest
import warnings
from unittest import mock

import pipewright as pw
import pipewright.torch
from pipewright.torch import Layer, LayerGraph, layer_graph

try:
    import torch
    from torch import nn
    from torch.utils.flop_counter import FlopCounterMode
except ImportError:
    torch = None


if torch is not None:
    class Block(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
            self.norm = nn.BatchNorm2d(channels)
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x):
            return x + self.relu(self.norm(self.conv(x)))

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 3, padding=1)
            self.first, self.second = Block(8), Block(8)
            self.head = nn.Linear(8, 10)

        def forward(self, x):
            return self.head(self.second(self.first(self.stem(x))).mean((2, 3)))


@unittest.skipIf(torch is None, "Python has no PyTorch")
class LayerGraphs(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.model, self.example = Network(), (torch.randn(4, 3, 32, 32),)

    def test_numbers_are_those_of_the_whole_model(self):
        graph = layer_graph(self.model, self.example, compute=1e12, memory_bandwidth=1e10)
        with FlopCounterMode(display=False) as counter:
            self.model(*self.example)
        self.assertEqual(sum(layer.forward_flops for layer in graph.layers), counter.get_total_flops())
        self.assertEqual(sum(layer.weights_bytes for layer in graph.layers),
                         sum(4 * one.numel() for one in self.model.parameters()))
        stem = graph.layers[0]
        self.assertEqual(stem.forward_flops, 2 * 4 * 8 * 32 * 32 * 27)  # by hand
        self.assertEqual(stem.output_bytes, 4 * 4 * 8 * 32 * 32)
        # 4 (3 + 8) 32^2 values, 224 weights and biases of 4 bytes, at 10 GB/s; 1.8 us of FLOPs
        self.assertEqual(stem.forward_ns, round(4 * (4 * 11 * 1024 + 224) / 10))

    def test_edges_are_those_of_the_data(self):
        graph = layer_graph(self.model, self.example, compute=1e12, memory_bandwidth=1e10)
        inputs = {layer.name: layer.inputs for layer in graph.layers}
        self.assertEqual(inputs["stem"], [])
        self.assertEqual(inputs["first.conv"], ["stem"])
        self.assertEqual(inputs["first"], ["stem", "first.relu"])  # the sum
        self.assertEqual(inputs["head"], [graph.layers[-2].name])

    def test_depth_makes_larger_layers(self):
        graph = layer_graph(self.model, self.example, depth=1, compute=1e12, memory_bandwidth=1e10)
        self.assertEqual([layer.name for layer in graph.layers[:3]], ["stem", "first", "second"])
        first = graph.layers[1]
        # The output of the convolution and that of the ReLU, in place of the norm's; mean and deviation of 8 channels.
        self.assertEqual(first.saved_bytes, 2 * 4 * 4 * 8 * 1024 + 2 * 4 * 8)

    def test_measured_times_and_a_prediction_of_them(self):
        graph = layer_graph(self.model, self.example, depth=1, measure=True, repeats=2)
        self.assertTrue(all(layer.forward_ns > 0 and layer.backward_ns > 0 for layer in graph.layers))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "layers.yaml")
            graph.save(path)
            result = pw.simulate({"workload": {"model": path}, "cluster": {"devices": 1},
                                  "pipeline": {"micro_batch_size": 4}, "run": {"backend": "emulated"}})
        work = sum(layer.forward_ns + layer.backward_ns for layer in graph.layers)
        self.assertEqual(result.step_time_ns, work)

    def test_layers_are_measured_in_turns(self):
        names, times = [], iter(range(1000))
        part = pipewright.torch._Part

        def timed(own):
            names.append(own)
            return next(times), 1

        with mock.patch.object(part, "times", timed), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            graph = layer_graph(self.model, self.example, depth=1, measure=True, repeats=3)
        layers = len(graph.layers)
        self.assertEqual(names, names[:layers] * 4)  # to warm up, and three times
        self.assertEqual([layer.forward_ns for layer in graph.layers], [2 * layers + k for k in range(layers)])
        self.assertEqual(graph.layers[0].forward_spread_ns, round(0.8 * 2 * layers))
        self.assertTrue(any("spread" in str(one.message) for one in said), said)

    def test_an_example_is_a_sequence(self):
        with self.assertRaisesRegex(TypeError, r"write \(x,\) for one"):
            layer_graph(self.model, self.example[0], measure=True)

    def test_times_need_one_source(self):
        with self.assertRaisesRegex(ValueError, "one source"):
            layer_graph(self.model, self.example)
        with self.assertRaisesRegex(ValueError, "one source"):
            layer_graph(self.model, self.example, measure=True, compute=1e12, memory_bandwidth=1e10)


class Spreads(unittest.TestCase):
    def test_are_in_the_file_and_noted(self):
        for spread, notes in ((10_000, False), (900_000, True)):
            layers = [Layer(name, [], 1, 1, 0, 8, 0, 1_000_000, 2_000_000, spread, 2 * spread) for name in ("a", "b")]
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "layers.yaml")
                LayerGraph(1, layers).save(path)
                config = {"workload": {"model": path}, "cluster": {"devices": 1}, "run": {"backend": "emulated"}}
                self.assertEqual(any("the spread of the measured times" in note for note in pw.simulate(config).notes), notes)


if __name__ == "__main__":
    unittest.main()
