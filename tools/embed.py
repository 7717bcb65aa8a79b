#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Turns text files into C.

  embed.py OUTPUT ROOT FILE...      a table of the files, sorted by path relative to ROOT
  embed.py --one NAME OUTPUT FILE   one file as a string

The string is NAME_json for a JSON file, otherwise NAME_text, and its length NAME_json_n or
NAME_text_n; NAME.h declares both. '-' in NAME becomes '_' in the symbols.
"""
import os
import sys


def literal(line: bytes) -> str:
    out = []
    for byte in line:
        char = chr(byte)
        if char in '"\\':
            out.append("\\" + char)
        elif char == "\n":
            out.append("\\n")
        elif 0x20 <= byte < 0x7F and char != "?":  # "?": no trigraphs
            out.append(char)
        else:
            out.append("\\%03o" % byte)
    return '"%s"' % "".join(out)


def one(name: str, output: str, file: str) -> None:
    with open(file, "rb") as source:
        text = source.read()
    with open(output, "w", encoding="ascii") as out:
        symbol = name.replace("-", "_") + ("_json" if file.endswith(".json") else "_text")
        out.write('/* Made by tools/embed.py. */\n#include "%s.h"\n\nconst char %s[] =\n' % (name, symbol))
        out.writelines("\t%s\n" % literal(line) for line in text.splitlines(keepends=True))
        out.write("\t;\nconst size_t %s_n = %d;\n" % (symbol, len(text)))


def main() -> None:
    if sys.argv[1] == "--one":
        one(*sys.argv[2:])
        return
    output, root, files = sys.argv[1], sys.argv[2], sys.argv[3:]
    rows = sorted((os.path.relpath(f, root).encode(), f) for f in files)
    with open(output, "w", encoding="ascii") as out:
        out.write('/* Made by tools/embed.py. */\n#include "builtin.h"\n\n')
        out.write("const struct builtin_file builtin_files[] = {\n")
        for path, name in rows:
            with open(name, "rb") as source:
                text = source.read()
            out.write("\t{ %s,\n" % literal(path))
            for line in text.splitlines(keepends=True) or [b""]:
                out.write("\t  %s\n" % literal(line))
            out.write("\t  , %d },\n" % len(text))
        out.write("};\n\nconst size_t builtin_files_n = %d;\n" % len(rows))


if __name__ == "__main__":
    main()
