"""Configs of rows whose models are layers of images: ResNet-50 of MLPerf, and U-Net of torchgpipe.

torchgpipe's U-Net (kakaobrain/torchgpipe@a4710261, benchmarks/models/unet) is a chain of modules whose stages the rows cut by
their number. It is written as a file of layers whose times are FLOPs at the rate of the device, or bytes at its bandwidth where
that is longer. A convolution takes the shorter of this time and of Winograd's algorithm F(4x4, 3x3), which multiplies a fourth
(arXiv 1509.09308, section 4) and which cuDNN has for all three passes in kernels of their own (CUDNN_CONVOLUTION_*_WINOGRAD_NONFUSED):
the transforms read and write tiles of 6 x 6 for 4 x 4 pixels. The row without a pipeline gives the rate of FLOPs to the remaining
rows of its group.
"""
import math
import re

UNET = re.compile(r"unet-(\d+)-(\d+)")
DEPTH, IMAGE = 5, 192  # benchmarks/unet-speed/main.py, unet-memory/main.py
MEMORY_BATCH = 32
# FLOP/s in fp32, and bytes/s that kernels bound by memory reach, 0.75 of the peak: workloads/cluster/device_kinds.yaml and
# docs/clusters.md, the rules.
KINDS = {"p40": (11.76e12, 0.75 * 346e9)}
RESNET_FLOPS = 6 * 4.089e9  # of an image of 224 x 224, forward and backward: torchvision's count
BYTES = 4  # bytes of a number in fp32
WINOGRAD_SHARE, WINOGRAD_TILE = 36 / (16 * 9), 36 / 16  # of the products, and numbers of a tile for each pixel


def is_of_layers(row):
    return str(row.get("model", "")).startswith(("resnet50", "unet-", "amoebanet"))


class Chain:
    """The modules of a flattened nn.Sequential, with their sizes for one image."""

    def __init__(self, rates):
        self.rates, self.layers, self.modules, self.flops, self.seconds = rates, [], 0, 0, 0

    def add(self, name, channels, pixels, *, moved, flops=0.0, weights=0, skips=(), modules=1):
        """`modules` that write `channels` of `pixels`, multiply `flops` forward, and move numbers in both passes."""
        peak, bandwidth = self.rates
        output, forward, backward = channels * pixels * BYTES, *(number * BYTES / bandwidth for number in moved)
        least = self.winograd(name, moved[0], flops)
        passes = {"forward": min(max(flops / peak, forward), least), "backward_input": min(max(flops / peak, backward), least)}
        if weights:
            passes["backward_weight"] = min(max(flops / peak, backward), least)
        layer = {"name": f"{self.modules}.{name}", **{key: f"{seconds * 1e6:.3f} us" for key, seconds in passes.items()},
                 "output": f"{output} B", "weights": f"{weights * BYTES} B"}
        if skips:
            layer["inputs"] = [self.layers[-1]["name"], *skips]
        self.layers.append(layer)
        self.modules += modules
        self.flops += (3 if weights else 0) * flops
        self.seconds += sum(passes.values())
        return layer["name"]

    def winograd(self, name, moved, flops):
        """The seconds of a convolution that moves these numbers, infinite for other layers."""
        peak, bandwidth = self.rates
        return WINOGRAD_SHARE * flops / peak + (1 + 2 * WINOGRAD_TILE) * moved * BYTES / bandwidth if name == "conv" else math.inf

    def convolutions(self, count, channels, pixels):
        """Each with dropout, norm and ReLU; `channels` are those read, between, and written. Dropout of whole channels keeps no
        tensor, so it is a layer with the norm: each reads and writes, the norm reads twice."""
        first, between, last = channels
        for number in range(count):
            read, written = first if number == 0 else between, last if number == count - 1 else between
            weights, size = 9 * read * written, written * pixels
            self.add("conv", written, pixels, moved=[read * pixels + size] * 2, flops=2 * weights * pixels, weights=weights)
            self.add("norm", written, pixels, moved=[(2 + 3) * size, (2 + 5) * size], modules=2)
            self.add("relu", written, pixels, moved=[2 * size, 3 * size])


