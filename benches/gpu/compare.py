"""mortonnet beside PyTorch (cuBLAS, fp32 without TF32) on one NVIDIA GPU, in one run; prints tables as markdown.

    python3 benches/gpu/compare.py target/release/mortonnet [--device NVIDIA] [--kernels DIR] [--part networks|squares]

Networks: batches of 100 random records.
- Resident: weights and input on the device, from the first enqueue to the end of the last step (PyTorch: replay of a
  CUDA graph and a synchronise).
- Host to host: to classes on the host, and both begin alike: with records in page-locked memory, which the device's
  copy reads (mortonnet: the slot that its readers write to; PyTorch: pinned memory, eager), or with records in ordinary
  memory, which have to be moved there first (PyTorch: `Tensor.cuda` of such memory).
Square products: time of the kernel; mortonnet's and the second of PyTorch's by device events around one launch, the
first of PyTorch's by its profiler. Medians. mortonnet checks every answer against float64 before it times, and
classes that are read without scores against those with.
"""
import argparse
import csv
import io
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
BATCH = 100
# The kernel for each size, as measured on an H200.
SQUARE = {
    96: "16x32", 192: "16x32", 384: "16x32", 768: "48x96", 1000: "64x128",
    1024: "64x128", 1440: "96x96_2", 2048: "128x128", 2880: "64x64", 4096: "128x128",
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
        torch.cuda._sleep(200_000)  # so that all three are queued before the first runs: no launch from the host counts
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


def torch_network(sizes):
    """Replay of a CUDA graph, and from pinned and from ordinary memory to classes on the host, in microseconds."""
    model = network(sizes)
    x, plain = torch.rand(BATCH, sizes[0], device="cuda"), torch.rand(BATCH, sizes[0])
    host = plain.pin_memory()
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            model(x)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        model(x)
    return (
        wall(graph.replay),
        wall(lambda: model(host.cuda(non_blocking=True)).argmax(1).cpu()),
        wall(lambda: model(plain.cuda()).argmax(1).cpu()),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mortonnet")
    parser.add_argument("--device", default="NVIDIA")
    parser.add_argument("--kernels")
    parser.add_argument("--part", choices=("networks", "squares"))
    options = parser.parse_args()
    common = ["--device", options.device] + (["--kernels", options.kernels] if options.kernels else [])
    torch.backends.cuda.matmul.allow_tf32 = False

    def ours(*arguments):
        command = [options.mortonnet, "bench", *arguments, "-o", "csv", *common]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return list(csv.DictReader(io.StringIO(text)))

    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, batch {BATCH}, microseconds\n")
    if options.part != "squares":
        networks(ours)
    if options.part != "networks":
        squares(ours)


def networks(ours):
    print("| network | resident | 95th | PyTorch | ratio", end=" ")
    print("| from page-locked | PyTorch | ratio | from ordinary | PyTorch | ratio |")
    print("|---" + "|--:" * 10 + "|")
    for name, sizes in NETWORKS.items():
        with torch.inference_mode():
            peers = torch_network(sizes)
        shape = ("network", "--shape", name, "--batch", str(BATCH))
        resident, host = ours(*shape)[0], ours(*shape, "--host")[0]
        cells = [f"{float(resident['median_us']):.1f} | {float(resident['p95_us']):.1f}"]
        times = (float(r) for r in (resident["median_us"], host["from_slot_us"], host["median_us"]))
        for i, (time_us, peer) in enumerate(zip(times, peers)):
            cells += [f"{time_us:.1f}"] * (i > 0) + [f"{peer:.1f}", f"{time_us / peer:.2f}"]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print()


def squares(ours):
    print("| square product | kernel | mortonnet | cuBLAS, profiler | cuBLAS, events | / profiler | / events | TFLOPS |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for n, kernel in SQUARE.items():
        rows = ours(f"matmul_tiled_{kernel}", "--sizes", str(n), "--repeat", "30", "--full")
        rate = next(float(r["value"]) for r in rows if r["section"] == "products")
        us = 2e-3 * n**3 / rate
        a, b = (torch.rand(n, n, device="cuda") for _ in range(2))
        with torch.inference_mode():
            kernel_us, event_us = profiled(lambda: a @ b), by_events(lambda: a @ b)
        print(
            f"| {n} | {kernel} | {us:.1f} | {kernel_us:.1f} | {event_us:.1f} | {us / kernel_us:.2f} | {us / event_us:.2f} |"
            f" {rate / 1e3:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
