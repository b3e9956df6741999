"""Prints the figures of two or more runs side by side: demo_table.py EXPECTED STATS.json..."""

import json
import sys
from pathlib import Path


def mebibytes(count: float) -> str:
    return f"{count / 2**20:.1f} MiB"


ROWS = [
    ("policy", lambda run: run["policy"]),
    ("entries kept per layer and head", lambda run: str(run["budget"] or "all")),
    ("prompt tokens", lambda run: f"{run['prompt_tokens']}"),
    ("time to first token", lambda run: f"{run['ttft_seconds']:.1f} s"),
    ("prompt speed", lambda run: f"{run['prefill']['tokens_per_second']:.0f} tokens/s"),
    ("answer speed", lambda run: f"{run['decode']['tokens_per_second']:.1f} tokens/s"),
    ("cache at its peak", lambda run: mebibytes(run["cache"]["peak_bytes"])),
]


def main(expected: str, paths: list[str]) -> int:
    runs = [json.loads(Path(path).read_text(encoding="utf-8")) for path in paths]
    right = [expected in run["text"].replace(",", "").replace(" ", "") for run in runs]
    table = [[title, *(cell(run) for run in runs)] for title, cell in ROWS]
    table.append(["answer", *(" ".join(run["text"].split())[:40] for run in runs)])
    table.append(["the fact found", *("yes" if found else "no" for found in right)])
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    print()
    for line in table:
        print("  " + "   ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
    print()
    if not all(right):
        print(f"Not every answer holds {expected}.")
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
