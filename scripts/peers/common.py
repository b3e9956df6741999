"""What the Python peers share: the command line, the order of a run, its timing, and the one line of JSON it prints."""

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Callable, Protocol

NOT_INSTALLED = 3
WARM_UP_TOKENS, WARM_UP_ANSWER = 64, 4


class PeerError(Exception):
    """Something the user has to put right."""


class Peer(Protocol):
    """An engine with a model loaded. Token ids are plain ints."""

    name: str
    version: str

    def encode(self, text: str, most: int) -> list[int]:
        """At least the first `most` tokens of the text, or all there are; no special tokens."""

    def first(self, prompt: list[int], answer: int) -> None:
        """Starts anew: computes the prompt and the first token of an answer of `answer` tokens, greedily."""

    def next(self) -> None:
        """Computes one token more."""

    def finish(self) -> None:
        """Ends the request, after the answer's last token."""

    def cache_bytes(self) -> int | None:
        """Memory of keys and values now, if the engine says."""

    def note(self) -> str:
        """What a reader has to know to compare."""


def positive(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def arguments(name: str, about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"scripts/peers/{name}", description=about)
    parser.add_argument("--model", required=True, type=Path, metavar="FILE.gguf", help="weights")
    parser.add_argument("--prompt", required=True, type=Path, metavar="TEXTFILE", help="text of the prompt")
    parser.add_argument("--tokens", required=True, type=positive, metavar="P", help="the text is cut to so many tokens")
    parser.add_argument("--answer", default=64, type=positive, help="tokens to generate, at least 2 (default 64)")
    parser.add_argument("--threads", required=True, type=positive, metavar="T")
    parser.add_argument("--budget", type=positive, metavar="N", help="cache entries to keep, where the peer evicts")
    return parser


def read_inputs(options: argparse.Namespace) -> str:
    if options.answer < 2:
        raise PeerError("--answer 1 leaves nothing to time after the first token; give 2 or more")
    if not options.model.is_file():
        raise PeerError(f"--model {options.model}: no such file; scripts/get-model fetches models")
    try:
        return options.prompt.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise PeerError(f"--prompt {options.prompt}: {error.strerror}") from error


def memory_bytes(field: str) -> int:
    """VmHWM (peak of resident memory) or VmRSS of this process."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.search(rf"^{field}:\s*(\d+) kB", status, re.MULTILINE)[1]) * 1024


def forget_peak() -> None:
    """Lets VmHWM start again at what is resident now, so that loading does not count."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError as error:
        print(f"the peak of memory includes loading the model: {error}", file=sys.stderr)


def answer_prompt(peer: Peer, prompt: list[int], answer: int) -> tuple[float, float]:
    """Seconds to the first token, and seconds of the answer - 1 tokens after it."""
    started = time.perf_counter()
    peer.first(prompt, answer)
    first = time.perf_counter()
    for _ in range(answer - 1):
        peer.next()
    return first - started, time.perf_counter() - first


def cut(peer: Peer, text: str, tokens: int) -> list[int]:
    """The first tokens of the text."""
    ids = peer.encode(text, tokens)
    if len(ids) < tokens:
        raise PeerError(f"--tokens {tokens}: the prompt's text has only {len(ids)}; give a longer text")
    return ids[:tokens]


def measure(peer: Peer, prompt: list[int], answer: int) -> dict:
    """The figures of one run, after a short one that compiles and allocates what the engine keeps."""
    answer_prompt(peer, prompt[:WARM_UP_TOKENS], WARM_UP_ANSWER)
    peer.finish()
    load_peak = memory_bytes("VmHWM")
    forget_peak()
    first, rest = answer_prompt(peer, prompt, answer)
    figures = {"engine": peer.name, "version": peer.version, "prompt_tokens": len(prompt), "ttft_seconds": first,
               "decode_tokens_per_second": (answer - 1) / rest, "peak_resident_bytes": memory_bytes("VmHWM"),
               "cache_bytes": peer.cache_bytes(),
               "note": f"{peer.note()}; {load_peak / 2**20:.0f} MiB at most while loading"}
    peer.finish()
    return figures


def only_json_on_stdout() -> int:
    """Sends what libraries print to standard error. Returns the descriptor of the real standard output."""
    real = os.dup(1)
    os.dup2(2, 1)
    return real


def run(parser: argparse.ArgumentParser, load: Callable[[argparse.Namespace], Peer], package: str) -> int:
    """A peer's whole program; `package` is its name in scripts/get-peers. Returns the exit code."""
    options = parser.parse_args()
    out = only_json_on_stdout()
    try:
        text = read_inputs(options)
        peer = load(options)
        figures = measure(peer, cut(peer, text, options.tokens), options.answer)
    except ImportError as error:
        print(f"{parser.prog}: {error}; run scripts/get-peers {package}", file=sys.stderr)
        return NOT_INSTALLED
    except PeerError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    os.write(out, (json.dumps(figures) + "\n").encode())
    return 0
