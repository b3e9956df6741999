"""FBGEMM as PyTorch has it: weights in F16, and 8-bit weights with a scale for a row. Neither is a GGUF type; the error
is against the weights that FBGEMM holds. Prints the lines that the other programs print.
"""

import time
import warnings
from statistics import median

import torch

SHAPES = [(896, 4864), (4864, 896), (896, 896), (896, 128)]
ALL_COPIES_BYTES = 64 << 20
SECONDS = 0.06


def half(weights: torch.Tensor) -> tuple:
    """weights [n, k]: numbers held, bytes, ready for FBGEMM, product."""
    stored = weights.half()
    pack = lambda: torch.ops.quantized.linear_prepack_fp16(stored.float(), None)
    return stored.double(), 2 * weights.numel(), pack, torch.ops.quantized.linear_dynamic_fp16


def bytes_by_row(weights: torch.Tensor) -> tuple:
    scales = weights.abs().amax(1).double() / 127
    stored = torch.quantize_per_channel(weights, scales, torch.zeros_like(scales, dtype=torch.int64), 0, torch.qint8)
    pack = lambda: torch.ops.quantized.linear_prepack(stored, None)
    return stored.dequantize().double(), weights.numel(), pack, torch.ops.quantized.linear_dynamic


def median_seconds(product, matrices: list, x: torch.Tensor) -> float:
    times = []
    while sum(times) < SECONDS or len(times) < 5:
        start = time.process_time()
        product(x, matrices[len(times) % len(matrices)])
        times.append(time.process_time() - start)
    return median(times)


def measure(kind: str, prepare, k: int, n: int) -> None:
    held, size, pack, product = prepare(0.02 * torch.randn(n, k))
    matrices = [pack() for _ in range(ALL_COPIES_BYTES // size + 1)]
    for tokens in (64, 128, 256):
        x = torch.randn(tokens, k)
        right = x.double() @ held.T
        error = ((product(x, matrices[-1]).double() - right).norm() / right.norm()).item()
        gflops = 2e-9 * k * n * tokens / median_seconds(product, matrices, x)
        print("FBGEMM, packed", kind, k, n, tokens, f"{gflops:.1f}", f"{error:.5f}", size, sep="\t", flush=True)


def main() -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    torch.backends.quantized.engine = "fbgemm"
    for kind, prepare in {"f16": half, "8 bits, a scale a row": bytes_by_row}.items():
        for k, n in SHAPES:
            measure(kind, prepare, k, n)


main()
