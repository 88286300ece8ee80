#!/usr/bin/env python3
"""Measures mortonnet beside PyTorch on one NVIDIA GPU, in one run; prints tables as Markdown.

    python3 benches/gpu/compare.py target/release/mortonnet [--device NVIDIA] [--kernels DIR]
                                   [--plan PLAN] [--part networks|images|squares]

PyTorch uses cuBLAS in fp32, without TF32 unless a column says so.

Images: the networks of MLPerf Tiny and MobileNet-v1, as in `bench network --shape`, resident,
batches of 1 and 100. PyTorch replays a CUDA graph of convolutions with bias and ReLU, with
cudnn.benchmark and the faster of both memory formats. Batch norm is folded on both sides.

Networks: batches of 1 and 100 random records.
- Resident: weights and input are on the device. The time is from the first enqueue to the end of
  the last step. PyTorch replays a CUDA graph and synchronises; the last columns allow TF32.
- Host to host: the time until classes are on the host. Records begin in page-locked memory, which
  the device's copy reads (mortonnet: the slot that its readers write to; PyTorch: pinned memory,
  eager), or in ordinary memory, from which they are moved first (PyTorch: `Tensor.cuda`).

Square products: the time of the kernel. mortonnet's time and PyTorch's second time are of device
events around one launch, PyTorch's first time is of its profiler.

Figures are medians. mortonnet checks every answer against float64 before it times. Classes that are
read without scores are compared with those read with scores.
"""

import argparse
import csv
import io
import itertools
import statistics
import subprocess
import time

import torch
from torch.profiler import ProfilerActivity, profile

NETWORKS = {
    "partial-mnist": [640, 150, 10],
    "partial-cifar": [256, 128, 10],
    "full-mnist": [784, 2500, 2000, 10],
    "full-cifar": [3072, 4096, 3072, 10],
}
IMAGES = ("autoencoder", "ds-cnn", "resnet-8", "mobilenet-v1-0.25", "mobilenet-v1-1.0")
BATCH = 100
# The kernels for each size, as measured on an H200: products of floats, and on tensor cores with
# their accuracy.
SQUARE = {
    96: ["tiled_16x32"],
    192: ["tiled_16x32"],
    384: ["tiled_16x32"],
    768: ["tiled_48x96", "mma_128x88"],
    1000: ["tiled_64x128", "mma_128x88"],
    1024: ["tiled_64x128", "mma_128x88"],
    1440: ["tiled_96x96_2", "mma_128x88"],
    2048: ["tiled_128x128", "mma_128x88"],
    2880: ["tiled_64x64", "mma_128x104"],
    4096: ["tiled_128x128", "mma_128x104"],
}


def wall(run, runs=300, warm=30):
    """Median time of `run` and a synchronise, in microseconds."""
    for _ in range(warm):
        run()
    torch.cuda.synchronize()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def profiled(run, runs=20):
    """Mean time of the kernels of `run`, in microseconds."""
    with profile(activities=[ProfilerActivity.CUDA]) as p:
        for _ in range(runs):
            run()
        torch.cuda.synchronize()
    return sum(e.device_time_total for e in p.key_averages()) / runs


def by_events(run, runs=30):
    """Median time between events around `run`, each run waited for, in microseconds."""
    times = []
    for _ in range(runs):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(
            200_000
        )  # so that all three are queued before the first runs: no launch from the host counts
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times)


def network(sizes):
    layers = []
    for inputs, outputs in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1]).cuda().eval()


class Residual(torch.nn.Module):
    """Two convolutions beside a way around them."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.long = torch.nn.Sequential(
            torch.nn.Conv2d(inputs, outputs, 3, stride, 1),
            torch.nn.ReLU(inplace=True),
            torch.nn.Conv2d(outputs, outputs, 3, 1, 1),
        )
        self.short = (
            torch.nn.Conv2d(inputs, outputs, 1, stride) if stride != 1 else torch.nn.Identity()
        )

    def forward(self, x):
        return torch.relu_(self.long(x) + self.short(x))


def image_network(name):
    """The network of a name, and the shape of its records."""
    from torch.nn import AdaptiveAvgPool2d, Conv2d, Flatten, Linear, ReLU

    def separable(inputs, outputs, stride=1):
        depthwise = Conv2d(inputs, inputs, 3, stride, 1, groups=inputs)
        return [depthwise, ReLU(inplace=True), Conv2d(inputs, outputs, 1), ReLU(inplace=True)]

    if name == "autoencoder":
        sizes = [640, *[128] * 4, 8, *[128] * 4, 640]
        layers = sum(([Linear(*pair), ReLU(inplace=True)] for pair in zip(sizes, sizes[1:])), [])
        return torch.nn.Sequential(*layers[:-1]).cuda().eval(), (640,)
    if name == "ds-cnn":
        layers = [
            Conv2d(1, 64, (10, 4), 2, (5, 1)),
            ReLU(inplace=True),
            *sum((separable(64, 64) for _ in range(4)), []),
        ]
        channels, classes, shape = 64, 12, (1, 49, 10)
    elif name == "resnet-8":
        layers = [
            Conv2d(3, 16, 3, 1, 1),
            ReLU(inplace=True),
            Residual(16, 16, 1),
            Residual(16, 32, 2),
            Residual(32, 64, 2),
        ]
        channels, classes, shape = 64, 10, (3, 32, 32)
    else:
        part, classes, size = (4, 2, 96) if name == "mobilenet-v1-0.25" else (1, 1000, 224)
        blocks = [
            (64, 1),
            (128, 2),
            (128, 1),
            (256, 2),
            (256, 1),
            (512, 2),
            *[(512, 1)] * 5,
            (1024, 2),
            (1024, 1),
        ]
        channels, shape = 32 // part, (3, size, size)
        layers = [Conv2d(3, channels, 3, 2, 1), ReLU(inplace=True)]
        for outputs, stride in blocks:
            layers += separable(channels, outputs // part, stride)
            channels = outputs // part
    return torch.nn.Sequential(
        *layers, AdaptiveAvgPool2d(1), Flatten(), Linear(channels, classes)
    ).cuda().eval(), shape


def captured(model, x):
    """A CUDA graph of a forward pass."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            model(x)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        model(x)
    return graph


