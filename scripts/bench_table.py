"""The tables of scripts/bench: minimum / median / maximum of every figure, ratios pair by pair."""

from statistics import median


def spread(values: list[float], digits: int = 2) -> str:
    if not values:
        return "–"
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{min(values):.{digits}f} / **{median(values):.{digits}f}** / {max(values):.{digits}f}"


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def mebibytes(count: float) -> str:
    return f"{count / 2**20:.1f} MiB"


class Runs:
    """The runs of a result, by part, name and length, in the order of pairs."""

    def __init__(self, runs: list[dict]):
        self.runs = runs

    def of(self, part: str, name: str, length: int) -> list[dict]:
        chosen = [run for run in self.runs if (run["part"], run["name"], run["length"]) == (part, name, length)]
        return sorted(chosen, key=lambda run: run["pair"])

    def lengths(self, part: str) -> list[int]:
        return sorted({run["length"] for run in self.runs if run["part"] == part})

    def names(self, part: str, length: int) -> list[str]:
        names = dict.fromkeys(run["name"] for run in self.runs if (run["part"], run["length"]) == (part, length))
        return [name for name in names if name != "llama.cpp"]


def ratios(above: list[float], below: list[float]) -> list[float]:
    """above / below of every pair that is complete."""
    return [a / b for a, b in zip(above, below) if b]


def rates(runs: list[dict]) -> list[float]:
    return [run["tokens_per_second"] for run in runs]


def empty_table(runs: Runs) -> str:
    rows = []
    for part, length, title in (("empty", 512, "prompt of 512 tokens"), ("empty-decode", 0, "answer, empty context")):
        ours, theirs = rates(runs.of(part, "full", length)), rates(runs.of(part, "llama.cpp", length))
        if ours and theirs:
            rows.append([title, spread(ours, 1), spread(theirs, 1), spread(ratios(ours, theirs))])
    header = ["tokens/s", "keynest", "llama.cpp", "keynest ÷ llama.cpp"]
    return "At empty context, full cache:\n\n" + table(header, rows) if rows else ""


def long_rows(runs: Runs, length: int) -> list[list[str]]:
    prompts, answers = runs.of("long", "llama.cpp", length), runs.of("long-decode", "llama.cpp", length)
    first = [run["ttft_seconds"] for run in prompts]
    rows = []
    count = ""
    for name in runs.names("long", length):
        ours = runs.of("long", name, length)
        count = str(ours[0]["prompt_tokens"])
        seconds, speed = [run["ttft_seconds"] for run in ours], [run["decode"]["tokens_per_second"] for run in ours]
        rows.append([count, name, spread(seconds, 1), spread(ratios(first, seconds)), spread(speed, 1),
                     spread(ratios(speed, rates(answers))), spread([100 * run["evict_share"] for run in ours]),
                     mebibytes(max(run["cache"]["peak_bytes"] for run in ours)),
                     mebibytes(max(run["peak_rss_bytes"] for run in ours))])
    if prompts or answers:
        batches = "/".join(sorted({str(run["ubatch"]) for run in prompts}))
        peak = max(run["peak_rss_bytes"] for run in prompts + answers)
        rows.append([count, f"llama.cpp, full cache, -ub {batches}", spread(first, 1), "1", spread(rates(answers), 1), "1",
                     "", "", mebibytes(peak)])
    return rows


def long_table(runs: Runs, result: dict) -> str:
    rows = [row for length in runs.lengths("long") for row in long_rows(runs, length)]
    header = ["prompt tokens", "", "time to first token, s", "times lower", "answer, tokens/s", "times faster", "eviction, %",
              "cache peak", "resident peak"]
    title = f"Long prompts, N = {result['budget']}, B = {result['block']}:\n\n"
    return title + table(header, rows) if rows else ""


def memory_table(runs: Runs) -> str:
    chosen = [runs.of("memory", "keydiff", length)[0] for length in runs.lengths("memory")]
    if not chosen:
        return ""
    rows = []
    for run in chosen:
        rows.append([str(run["prompt_tokens"]), mebibytes(run["cache"]["peak_bytes"]), mebibytes(run["peak_rss_bytes"]),
                     mebibytes(run["cache"]["full_bytes"])])
    first, last = chosen[0], chosen[-1]
    change = [100 * (last["cache"]["peak_bytes"] / first["cache"]["peak_bytes"] - 1),
              100 * (last["peak_rss_bytes"] / first["peak_rss_bytes"] - 1)]
    rows.append(["change", f"{change[0]:+.2f} %", f"{change[1]:+.2f} %", ""])
    header = ["prompt tokens", "cache peak", "resident peak", "a full cache would take"]
    return f"Memory, keydiff, N = 1024, B = {first['block']}:\n\n" + table(header, rows)


def start_line(runs: Runs) -> str:
    seconds = [run["seconds"] for run in runs.of("start", "keynest", 1)]
    return f"From the start of the process to the first token: {spread(seconds)} s." if seconds else ""


def report(result: dict) -> str:
    runs, machine = Runs(result["runs"]), result["machine"]
    target = next((run["simd_target"] for run in result["runs"] if "simd_target" in run), "unknown")
    head = (f"{result['model']}, {result['threads']} threads of {machine['cpu']} ({machine['cores']} cores, "
            f"{machine['memory_gib']} GiB), SIMD target {target}, {machine['date']}.\n{result['keynest']}\n\n"
            "Several runs: minimum / **median** / maximum; ratios are of neighbouring runs.")
    if machine["load"] > 0.5:
        head += f" The machine was busy (load {machine['load']:.1f} at the start)."
    parts = [head, empty_table(runs), long_table(runs, result), memory_table(runs), start_line(runs)]
    return "\n\n".join(part for part in parts if part)
