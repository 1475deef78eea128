#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the C++ blocks of guide pages into files, as they stand. Usage: extract.py OUT PAGE.md...

A block with a `main` is a program; any other is a function that a driver of test/docs calls. Prints `program NAME` or
`function NAME` a line, where NAME.cpp or NAME.hpp is the file. Files that would not change are left alone."""
import re
import sys
from pathlib import Path


def write(path, text):
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main(arguments):
    out = Path(arguments[0])
    out.mkdir(parents=True, exist_ok=True)
    for page in map(Path, arguments[1:]):
        for number, block in enumerate(re.findall(r"^```cpp\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE), 1):
            name = f"{page.stem.lower().replace('-', '_')}_{number}"
            program = re.search(r"\bint main\(", block) is not None
            write(out / f"{name}.{'cpp' if program else 'hpp'}", ("" if program else "#pragma once\n") + block)
            print("program" if program else "function", name)


if __name__ == "__main__":
    main(sys.argv[1:])
