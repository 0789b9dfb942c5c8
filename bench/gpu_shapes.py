#!/usr/bin/env python3
"""Speed of the kernels of a transformer by shape, on one GPU, with PyTorch: products of matrices, products of experts,
attention, kernels bound by memory, and the host's time per kernel.

    gpu_shapes.py [--seconds products=45,fp8=10,experts=8,attention=15,memory=8] OUT.json

The shapes are those of published models, divided by 1 to 8 tensor-parallel devices, for 1024 to 32768 tokens. They are
measured in a random order, the same in each run, until the part's time is over, so a short run measures a sample of the
shapes. Operands are random numbers, and successive calls use other addresses, so that they are not in the L2 cache.
Each number is the median over rounds of the time of successive calls between two events. Writes one JSON object. Exit
status 77 without PyTorch or a GPU."""
import argparse
import contextlib
import json
import random
import statistics
import sys
import time

PARTS = {"products": 45, "fp8": 10, "experts": 8, "attention": 15, "memory": 8}
TOKENS = (1024, 2048, 4096, 8192, 16384, 32768)
DEGREES = (1, 2, 4, 8)
MOST_FLOPS = 5e12  # of one product: about 8 ms
# hidden, width of the queries, width of keys and of values, width of the MLP, matrices of its first product, vocabulary
MODELS = {"gpt3-5b": (4096, 4096, 4096, 16384, 1, 51200), "gpt3-20b": (6144, 6144, 6144, 24576, 1, 51200),
          "gpt3-175b": (12288, 12288, 12288, 49152, 1, 51200), "530b": (20480, 20480, 20480, 81920, 1, 51200),
          "gpt2-xl": (1600, 1600, 1600, 6400, 1, 50304), "gpt-1024": (1024, 1024, 1024, 4096, 1, 51200),
          "gpt-2048": (2048, 2048, 2048, 8192, 1, 51200), "gpt-3072": (3072, 3072, 3072, 12288, 1, 51200),
          "llama-2-7b": (4096, 4096, 4096, 11008, 2, 32000), "llama-13b": (5120, 5120, 5120, 13824, 2, 128000),
          "llama-3-8b": (4096, 4096, 1024, 14336, 2, 128256), "llama-3-70b": (8192, 8192, 1024, 28672, 2, 128256),
          "llama-3.1-405b": (16384, 16384, 1024, 53248, 2, 128256), "qwen2.5-32b": (5120, 5120, 1024, 27648, 2, 152064),
          "qwen2.5-72b": (8192, 8192, 1024, 29568, 2, 152064), "nemotron-4-15b": (6144, 6144, 1024, 24576, 1, 256000),
          "nemotron-4-340b": (18432, 18432, 1536, 73728, 1, 256000)}
# experts, hidden, width of an expert
MIXTURES = {"mixtral-8x7b": (8, 4096, 14336), "mixtral-8x22b": (8, 6144, 16384), "qwen3-30b-a3b": (128, 2048, 768),
            "qwen3-235b-a22b": (128, 4096, 1536), "deepseek-v3": (256, 7168, 2048), "gpt-oss-120b": (128, 2880, 2880)}


def skip(why):
    print(f"skipped: {why}", file=sys.stderr)
    sys.exit(77)


