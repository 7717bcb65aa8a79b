#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Check that the directories of src/ depend on each other as their build files declare.

  tools/rooms.py check            includes, declared dependencies, cycles, lengths of functions and headers
  tools/rooms.py circles BUILD    pairs of files of one directory that call each other; at most 2 may exist
  tools/rooms.py table            the layout table of docs/ARCHITECTURE.md
  tools/rooms.py table --write    put it there

Each directory of src/ is a room: one or more libraries or programs, declared in its meson.build,
whose first comment describes it ("# room: text"). A file includes a header as "room/header.h", and
only headers of its own room and of rooms that its meson.build names as dependencies.
"""
import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
LAYOUT = ROOT / "docs" / "ARCHITECTURE.md"
BEGIN, END = "<!-- rooms: made by tools/rooms.py -->\n", "<!-- rooms end -->\n"
CIRCLES_MAX = 2
HEADER_MAX = 300
FUNCTION_MAX = 60


def order():
    """The rooms, lowest first, as src/meson.build lists them."""
    return re.findall(r"^subdir\('([^']+)'\)", (SRC / "meson.build").read_text(), re.M)


class Build:
    """Rooms, their libraries and dependencies, read from the meson.build files."""

    def __init__(self):
        self.rooms = order()
        self.text = {room: (SRC / room / "meson.build").read_text() for room in self.rooms}
        self.owner = {}
        for room, text in self.text.items():
            for name in re.findall(r"^(\w+) = (?:declare_dependency|static_library)\(", text, re.M):
                self.owner[name] = room
        self.listed = {room: self.owners(room, r"(?:dependencies:|_needs =) *\[(.*?)\]") for room in self.rooms}
        # Some programs take single objects of a library.
        self.needs = {room: self.listed[room] | self.owners(room, r"(\w+)\.extract_") for room in self.rooms}

    def owners(self, room, pattern):
        names = re.findall(r"\w+", " ".join(re.findall(pattern, self.text[room], re.S)))
        return {self.owner[name] for name in names if name in self.owner} - {room}

    def description(self, room):
        lines = []
        for line in self.text[room].splitlines()[1:]:
            if not line.startswith("# "):
                break
            lines.append(line[2:])
        text = " ".join(lines)
        if not text.startswith(room + ": "):
            raise SystemExit("src/%s/meson.build: the first comment must be '# %s: what it is'" % (room, room))
        return text[len(room) + 2:]


def includes(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        found = re.match(r'#include "([^"]+)"', line)
        if found:
            yield number, found.group(1)


def check_includes(build):
    """Wrong includes, and declared dependencies that are missing, unused or not below."""
    problems, used = [], collections.defaultdict(set)
    for path in sorted(SRC.glob("*/*.[ch]")) + sorted(ROOT.glob("tests/*/*.[ch]")):
        room = path.parent.name if path.parent.parent == SRC else None
        for number, header in includes(path):
            at = "%s:%d" % (path.relative_to(ROOT), number)
            if room is None and (path.parent / header).exists():
                continue
            if header.count("/") != 1 or not (SRC / header).exists():
                problems.append('%s: "%s": write "room/header.h", with a header of src/' % (at, header))
                continue
            target = header.split("/")[0]
            if room is None or target == room:
                continue
            used[room].add(target)
            if target not in build.needs[room]:
                problems.append("%s: src/%s/meson.build does not declare %s" % (at, room, target))
    for room in build.rooms:
        for target in sorted(build.listed[room] - used[room]):
            problems.append("src/%s/meson.build: declares %s and includes nothing of it" % (room, target))
        for target in sorted(build.needs[room]):
            if build.rooms.index(target) >= build.rooms.index(room):
                problems.append("src/%s/meson.build: %s is not below %s" % (room, target, room))
    return problems


def check_sizes():
    """Functions and headers that are too long."""
    problems = []
    for path in sorted(SRC.glob("*/*.[ch]")):
        lines = path.read_text().splitlines()
        name = path.relative_to(ROOT)
        if path.suffix == ".h" and len(lines) > HEADER_MAX:
            problems.append("%s: %d lines; at most %d" % (name, len(lines), HEADER_MAX))
        begin = None
        for number, line in enumerate(lines, 1):
            if line == "{":
                begin = number
            elif line == "}" and begin:
                if number - begin > FUNCTION_MAX:
                    problems.append("%s:%d: a function of %d lines; at most %d" % (name, begin, number - begin, FUNCTION_MAX))
                begin = None
    return problems


def components(graph):
    """Strongly connected components of more than one node (Tarjan)."""
    index, low, stack, on, found, count = {}, {}, [], set(), [], [0]

    def visit(node):
        index[node] = low[node] = count[0]
        count[0] += 1
        stack.append(node)
        on.add(node)
        for target in graph.get(node, ()):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in on:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            part = []
            while True:
                last = stack.pop()
                on.discard(last)
                part.append(last)
                if last == node:
                    break
            if len(part) > 1:
                found.append(sorted(part))

    sys.setrecursionlimit(10000)
    for node in list(graph):
        if node not in index:
            visit(node)
    return found


def header_cycles():
    """Headers that include each other."""
    return components({"%s/%s" % (path.parent.name, path.name): {header for _, header in includes(path)}
                       for path in SRC.glob("*/*.h")})


def symbols(path):
    defined, used = set(), set()
    for line in subprocess.run(["nm", "-P", path], check=True, capture_output=True, text=True).stdout.splitlines():
        name, kind = line.split()[:2]
        if kind == "U":
            used.add(name)
        elif kind.isupper():
            defined.add(name)
    return defined, used


def circles(build):
    """Pairs of files of one room that use symbols of each other."""
    found = []
    for room in order():
        objects = {}
        for path in sorted(pathlib.Path(build, "src", room).glob("*.p/*.o")):
            objects.setdefault(path.name[:-2], symbols(path))
        names = sorted(objects)
        for i, a in enumerate(names):
            for b in names[i + 1:]:
                if objects[a][1] & objects[b][0] and objects[b][1] & objects[a][0]:
                    found.append((room, a, b, sorted(objects[a][1] & objects[b][0]),
                                  sorted(objects[b][1] & objects[a][0])))
    return found


def table(build):
    lines = ["| directory | what it is | stands on |", "|---|---|---|"]
    for room in reversed(build.rooms):
        needs = sorted(build.needs[room], key=build.rooms.index, reverse=True)
        lines.append("| `src/%s` | %s | %s |" % (room, build.description(room), ", ".join(needs) or "libc"))
    return "\n".join(lines) + "\n"


def with_table(text, made):
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:begin] + made + text[end:]


def check(build):
    problems = check_includes(build) + check_sizes()
    for part in components(build.needs):
        problems.append("cycle of directories: %s" % ", ".join(part))
    problems += ["cycle of headers: %s" % ", ".join(part) for part in header_cycles()]
    text = LAYOUT.read_text()
    if with_table(text, table(build)) != text:
        problems.append("docs/ARCHITECTURE.md: the layout table is out of date: run tools/rooms.py table --write")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check")
    commands.add_parser("circles").add_argument("build")
    commands.add_parser("table").add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.command == "circles":
        found = circles(options.build)
        for room, a, b, down, up in found:
            print("src/%s: %s uses %s of %s, which uses %s" % (room, a, ", ".join(down), b, ", ".join(up)))
        return len(found) > CIRCLES_MAX
    build = Build()
    if options.command == "table":
        if options.write:
            LAYOUT.write_text(with_table(LAYOUT.read_text(), table(build)))
        else:
            print(table(build), end="")
        return 0
    problems = check(build)
    for problem in problems:
        print(problem, file=sys.stderr)
    return len(problems) > 0


if __name__ == "__main__":
    sys.exit(main())
