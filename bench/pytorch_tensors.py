"""Tensors of runs as PyTorch's, and the differences between two sets of them."""
import json
import sys

try:
    import numpy
    import torch
except ImportError as error:
    print(f"skipped: {error}", file=sys.stderr)
    sys.exit(77)


def arrays_in(path):
    """The arrays of a folder of a dump, by name."""
    return {file.stem: torch.from_numpy(numpy.load(file)) for file in sorted(path.glob("*.npy"))}


def tensors_in(path):
    """The tensors of a .safetensors file, by name."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, about in json.loads(data[8:end]).items():
        if name != "__metadata__":
            first, last = about["data_offsets"]
            values = numpy.frombuffer(data[end + first:end + last], dtype="<f4")
            tensors[name] = torch.from_numpy(values.reshape(about["shape"]).copy())
    return tensors


def difference(ours, theirs):
    """The largest difference of any value, relative to the largest value."""
    assert ours.keys() == theirs.keys()
    return (max((ours[name] - theirs[name]).abs().max().item() for name in ours) /
            max(values.abs().max().item() for values in theirs.values()))
