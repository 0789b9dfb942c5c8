#!/usr/bin/env python3
"""Writes Chakra's binary execution traces of a small pipeline with Google's protobuf and Chakra's own schema:

    pip install grpcio-tools
    bench/chakra_traces.py chakra/schema/protobuf/et_def.proto FOLDER
    pipewright import FOLDER/pp.*.et -o trace.json

Two ranks, 1F1B with 4 micro-batches, F 10 ms, B 20 ms, 0.5 ms for a message: a step of 152 ms. The schema is of
github.com/mlcommons/chakra 1.0.0. tests/cli/chakra/ was made by this script.
"""
import argparse
import importlib
import pathlib
import sys
import tempfile

from grpc_tools import protoc

F, B, HOP = 10_000, 20_000, 500  # microseconds
ORDER = [["F0", "F1", "B0", "F2", "B1", "F3", "B2", "B3"], ["F0", "B0", "F1", "B1", "F2", "B2", "F3", "B3"]]
EPOCH = 1_700_000_000_000_000  # of the clock


def schema(path):
    """The module that protoc makes of a schema."""
    folder = tempfile.mkdtemp()
    if protoc.main(["protoc", f"-I{path.parent}", f"--python_out={folder}", str(path)]):
        sys.exit(f"protoc does not take {path}")
    sys.path.insert(0, folder)
    return importlib.import_module(path.stem + "_pb2")


def starts():
    """When every task of both ranks begins: after the task before it, and half a millisecond after its input."""
    begin, next_of, free = {}, [0, 0], [0, 0]
    while sum(next_of) < 2 * len(ORDER[0]):
        for rank in (0, 1):
            if next_of[rank] == len(ORDER[rank]):
                continue
            task = ORDER[rank][next_of[rank]]
            waits = (rank == 1) == (task[0] == "F")  # for the other rank
            source = (1 - rank, task)
            if waits and source not in begin:
                continue
            length = F if task[0] == "F" else B
            begin[rank, task] = max(free[rank], begin[source] + length + HOP if waits else 0)
            free[rank] = begin[rank, task] + length
            next_of[rank] += 1
    return begin


def nodes(schema, rank, begin):
    number = 0
    for task in ORDER[rank]:
        start, length = EPOCH + begin[rank, task], F if task[0] == "F" else B
        yield schema.Node(id=number, name=f"PP:{rank}{task}", type=schema.METADATA_NODE, start_time_micros=start, duration_micros=length)
        yield schema.Node(id=number + 1, name="aten::mm", type=schema.COMP_NODE, data_deps=[number], start_time_micros=start + 10,
                          duration_micros=length - 10, inputs=schema.IOInfo(values="[1, 2]", shapes="[[4, 4]]", types="['Tensor(float)']"),
                          attr=[schema.AttributeProto(name="is_cpu_op", bool_val=True), schema.AttributeProto(name="tid", int64_val=-1)])
        yield schema.Node(id=number + 2, name=f"send {task}", type=schema.COMM_SEND_NODE, start_time_micros=start + length,
                          duration_micros=HOP, attr=[schema.AttributeProto(name="comm_size", uint64_val=1 << 20)])
        number += 3


def written(message):
    """A message after its length, as Chakra's protolib.py writes it."""
    data, length, prefix = message.SerializeToString(), message.ByteSize(), bytearray()
    while length > 127:
        prefix.append(length & 127 | 128)
        length >>= 7
    return bytes(prefix) + bytes([length]) + data


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("schema", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    arguments = parser.parse_args()
    made, begin = schema(arguments.schema), starts()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for rank in (0, 1):
        head = made.GlobalMetadata(version="1.0.0", attr=[made.AttributeProto(name="pid", uint64_val=100 + rank)])
        data = written(head) + b"".join(written(node) for node in nodes(made, rank, begin))
        (arguments.folder / f"pp.{rank}.et").write_bytes(data)
    last = max(start + (F if task[0] == "F" else B) for (_, task), start in begin.items())
    print(f"{arguments.folder}/pp.*.et: a step of {last / 1000} ms")


if __name__ == "__main__":
    main()
