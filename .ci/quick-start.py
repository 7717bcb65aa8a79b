#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
Runs the quick start of a README as a new user would: quick-start.py README REPOSITORY EMPTY-FOLDER.

The commands are the lines of the first ```sh block under "## Quick start", at most 5; the last must
print 1. The script replaces the address of the repository by the path of this one and, as root,
removes "sudo". Images and state go to the folder, not to the system.
"""
import os
import re
import subprocess
import sys


def main() -> int:
    readme, repository, folder = sys.argv[1:]
    with open(readme, encoding="utf-8") as f:
        section = f.read().split("## Quick start", 1)[1]
    commands = [l for l in re.search(r"```sh\n(.*?)```", section, re.S).group(1).splitlines() if l.strip()]
    if not 1 <= len(commands) <= 5:
        print("the quick start has %d commands, at most 5" % len(commands))
        return 1
    script = "\n".join(commands)
    script = script.replace("ADDRESS-OF-THIS-REPOSITORY", repository)
    if os.geteuid() == 0:
        script = re.sub(r"\bsudo ", "", script)
    print(script)
    run = subprocess.run(["bash", "-eu", "-c", script], cwd=folder, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900,
                         env={**os.environ, "HUTCH_STATE_DIR": f"{folder}/state", "HUTCH_RUN_DIR": f"{folder}/run"})
    print(run.stdout)
    return 0 if run.returncode == 0 and run.stdout.rstrip().splitlines()[-1:] == ["1"] else 1


if __name__ == "__main__":
    sys.exit(main())
