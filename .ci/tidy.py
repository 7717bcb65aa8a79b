#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
tidy.py BUILD CACHE FILE...: runs clang-tidy on the files as the build compiles them, two at a time.

Most of the time goes to clang's static analyzer. So tidy.py skips a file that has passed, until
something changes that the result depends on: clang-tidy, its configuration, the command that
compiles the file, or any byte of the file and of the headers that it includes. Failures are not
cached.
"""

import concurrent.futures
import hashlib
import itertools
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

KEPT_DAYS = 30


def flags(entry):
    """The compiler's options, without its name, the source file and the output files."""
    args, skip = [], False
    for arg in itertools.dropwhile(lambda arg: not arg.startswith("-"), shlex.split(entry["command"])):
        if skip or arg in ("-o", "-MF", "-MQ", "-MT"):
            skip = not skip
        elif arg not in ("-c", "-MD", entry["file"]):
            args.append(arg)
    return args


def included(entry):
    """The file and all headers that it includes."""
    done = subprocess.run(["clang", *flags(entry), "-M", entry["file"]], cwd=entry["directory"], capture_output=True, text=True)
    if done.returncode != 0:
        raise ValueError(f"{entry['file']}: clang cannot tell what it includes:\n{done.stderr}")
    names = done.stdout.replace("\\\n", " ").split(":", 1)[1].split()
    return [Path(entry["directory"], name) for name in names]


def key(entries, common):
    sum_ = hashlib.sha256(common)
    for entry in entries:
        # Without -I, which differs between clones; the headers themselves are in the sum.
        sum_.update(" ".join(arg for arg in flags(entry) if not arg.startswith("-I")).encode())
        for path in included(entry):
            data = path.read_bytes()
            sum_.update(f"\0{path.name} {len(data)}\0".encode() + data)
    return sum_.hexdigest()


def look_at(path, entries, build, common, cache):
    """Check a file. False if it has passed before, unchanged."""
    mark = cache / key(entries, common)
    if mark.exists():
        mark.touch()
        return False
    done = subprocess.run(["clang-tidy", "-p", build, "--quiet", path], capture_output=True, text=True)
    if done.returncode != 0:
        raise ValueError(f"{path}:\n{done.stdout}{done.stderr}")
    mark.touch()
    return True


def forget(cache):
    """Remove results that no run has used for KEPT_DAYS."""
    for mark in cache.iterdir():
        if time.time() - mark.stat().st_mtime > KEPT_DAYS * 86400:
            mark.unlink(missing_ok=True)


def main():
    build, cache, wanted = sys.argv[1], Path(sys.argv[2]), {os.path.abspath(name) for name in sys.argv[3:]}
    cache.mkdir(parents=True, exist_ok=True)
    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    common = version + Path(".clang-tidy").read_bytes()
    entries = {path: [] for path in wanted}  # a file may be compiled more than once
    for entry in json.loads(Path(build, "compile_commands.json").read_text()):
        path = os.path.normpath(os.path.join(entry["directory"], entry["file"]))
        if path in wanted:
            entries[path].append(entry)
    failed = [f"{path}: {build} does not compile it" for path, ways in entries.items() if not ways]
    looked = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(look_at, path, ways, build, common, cache) for path, ways in sorted(entries.items()) if ways]:
            try:
                looked += future.result()
            except ValueError as e:
                failed.append(str(e))
    forget(cache)
    print(f"{len(entries)} files, {looked} looked at, the others have not changed since they passed")
    print("\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
