#!/usr/bin/env python3
"""Runs the programs of this folder in turn, several rounds, and prints the tables of docs/dependencies.md.

run.py BUILD [--rounds N] [--with COMMAND] [--torch PYTHON]
    COMMAND goes before every program, e.g. "taskset -c 1"; PYTHON has PyTorch, for FBGEMM
"""

import argparse
import pathlib
import shlex
import subprocess
import sys
from collections import defaultdict
from statistics import median

PROGRAMS = ["ggml_bench", "libxsmm_bench", "onednn2_bench", "onednn3_bench", "xnnpack_bench"]
TOKENS = [64, 128, 256]
# A layer of Qwen2.5-0.5B: (k, n) and how many such matrices it has.
LAYER = {(896, 4864): 2, (4864, 896): 1, (896, 896): 2, (896, 128): 2}


def run(program: list[str]) -> str:
    done = subprocess.run(program, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{program[-1]} ended with {done.returncode}: a product is wrong or could not be made")
    return done.stdout


def measured(programs: list[list[str]], rounds: int) -> dict:
    """(name, type) -> (k, n, tokens) -> a line's figures, one for each round."""
    lines = defaultdict(lambda: defaultdict(list))
    for number in range(rounds):
        # Forwards and backwards in turn, so that a slow minute does not always hit the same one.
        for program in programs if number % 2 == 0 else reversed(programs):
            for line in run(program).splitlines():
                name, kind, k, n, tokens, gflops, error, beside = line.split("\t")
                figures = (float(gflops), float(error), int(beside))
                lines[name, kind][int(k), int(n), int(tokens)].append(figures)
    return lines


def layer_rates(shapes: dict, tokens: int) -> list[float]:
    """GFLOPS of a layer's products round by round, of those shapes that the type has."""
    have = [shape for shape in LAYER if (*shape, tokens) in shapes]
    rates = []
    for figures in zip(*(shapes[(*shape, tokens)] for shape in have)):
        work = [LAYER[k, n] * k * n for k, n in have]
        rates.append(sum(work) / sum(w / one[0] for w, one in zip(work, figures)))
    return rates


def spread(values: list[float]) -> str:
    return f"{min(values):.0f} / **{median(values):.0f}** / {max(values):.0f}"


def row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def beside(shapes: dict) -> str:
    """Bytes beside the file's for every matrix of a layer; a buffer for all is no larger for a larger matrix."""
    sizes = {shape: shapes[(*shape, 64)][0][2] for shape in LAYER if (*shape, 64) in shapes}
    if len(set(sizes.values())) == 1:
        only = next(iter(sizes.values()))
        if len(sizes) > 1 or only < 1 << 18:
            return f"{only >> 10} KiB a thread" if only else "–"
    per_weight = sum(LAYER[s] * size for s, size in sizes.items()) / sum(LAYER[s] * s[0] * s[1] for s in sizes)
    return f"{8 * per_weight:.1f} bits a weight"


def print_tables(lines: dict) -> None:
    print(row(["product", "weights", *(f"B = {t}" for t in TOKENS), "error", "memory beside the file"]))
    print(row(["---"] * 7))
    for (name, kind), shapes in lines.items():
        if name.startswith("peak"):
            rates = spread([one[0] for one in shapes[0, 0, 0]])
            print(row([name, kind, rates, "", "", "", ""]))
            continue
        error = max(one[1] for figures in shapes.values() for one in figures)
        rates = [spread(layer_rates(shapes, tokens)) for tokens in TOKENS]
        only = "" if len(shapes) > len(TOKENS) else " (only 4864 × 896)"
        print(row([name, kind + only, *rates, f"{100 * error:.2f} %", beside(shapes)]))
    print()
    print(row(["product", "weights", *(f"{k} × {n}" for k, n in LAYER)]))
    print(row(["---"] * 6))
    for (name, kind), shapes in lines.items():
        if name.startswith("peak"):
            continue
        cells = []
        for shape in LAYER:
            found = [shapes.get((*shape, tokens)) for tokens in TOKENS]
            cells.append(" / ".join(f"{median(one[0] for one in f):.0f}" for f in found if f) or "–")
        print(row([name, kind, *cells]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--with", dest="before", default="", help="what goes before every program")
    parser.add_argument("--torch", metavar="PYTHON", help="a Python that can import torch")
    options = parser.parse_args()
    before = shlex.split(options.before)
    programs = [[*before, str(options.build / name)] for name in PROGRAMS if (options.build / name).exists()]
    if options.torch:
        programs.append([*before, options.torch, str(pathlib.Path(__file__).with_name("fbgemm_bench.py"))])
    print_tables(measured(programs, options.rounds))


if __name__ == "__main__":
    main()
