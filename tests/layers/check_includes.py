"""Checks the layer rule of docs/architecture.md: check_includes.py SOURCE_FOLDER

A file under src/ includes its own layer and the ones below it; ggml and libllama are used by their public headers, and by
the layers that may know them.
"""

import re
import sys
from pathlib import Path

MAY_INCLUDE = {
    "kernels": set(),
    "cache": {"kernels"},
    "policy": {"kernels"},
    "model": {"kernels"},
    "engine": {"kernels", "cache", "policy", "model"},
    "eval": {"engine"},
    "bench": {"kernels", "policy", "engine"},
    "server": {"engine"},
    "cli": {"engine", "eval", "bench", "server"},
}
KNOW_THE_ENGINE = {"model", "engine", "bench"}
ENGINE_HEADERS = {"ggml.h", "ggml-cpu.h", "ggml-backend.h", "ggml-alloc.h", "gguf.h", "llama.h"}
INCLUDE = re.compile(r'^\s*#include ["<]([^">]+)[">]', re.MULTILINE)


def problem(layer: str, included: str) -> str | None:
    """What is wrong with a file of `layer` including `included`, if anything."""
    if re.match(r"(ggml|gguf|llama)[^/]*\.h$", included):
        if included not in ENGINE_HEADERS:
            return "is no public header of ggml or libllama"
        return None if layer in KNOW_THE_ENGINE else "is the engine's, which this layer does not know"
    other = included.split("/")[0]
    if "/" in included and other in MAY_INCLUDE and other != layer and other not in MAY_INCLUDE[layer]:
        return f"is in {other}/, which lies above or beside {layer}/"
    return None


def main(root: Path) -> int:
    files = [path for path in sorted(root.glob("src/*/**/*")) if path.suffix in {".h", ".cc"}]
    found = 0
    for path in files:
        layer = path.relative_to(root / "src").parts[0]
        if layer not in MAY_INCLUDE:
            print(f"{path}: src/{layer} is no layer that this check knows")
            found += 1
            continue
        for included in INCLUDE.findall(path.read_text(encoding="utf-8")):
            if why := problem(layer, included):
                print(f"{path}: {included} {why}")
                found += 1
    print(f"{len(files)} files, {found} wrong includes")
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