class Bench:
    def __init__(self, torch, device):
        self.torch, self.device = torch, device
        # Standard normal numbers; a buffer many times as large as the L2 cache.
        self.pool = torch.randn(1 << (30 if device == "cuda" else 22), device=device, dtype=torch.float32).to(torch.bfloat16)
        self.flat = {torch.bfloat16: self.pool}
        self.at = 0

    def matrix(self, rows, columns, dtype=None):
        """Returns numbers from the pool as a matrix, others in every call."""
        dtype = dtype or self.torch.bfloat16
        if dtype not in self.flat:
            self.flat[dtype] = self.pool.to(dtype)
        flat, size = self.flat[dtype], rows * columns
        if size > flat.numel():
            raise MemoryError(f"{rows} x {columns}")
        at = self.at if self.at + size <= flat.numel() else 0
        self.at = at + -(-size // 256) * 256
        return flat[at:at + size].view(rows, columns)

    def seconds(self, call, least=0.004, rounds=3):
        """Returns the median time of call() over rounds of successive calls."""
        if self.device == "cpu":
            begin = time.perf_counter()
            call()
            return time.perf_counter() - begin
        cuda = self.torch.cuda

        def timed(calls):
            first, last = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            cuda._sleep(calls * 100_000)  # until the host has queued all calls: the GPU must not wait for it in between
            first.record()
            for _ in range(calls):
                call()
            last.record()
            last.synchronize()
            return first.elapsed_time(last) / 1e3 / calls

        call()
        calls = max(1, min(200, round(least / max(timed(2), 1e-6))))
        return statistics.median(timed(calls) for _ in range(rounds))


@contextlib.contextmanager
def noting(errors, shape):
    """A shape that PyTorch has no kernel for, or no memory, is left out of the table."""
    try:
        yield
    except (RuntimeError, MemoryError, AttributeError, TypeError) as error:
        errors.append([str(shape), repr(error)[:200]])


def shuffled(shapes):
    shapes = sorted(set(shapes))
    random.Random(1).shuffle(shapes)
    return shapes


def linear_layers():
    """Yields tokens, inputs and outputs of the linear layers of a device."""
    for hidden, queries, values, width, gates, vocabulary in MODELS.values():
        for degree in DEGREES:
            for tokens in TOKENS:
                for inputs, outputs in ((hidden, (queries + 2 * values) // degree), (queries // degree, hidden),
                                        (hidden, gates * width // degree), (width // degree, hidden),
                                        (hidden, vocabulary // degree)):
                    if 2 * tokens * inputs * outputs <= MOST_FLOPS and inputs % 8 == 0 and outputs % 8 == 0:
                        yield tokens, inputs, outputs


def products():
    """Returns m, k, n and layout of C[m, n] = A[m, k] B[k, n] in the three passes of linear layers."""
    return shuffled(shape for t, i, o in linear_layers()
                    for shape in ((t, i, o, "TN"), (t, o, i, "NN"), (o, t, i, "NT")))


def measure_products(bench, stop, errors):
    torch, rows = bench.torch, []
    for count, (m, k, n, layout) in enumerate(products()):
        if stop():
            break
        flops = 2 * m * k * n
        with noting(errors, (m, k, n, layout)):
            left = (lambda: bench.matrix(k, m).t()) if layout == "NT" else (lambda: bench.matrix(m, k))
            right = (lambda: bench.matrix(n, k).t()) if layout == "TN" else (lambda: bench.matrix(k, n))
            out = torch.empty(m, n, device=bench.device, dtype=torch.bfloat16)
            seconds = bench.seconds(lambda: torch.mm(left(), right(), out=out))
            rows.append([m, k, n, layout, "bf16", round(flops / seconds / 1e12, 1)])
        if layout == "NT" and bench.device == "cuda" and count % 4 == 0:
            with noting(errors, (m, k, n, layout, "added")):  # to gradients that are kept in fp32
                total = torch.zeros(m, n, device=bench.device, dtype=torch.float32)
                seconds = bench.seconds(lambda: torch.addmm(total, left(), right(), out_dtype=torch.float32))
                rows.append([m, k, n, layout, "fp32 added", round(flops / seconds / 1e12, 1)])
    return {"columns": ["m", "k", "n", "layout", "result", "tflops"], "rows": rows}


def measure_fp8(bench, stop, errors):
    """e4m3 operands with one scale each, bf16 results. On Hopper all three passes have the layout TN."""
    torch, rows = bench.torch, []
    one, eight = torch.ones((), device=bench.device), torch.float8_e4m3fn
    for m, k, n, layout in products():
        if stop():
            break
        if layout != "TN" or m % 16 or k % 16 or n % 16:
            continue
        with noting(errors, (m, k, n)):
            seconds = bench.seconds(lambda: torch._scaled_mm(
                bench.matrix(m, k, eight), bench.matrix(n, k, eight).t(), scale_a=one, scale_b=one,
                out_dtype=torch.bfloat16, use_fast_accum=True))
            rows.append([m, k, n, round(2 * m * k * n / seconds / 1e12, 1)])
    return {"columns": ["m", "k", "n", "tflops"], "rows": rows}


def measure_experts(bench, stop, errors):
    """Products of several experts with their own tokens each, the same number, by torch._grouped_mm."""
    torch, rows = bench.torch, []
    shapes = shuffled((local, tokens, inputs, outputs)
                      for experts, hidden, width in MIXTURES.values() for local in (2, 4, 8, 16, 32) if local <= experts
                      for tokens in (128, 256, 512, 1024, 2048, 4096)
                      for inputs, outputs in ((hidden, 2 * width), (width, hidden))
                      if 2 * local * tokens * inputs * outputs <= MOST_FLOPS)
    for local, tokens, inputs, outputs in shapes:
        if stop():
            break
        with noting(errors, (local, tokens, inputs, outputs)):
            ends = torch.arange(tokens, local * tokens + 1, tokens, device=bench.device, dtype=torch.int32)
            seconds = bench.seconds(lambda: torch._grouped_mm(
                bench.matrix(local * tokens, inputs),
                bench.matrix(local * outputs, inputs).view(local, outputs, inputs).transpose(1, 2), offs=ends))
            rows.append([local, tokens, inputs, outputs, round(2 * local * tokens * inputs * outputs / seconds / 1e12, 1)])
    return {"columns": ["experts", "tokens_per_expert", "inputs", "outputs", "tflops"], "rows": rows}


def measure_attention(bench, stop, errors):
    """Milliseconds of forward and of backward of causal attention."""
    torch, rows = bench.torch, []
    from torch.nn.attention import SDPBackend, sdpa_kernel
    attention = torch.nn.functional.scaled_dot_product_attention
    kernels = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    shapes = shuffled((batch, heads, heads // share, tokens, width)
                      for batch in (1, 2, 4) for heads in (2, 4, 8, 16, 32, 64) for share in (1, 4, 8)
                      for tokens in (1024, 2048, 4096, 8192, 16384, 32768) for width in (64, 96, 128)
                      if (width == 128 or share == 1) and (width != 96 or heads >= 8) and share <= heads
                      and 4 * batch * heads * tokens * tokens * width <= 4e12 and batch * tokens <= 65536)
    for batch, heads, groups, tokens, width in shapes:
        if stop():
            break
        q, k, v, gradient = (torch.randn(batch, tokens, count, width, device=bench.device, dtype=torch.bfloat16)
                             .transpose(1, 2).requires_grad_() for count in (heads, groups, groups, heads))
        row = [batch, heads, groups, tokens, width]
        for name, kernel in kernels.items():
            times = [None, None]
            with noting(errors, (name, *row)), sdpa_kernel(kernel):
                forward = lambda: attention(q, k, v, is_causal=True, enable_gqa=heads != groups)  # noqa: E731
                ahead = bench.seconds(forward)
                out = forward()
                back = bench.seconds(lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True))
                times = [round(ahead * 1e3, 4), round(back * 1e3, 4)]
            row += times
        rows.append(row)
    return {"columns": ["batch", "heads", "groups", "tokens", "head_width", *(
        f"{name}_{way}_ms" for name in kernels for way in ("forward", "backward"))], "rows": rows}


def measure_memory(bench, stop, errors):
    """Kernels bound by memory: GB/s, from the bytes that a kernel has to read and write once."""
    torch, rows, functional = bench.torch, [], bench.torch.nn.functional

    def note(kernel, tokens, width, forward_bytes, backward_bytes, make, *inputs):
        """Notes the rates of make(*inputs), and of its backward if there are bytes of one."""
        with noting(errors, (kernel, tokens, width)):
            if backward_bytes:
                inputs = [i.detach().clone().requires_grad_() for i in inputs]
            ahead, back = forward_bytes / bench.seconds(lambda: make(*inputs)), None
            if backward_bytes:
                out = make(*inputs)
                gradient = torch.randn_like(out)
                back = backward_bytes / bench.seconds(
                    lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True))
            rows.append([kernel, tokens, width, round(ahead / 1e9), back and round(back / 1e9)])

    sizes = (1024, 2048, 4096, 8192, 16384)
    for tokens, width in shuffled((tokens, width) for tokens in sizes for width in sizes):
        if stop():
            break
        b = tokens * width * 2
        x, y = (torch.randn(tokens, width, device=bench.device).bfloat16() for _ in range(2))
        weight, bias = x[0].clone(), x[1].clone()
        note("copy", tokens, width, 2 * b, 0, lambda: bench.matrix(tokens, width).clone())
        note("add", tokens, width, 3 * b, 0, lambda: bench.matrix(tokens, width) + bench.matrix(tokens, width))
        note("layer_norm", tokens, width, 2 * b, 3 * b,
             lambda x, w, c: functional.layer_norm(x, (width,), w, c), x, weight, bias)
        note("rms_norm", tokens, width, 2 * b, 3 * b, lambda x, w: functional.rms_norm(x, (width,), w), x, weight)
        note("gelu", tokens, width, 2 * b, 3 * b, lambda x: functional.gelu(x, approximate="tanh"), x)
        note("silu_times", tokens, width, 3 * b, 5 * b, lambda x, y: functional.silu(x) * y, x, y)
        note("dropout", tokens, width, 2.5 * b, 2.5 * b, lambda x: functional.dropout(x, 0.1), x)
    for tokens, vocabulary in ((2048, 51200), (4096, 32000), (4096, 128256), (8192, 16032)):
        logits = torch.randn(tokens, vocabulary, device=bench.device)
        labels = torch.randint(vocabulary, (tokens,), device=bench.device)
        b = tokens * vocabulary * 4
        note("cross_entropy_fp32", tokens, vocabulary, b, 2 * b, lambda x: functional.cross_entropy(x, labels), logits)
    for parameters in (1 << 24, 1 << 27, 1 << 29) if bench.device == "cuda" else (1 << 20,):
        with noting(errors, ("adamw", parameters)):
            parameter = torch.zeros(parameters, device=bench.device, requires_grad=True)
            parameter.grad = torch.ones_like(parameter)
            optimizer = torch.optim.AdamW([parameter], lr=1e-4, fused=True)
            rows.append(["adamw_fused_fp32", parameters, 1, round(28 * parameters / bench.seconds(optimizer.step) / 1e9), None])
    return {"columns": ["kernel", "tokens", "width", "forward_gb_per_s", "backward_gb_per_s"], "rows": rows}


def state_of_gpu(torch):
    try:
        return {"clock_mhz": torch.cuda.clock_rate(), "watts": torch.cuda.power_draw() / 1e3,
                "celsius": torch.cuda.temperature()}
    except Exception as error:
        return {"unknown": repr(error)[:100]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", default="", help="of each part: products=45,fp8=10,... ; 0 leaves a part out")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu: to test this program")
    parser.add_argument("out")
    arguments = parser.parse_args()
    seconds = dict(PARTS, **{part: float(time) for part, time in
                             (word.split("=") for word in arguments.seconds.split(",") if word)})
    try:
        import torch
    except ImportError as error:
        skip(error)
    if arguments.device == "cuda" and not torch.cuda.is_available():
        skip("PyTorch sees no GPU")
    bench, measures = Bench(torch, arguments.device), {
        "products": measure_products, "fp8": measure_fp8, "experts": measure_experts, "attention": measure_attention,
        "memory": measure_memory}
    if unknown := set(seconds) - set(measures):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    result = {"device": torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu",
              "torch": torch.__version__, "cuda": torch.version.cuda}
    if arguments.device == "cuda":
        tiny = torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(2000):
            tiny.add_(1)
        result["host_us_per_kernel"] = round((time.perf_counter() - begin) / 2000 * 1e6, 2)
        torch.cuda.synchronize()
    for part, measure in measures.items():
        if seconds[part] <= 0:
            continue
        end, errors = time.monotonic() + seconds[part], []
        result[part] = measure(bench, lambda: time.monotonic() > end, errors)
        result[part]["left_out"] = errors
        if arguments.device == "cuda":
            result[part]["gpu"] = state_of_gpu(torch)
        print(f"{part}: {len(result[part]['rows'])} rows, {len(errors)} left out, {errors[:1]}, "
              f"{result[part].get('gpu')}", file=sys.stderr, flush=True)
        with open(arguments.out, "w") as file:
            json.dump(result, file)


if __name__ == "__main__":
    main()