def unet(convolutions, channels, rates):
    """The chain of U-Net (B, C)."""
    chain, side, skips = Chain(rates), IMAGE, []
    for level in range(DEPTH):
        width, size = channels << level, (channels << level) * side * side
        chain.convolutions(convolutions, (3 if level == 0 else width // 2, width, width), side * side)
        skips.append(chain.add("stash", width, side * side, moved=[0, 0]))
        side //= 2
        chain.add("down", width, side * side, moved=[5 / 4 * size, 5 / 4 * size])
    chain.convolutions(convolutions, (channels << DEPTH - 1, channels << DEPTH, channels << DEPTH - 1), side * side)
    for level in reversed(range(DEPTH)):
        width, side = channels << level, side * 2
        size = width * side * side
        chain.add("up", width, side * side, moved=[5 / 4 * size, 5 / 4 * size])
        chain.add("concat", 2 * width, side * side, moved=[4 * size, 4 * size], skips=[skips[level]])
        chain.convolutions(convolutions, (2 * width, width // 2, width // 2), side * side)
    weights = channels // 2
    chain.add("segment", 1, side * side, moved=[weights * side * side] * 2, flops=2 * weights * side * side, weights=weights)
    return chain


def split_of(chain, balance):
    """The first layers of all stages but the first."""
    numbers = {int(layer["name"].split(".")[0]): layer["name"] for layer in chain.layers}
    ends = [sum(balance[:stage]) for stage in range(1, len(balance))]
    return [numbers[min(number for number in numbers if number >= end)] for end in ends]


def describe_unet(row, convolutions, channels):
    peak, bandwidth = KINDS[row["device"]]
    chain = unet(convolutions, channels, (row.get("compute", peak), bandwidth))
    stages, balance = row["pipeline"], row.get("balance") or [chain.modules]
    if sum(balance) != chain.modules:
        raise ValueError(f"{row['model']}: balance of {sum(balance)} of {chain.modules} modules")
    batch = row.get("mini_batch", MEMORY_BATCH)
    size = max(1, batch // row["micro_batches"])  # no micro-batch is empty
    pipeline = {"schedule": "gpipe", "stages": stages, "mini_batch": batch, "micro_batch_size": size}
    if stages > 1:
        pipeline["split"] = split_of(chain, balance)
    if row.get("recompute", "except_last") == "except_last" and row.get("balance"):
        pipeline.update(recompute="all", recompute_saved=1)
    host = {"count": 1, "devices": stages, "device": row["device"]}
    config = {"workload": {"model": f"{row['model'].split()[0]}/layers.json"}, "cluster": {"hosts": [host]},
              "pipeline": pipeline, "training": {"precision": row["precision"], "optimizer": "sgd", "momentum": 0}}
    return config, {"samples": 1, "layers": chain.layers}, chain.flops


def describe_resnet(row):
    per_host = min(row.get("gpus_per_host", 8), row["gpus"])
    cluster = {"hosts": row["gpus"] // per_host, "devices_per_host": per_host, "device": row["device"]}
    config = {"workload": {"model": "resnet50", "image_size": row["image_size"], "classes": 1000}, "cluster": cluster,
              "pipeline": {"schedule": "1f1b", "stages": 1, "replicas": row["gpus"], "mini_batch": row["mini_batch"],
                           "micro_batch_size": row["mini_batch"] // row["gpus"]},
              "training": {"precision": row["precision"], "optimizer": "sgd"}}
    if cluster["hosts"] > 1:
        cluster["between"] = {"link": "ndr400" if row["device"].startswith("h") else "hdr200", "adapters": per_host}
        config["transfer"] = {"sums": row.get("sums", "ring")}
    return config, None, RESNET_FLOPS


def describe(row):
    """(config, a file of layers or None, FLOPs per sample)."""
    found = UNET.match(row["model"])
    if found:
        return describe_unet(row, int(found.group(1)), int(found.group(2)))
    return describe_resnet(row)


def calibrate(rows):
    """Gives the rows of a group of U-Nets the FLOP/s of their device, with which the row without a pipeline takes its time, and
    marks that row."""
    base = next((row for row in rows if row.get("experiment") == "baseline"), None)
    if not base:
        return
    form, (peak, bandwidth) = UNET.match(base["model"]), KINDS[base["device"]]
    low, high = peak / 16, 16 * peak
    for _ in range(50):
        rate = (low * high) ** 0.5
        seconds = unet(int(form.group(1)), int(form.group(2)), (rate, bandwidth)).seconds
        low, high = (rate, high) if seconds > 1 / base["samples_per_s"] else (low, rate)
    for row in rows:
        row["compute"] = rate
    base["calibrates"] = True
