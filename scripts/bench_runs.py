"""Runs of the programs that scripts/bench compares, each as a dictionary of figures."""

import json
import os
import re
import select
import subprocess
import tempfile
import time
from pathlib import Path

LICENCES = Path("/usr/share/common-licenses")


class BenchError(Exception):
    """Something the user has to put right."""


def long_text() -> str:
    """English text that every Debian machine has."""
    files = sorted(path for path in LICENCES.glob("*") if path.is_file() and not path.is_symlink())
    if not files:
        raise BenchError(f"{LICENCES} holds no texts; give one with --text FILE")
    return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in files)


def cut(text: str, characters: int) -> str:
    """The first characters of the text, repeated where it is too short."""
    return (text * (characters // len(text) + 1))[:characters]


class Keynest:
    def __init__(self, program: Path, model: Path, threads: int, scratch: Path):
        self.program, self.model, self.threads = program, model, threads
        self.text_file = scratch / "prompt.txt"

    def version(self) -> str:
        return " ".join(checked([self.program, "--version"]).split())

    def run(self, text: str, policy: str, budget: str, block: int, generate: int) -> dict:
        """The figures of --stats, and a few worked out from them."""
        self.text_file.write_text(text, encoding="utf-8")
        with tempfile.NamedTemporaryFile(suffix=".json", dir=self.text_file.parent) as stats:
            checked([self.program, "run", "-m", self.model, "-f", self.text_file, "--no-chat", "--policy", policy,
                     "--budget", budget, "--block", str(block), "-n", str(generate), "--ignore-eos", "--threads",
                     str(self.threads), "--stats", stats.name, "-q"])
            figures = json.loads(Path(stats.name).read_text(encoding="utf-8"))
        figures.pop("text", None)
        figures["evict_share"] = figures["evict_seconds"] / max(figures["ttft_seconds"], 1e-9)
        return figures

    def seconds_to_first_token(self) -> float:
        """From the start of the process to the first byte of the answer to a prompt of one token."""
        command = [self.program, "run", "-m", self.model, "-p", "The", "--no-chat", "-n", "1", "--ignore-eos",
                   "--threads", self.threads, "-q"]
        started = time.monotonic()
        with subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE) as process:
            select.select([process.stdout], [], [])
            seconds = time.monotonic() - started
            process.stdout.read()
        if process.returncode != 0:
            raise BenchError(f"{self.program} ended with {process.returncode}")
        return seconds


class LlamaBench:
    def __init__(self, program: Path, model: Path, threads: int):
        self.program, self.model, self.threads = program, model, threads

    def run(self, *options: object) -> tuple[list[dict], int]:
        """The tests that llama-bench ran, and the peak of its resident memory in bytes."""
        command = [self.program, "-m", self.model, "-t", self.threads, "-fa", 1, "-r", 1, "-o", "json", *options]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen([str(part) for part in command], stdout=out, stderr=err)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            err.seek(0)
            if process.returncode != 0:
                raise BenchError(f"{' '.join(map(str, command))} failed:\n{err.read().decode(errors='replace')}")
            return json.loads(out.read()), usage.ru_maxrss * 1024

    def prompt(self, tokens: int, batches: list[int]) -> dict:
        """A prompt with the full cache; of several batch sizes (-ub) the fastest. No warm-up, since keynest has none."""
        tests, peak = self.run("-p", tokens, "-n", 0, "-ub", ",".join(map(str, batches)), "--no-warmup")
        best = min(tests, key=lambda test: test["avg_ns"])
        return {"ttft_seconds": best["avg_ns"] / 1e9, "tokens_per_second": best["avg_ts"],
                "ubatch": best["n_ubatch"], "peak_rss_bytes": peak}

    def decode(self, depth: int, generate: int) -> dict:
        """Tokens generated after `depth` tokens of context."""
        tests, peak = self.run("-p", 0, "-n", generate, "-d", depth)
        return {"tokens_per_second": tests[0]["avg_ts"], "peak_rss_bytes": peak}


def checked(command: list) -> str:
    """Standard output of a command that has to succeed."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise BenchError(f"{' '.join(map(str, command))} failed:\n{done.stderr}")
    return done.stdout


def build_llama_bench(root: Path, source: str | None) -> Path:
    """llama-bench in build/peers, built when it is not there."""
    folder = root / "build" / "peers"
    program = folder / "bin" / "llama-bench"
    if not program.exists():
        print(f"Building llama-bench in {folder}, once")
        given = [f"-DKEYNEST_LLAMA_CPP_DIR={source}"] if source else []
        checked(["cmake", "-S", root / "bench" / "peers", "-B", folder, "-G", "Ninja", *given])
        checked(["cmake", "--build", folder, "--target", "llama-bench", "--parallel", os.cpu_count() or 2])
    return program


def machine() -> dict:
    """What a reader has to know about the machine."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    name = re.search(r"^model name\s*:\s*(.*)$", info, re.MULTILINE)
    memory = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text(encoding="utf-8"))
    return {"cpu": name.group(1) if name else "unknown", "cores": os.cpu_count(),
            "memory_gib": round(int(memory.group(1)) / 2**20, 1) if memory else 0, "load": os.getloadavg()[0],
            "date": time.strftime("%Y-%m-%d")}
