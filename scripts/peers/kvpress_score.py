"""Times KeyDiffPress.score of kvpress alone, on fp32 keys of random numbers, and prints one line of JSON.

The rate is the bytes of the keys, counted once, over the median time of a call.
"""

import argparse
import json
import sys
import time
from statistics import median

import common

SHAPES = ((8, 2176, 128), (8, 32768, 128))  # heads, entries, numbers a key


def seconds_of_calls(call, seconds: float) -> list[float]:
    """Times of single calls, after two that do not count, until they add up to `seconds`; five at least."""
    call()
    call()
    times = []
    while len(times) < 5 or sum(times) < seconds:
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return times


def figures_of(torch, press, shape: tuple[int, int, int], seconds: float) -> dict:
    keys = torch.randn(1, *shape)
    times = seconds_of_calls(lambda: press.score(None, None, keys, None, None, {}), seconds)
    heads, entries, head_size = shape
    return {"heads": heads, "entries": entries, "head_size": head_size, "calls": len(times),
            "seconds_min": min(times), "seconds": median(times), "seconds_max": max(times),
            "gigabytes_per_second": keys.nbytes / median(times) / 1e9}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/peers/kvpress-score", description=__doc__)
    parser.add_argument("--threads", required=True, type=common.positive, metavar="T")
    parser.add_argument("--seconds", default=2.0, type=float, help="how long to time each shape (default 2)")
    options = parser.parse_args()
    import kvpress
    import torch
    from importlib.metadata import version
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    press = kvpress.KeyDiffPress()
    with torch.no_grad():
        results = [figures_of(torch, press, shape, options.seconds) for shape in SHAPES]
    print(json.dumps({"engine": "kvpress-score", "version": f"kvpress {version('kvpress')}, torch {version('torch')}",
                      "threads": options.threads, "results": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
