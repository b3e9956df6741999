"""Takes the code blocks out of Markdown files, so that they can be compiled and run as tests.

    extract.py OUTPUT_FOLDER FILE.md...

Blocks marked cpp, c and sh count. A cpp or c block without a main becomes the body of one, its includes put in front. A
block right below the comment <!-- snippet: skip REASON --> is left out. Writes OUTPUT_FOLDER/NAME.{cc,c,sh} and
OUTPUT_FOLDER/snippets.txt, one file name a line; files that would not change are left alone.
"""

import re
import sys
from pathlib import Path

FENCE = re.compile(r"(?P<mark><!--\s*snippet:\s*skip[^>]*-->\s*\n)?^```(?P<language>cpp|c|sh)\n(?P<body>.*?)^```$",
                   re.MULTILINE | re.DOTALL)
SUFFIX = {"cpp": ".cc", "c": ".c", "sh": ".sh"}


def as_program(body: str) -> str:
    """A whole program: the block itself, or a main around its statements."""
    if re.search(r"\bint main\(", body):
        return body
    lines = body.splitlines()
    includes = [line for line in lines if line.startswith("#include")]
    statements = ["  " + line if line else line for line in lines if not line.startswith("#include")]
    return "\n".join([*includes, "", "int main(void) {", *statements, "  return 0;", "}", ""])


def source(language: str, origin: str, body: str) -> str:
    if language == "sh":
        return f"# {origin}\nset -euo pipefail\n{body}"
    return f"// {origin}\n{as_program(body)}"


def snippets(document: Path):
    """Yields (file name, content) of every block of one document."""
    text = document.read_text(encoding="utf-8")
    for number, block in enumerate(FENCE.finditer(text), start=1):
        if block["mark"]:
            continue
        language = block["language"]
        line = text.count("\n", 0, block.start("language")) + 1
        name = f"{document.stem.lower()}_{number}_{language}{SUFFIX[language]}"
        yield name, source(language, f"{document.name}, line {line}", block["body"])


def main(output: Path, documents: list[Path]) -> None:
    output.mkdir(parents=True, exist_ok=True)
    written = {name: content for document in documents for name, content in snippets(document)}
    for name, content in written.items():
        target = output / name
        if not target.exists() or target.read_text(encoding="utf-8") != content:
            target.write_text(content, encoding="utf-8")
    (output / "snippets.txt").write_text("".join(name + "\n" for name in written), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
