#!/usr/bin/env python3
"""ResNet-50 training steps in PyTorch on one GPU: the yardstick for `pipewright run`.

Synthetic images that stay on the GPU, SGD with momentum, cross entropy, channels_last, autocast to
bf16; --mode eager or compile (torch.compile, default mode). The same model is trained with PyTorch's
default SGD (foreach) and with the fused one. Prints one JSON object; exit status 77 without PyTorch,
torchvision or a GPU.
"""
import argparse
import json
import statistics
import sys


def skip(why):
    print(f"skipped: {why}", file=sys.stderr)
    sys.exit(77)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", choices=["eager", "compile"], default="eager")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--warm-up", type=int, default=10)
    parser.add_argument("--steps", type=int, default=30)
    return parser.parse_args()


def make_training(torch, torchvision, arguments):
    """A function that makes the step of an optimizer."""
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    model = torchvision.models.resnet50(weights=None, num_classes=arguments.classes)
    model = model.cuda().to(memory_format=torch.channels_last).train()
    shape = (arguments.batch, 3, arguments.image_size, arguments.image_size)
    images = torch.randn(shape, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(arguments.classes, (arguments.batch,), device="cuda")
    criterion = torch.nn.CrossEntropyLoss()
    forward = torch.compile(model) if arguments.mode == "compile" else model

    def step_with(**kind):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, **kind)

        def step():
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = criterion(forward(images), labels)
            loss.backward()
            optimizer.step()
            return loss

        return step

    return step_with


def milliseconds_per_step(torch, step, count):
    """From the start of each step to the start of the next, on the GPU's clock."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    torch.cuda.synchronize()
    return [first.elapsed_time(second) for first, second in zip(marks, marks[1:])]


def measure(torch, step, arguments):
    for _ in range(arguments.warm_up):
        loss = step()
    torch.cuda.synchronize()
    times = milliseconds_per_step(torch, step, arguments.steps)
    deciles = statistics.quantiles(times, n=10)
    median = statistics.median(times)
    return {
        "images_per_second": arguments.batch / median * 1e3,
        "step_ms_median": median,
        "step_ms_p10": deciles[0],
        "step_ms_p90": deciles[-1],
        "loss": loss.item(),
    }


def main():
    arguments = parse_arguments()
    try:
        import torch
        import torchvision
    except ImportError as error:
        skip(error)
    if not torch.cuda.is_available():
        skip("PyTorch sees no GPU")
    step_with = make_training(torch, torchvision, arguments)
    runs = {kind: measure(torch, step_with(**{kind: True}), arguments) for kind in ("foreach", "fused")}
    print(json.dumps({
        "mode": arguments.mode,
        "optimizers": runs,
        "batch": arguments.batch,
        "image_size": arguments.image_size,
        "steps": arguments.steps,
        "memory_bytes": torch.cuda.max_memory_allocated(),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "gpu": torch.cuda.get_device_name(),
    }))


if __name__ == "__main__":
    main()