def torch_images(name, batch):
    """Replay of a CUDA graph with the faster memory format, in microseconds."""
    times = []
    for memory in (torch.contiguous_format, torch.channels_last):
        model, shape = image_network(name)
        model, x = model.to(memory_format=memory), torch.rand(batch, *shape, device="cuda")
        x = x.to(memory_format=memory) if x.dim() == 4 else x
        times.append(wall(captured(model, x).replay))
    return min(times)


def torch_network(sizes, batch):
    """Microseconds of a CUDA graph with TF32, and from pinned and ordinary memory to classes."""
    model = network(sizes)
    x, plain = torch.rand(batch, sizes[0], device="cuda"), torch.rand(batch, sizes[0])
    host = plain.pin_memory()
    torch.backends.cuda.matmul.allow_tf32 = True
    with_tf32 = wall(captured(model, x).replay)
    torch.backends.cuda.matmul.allow_tf32 = False
    return with_tf32, (
        wall(captured(model, x).replay),
        wall(lambda: model(host.cuda(non_blocking=True)).argmax(1).cpu()),
        wall(lambda: model(plain.cuda()).argmax(1).cpu()),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mortonnet")
    parser.add_argument("--device", default="NVIDIA")
    parser.add_argument("--kernels")
    parser.add_argument("--part", choices=("networks", "images", "squares"))
    parser.add_argument("--plan", help="of the images")
    options = parser.parse_args()
    common = ["--device", options.device] + (
        ["--kernels", options.kernels] if options.kernels else []
    )
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True

    def ours(*arguments):
        command = [options.mortonnet, "bench", *arguments, "-o", "csv", *common]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return list(csv.DictReader(io.StringIO(text)))

    print(
        f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, batch {BATCH}, "
        "microseconds\n"
    )
    for part, run in (("networks", networks), ("images", images), ("squares", squares)):
        if options.part in (None, part):
            run(ours, options)


def images(ours, options):
    print("| network | batch | resident | 95th | PyTorch | ratio |")
    print("|---" + "|--:" * 5 + "|")
    plan = ("--plan", options.plan) if options.plan else ()
    for name in IMAGES:
        for batch in (1, BATCH):
            with torch.inference_mode():
                peer = torch_images(name, batch)
            row = ours("network", "--shape", name, "--batch", str(batch), *plan)[0]
            time_us = float(row["median_us"])
            cells = (
                name,
                batch,
                f"{time_us:.1f}",
                f"{float(row['p95_us']):.1f}",
                f"{peer:.1f}",
                f"{time_us / peer:.2f}",
            )
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
    print()


def networks(ours, _):
    print("| network | batch | resident | 95th | PyTorch | ratio", end=" ")
    print(
        "| from page-locked | PyTorch | ratio | from ordinary | PyTorch | ratio "
        "| resident with TF32 allowed, PyTorch | ratio |"
    )
    print("|---" + "|--:" * 13 + "|")
    for (name, sizes), batch in itertools.product(NETWORKS.items(), (1, BATCH)):
        with torch.inference_mode():
            with_tf32, peers = torch_network(sizes, batch)
        shape = ("network", "--shape", name, "--batch", str(batch))
        resident, host = ours(*shape)[0], ours(*shape, "--host")[0]
        cells = [f"{float(resident['median_us']):.1f} | {float(resident['p95_us']):.1f}"]
        times = (float(r) for r in (resident["median_us"], host["from_slot_us"], host["median_us"]))
        for i, (time_us, peer) in enumerate(zip(times, peers)):
            cells += [f"{time_us:.1f}"] * (i > 0) + [f"{peer:.1f}", f"{time_us / peer:.2f}"]
        cells += [f"{with_tf32:.1f}", f"{float(resident['median_us']) / with_tf32:.2f}"]
        print(f"| {name} | {batch} | {' | '.join(cells)} |", flush=True)
    print()


def squares(ours, _):
    print(
        "| square product | kernel | mortonnet | cuBLAS, profiler | cuBLAS, events "
        "| / profiler | / events | TFLOPS |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for n, kernels in SQUARE.items():
        a, b = (torch.rand(n, n, device="cuda") for _ in range(2))
        with torch.inference_mode():
            kernel_us, event_us = profiled(lambda: a @ b), by_events(lambda: a @ b)
        for kernel in kernels:
            rows = ours(f"matmul_{kernel}", "--sizes", str(n), "--repeat", "30", "--full")
            rate = next(float(r["value"]) for r in rows if r["section"] == "products")
            us = 2e-3 * n**3 / rate
            print(
                f"| {n} | {kernel} | {us:.1f} | {kernel_us:.1f} | {event_us:.1f} "
                f"| {us / kernel_us:.2f} | {us / event_us:.2f} |"
                f" {rate / 1e3:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
