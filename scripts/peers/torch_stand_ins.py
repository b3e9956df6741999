"""Stand-ins for the GPU libraries that torch's Linux wheel has to find before it loads, on a machine without a GPU.

    torch_stand_ins.py TORCH_FOLDER

Torch's package for Linux is built for NVIDIA GPUs: importing it loads a dozen libraries of CUDA's, of which a run on
the CPU calls next to nothing. This compiles one of a few kB in the place of each, whose functions do nothing and report
success, but for the one that counts devices, which says that there are none. Torch's own files are not touched.
"""

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

RETURNS = {"cudaGetDeviceCount": 100}  # cudaErrorNoDevice; all others 0, success or a null pointer
UNVERSIONED = re.compile(r"^(cuFile|cusparseLt|nccl|nvshmem)[A-Za-z0-9_]+$")


def output_of(*command: object) -> str:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True).stdout


def gpu_libraries(library: Path) -> list[str]:
    """Libraries of the GPU's maker that `library` is linked with."""
    return re.findall(r"\(NEEDED\).*\[(lib(?:cu|nv|nccl)[^\]]*)\]", output_of("readelf", "-d", library))


def version_owners(library: Path) -> dict[str, str]:
    """Which library each symbol version that `library` asks for belongs to."""
    owners, owner = {}, ""
    for line in output_of("readelf", "--wide", "-V", library).splitlines():
        if found := re.search(r"File: (\S+)\s+Cnt:", line):
            owner = found[1]
        elif owner and (found := re.search(r"Name: (\S+)\s+Flags:", line)):
            owners[found[1]] = owner
    return owners


def wanted_symbols(library: Path) -> list[str]:
    """Symbols that others have to define, as NAME@VERSION where one is asked for."""
    lines = output_of("nm", "-D", "--undefined-only", "--with-symbol-versions", library).splitlines()
    return [line.split()[-1] for line in lines]


def collect(folder: Path) -> dict[str, dict[str, set[str]]]:
    """For each GPU library the symbols wanted of it, by version; what has no version is wanted of each of them."""
    wanted = defaultdict(lambda: defaultdict(set))
    for library in sorted(folder.glob("*.so")):
        own = set(gpu_libraries(library))
        for name in own:
            wanted[name]  # even one that nothing is wanted of has to be there
        owners = version_owners(library)
        for symbol in wanted_symbols(library):
            name, _, version = symbol.partition("@")
            if owners.get(version) in own:
                wanted[owners[version]][version].add(name)
            elif UNVERSIONED.match(symbol):
                for library_name in own:
                    wanted[library_name][""].add(name)
    return wanted


def compile_stand_in(target: Path, versions: dict[str, set[str]]) -> None:
    names = sorted(set().union(*versions.values()))
    with tempfile.TemporaryDirectory() as scratch:
        source, script = Path(scratch, "stand_in.c"), Path(scratch, "versions")
        source.write_text("".join(f"long {name}(void) {{ return {RETURNS.get(name, 0)}; }}\n" for name in names) or "\n")
        script.write_text("".join(f"{version} {{ global: {'; '.join(sorted(symbols))}; }};\n"
                                  for version, symbols in versions.items() if version))
        flags = [f"-Wl,--version-script={script}"] if script.stat().st_size else []
        output_of("cc", "-w", "-fno-builtin", "-shared", "-fPIC", f"-Wl,-soname,{target.name}", *flags, source,
                  "-o", target)


def main(torch_folder: Path) -> None:
    folder = torch_folder / "lib"
    if not folder.is_dir():
        sys.exit(f"{torch_folder} is no folder of an installed torch: it has no lib/")
    for name, versions in collect(folder).items():
        (folder / name).unlink(missing_ok=True)
        compile_stand_in(folder / name, versions)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
