"""Writes the one file of a wheel that matches a pattern to standard output: wheel_member.py WHEEL PATTERN"""

import fnmatch
import shutil
import sys
import zipfile


def main(wheel: str, pattern: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if fnmatch.fnmatch(name, pattern)]
        if len(names) != 1:
            sys.exit(f"{wheel}: {len(names)} files match {pattern}, expected one")
        with archive.open(names[0]) as member:
            shutil.copyfileobj(member, sys.stdout.buffer, 1 << 20)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
