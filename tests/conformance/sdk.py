# SPDX-License-Identifier: Apache-2.0
"""The E2B SDK from npm, in the requested versions, and the client (main.mjs) that runs with it."""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
OLD = ("2.30.5", "2.46.1", "2.50.0")
EXTRA = {"interpreter": "@e2b/code-interpreter", "desktop": "@e2b/desktop"}
LINE = re.compile(r"(?P<ok>ok|not ok) \d+ - (?P<section>[a-z]+): (?P<name>.*?)(?: # SKIP (?P<skip>.*))?$")
NPM_PATIENCE = 600
DIGEST = ".digest"


def cache():
    """Installed packages are kept for the next run."""
    path = Path(os.environ.get("CONF_CACHE") or Path.home() / ".cache/hutch-ci/npm")
    path.mkdir(parents=True, exist_ok=True)
    return path


def npm(*args, cwd):
    r = subprocess.run(["npm", *args], cwd=cwd, timeout=NPM_PATIENCE, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if r.returncode != 0:
        raise RuntimeError(f"npm {' '.join(args)}: {r.stderr}")
    return r.stdout


def latest():
    return npm("view", "e2b", "version", cwd=cache()).strip()


def digest(directory):
    """Returns the digest of all files below a directory, and of their names."""
    total = hashlib.sha256()
    for path in sorted(p for p in directory.rglob("*") if p.is_file() and p.name != DIGEST):
        total.update(f"{path.relative_to(directory)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def sound(directory):
    """Checks that it exists and is as it was installed."""
    return (directory / DIGEST).is_file() and (directory / DIGEST).read_text() == digest(directory)


def modules(name, *packages):
    """Returns the node_modules directory with these packages, kept under this name. Installs it
    if missing; concurrent callers install it once."""
    target = cache() / name
    with open(cache() / f".{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not sound(target):
            shutil.rmtree(target, ignore_errors=True)
            with tempfile.TemporaryDirectory(dir=cache()) as scratch:
                made = Path(scratch) / "made"
                made.mkdir()
                (made / "package.json").write_text('{"private": true}\n')
                npm("install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save", *packages, cwd=made)
                (made / DIGEST).write_text(digest(made))
                made.rename(target)
    return target / "node_modules"


def installed(version, extra=()):
    """Returns the node_modules directory with this version of the SDK."""
    found = modules("-".join([version, *sorted(extra)]), f"e2b@{version}", *(EXTRA[x] for x in extra))
    there = json.loads((found / "e2b/package.json").read_text())["version"]
    if there != version:
        raise RuntimeError(f"{found} has e2b {there}")
    return found


@contextlib.contextmanager
def scratch(modules):
    """Copies the client beside a node_modules directory, where its imports are resolved."""
    with tempfile.TemporaryDirectory(prefix="hutch-conformance-") as directory:
        for path in HERE.glob("*.mjs"):
            shutil.copy(path, directory)
        (Path(directory) / "node_modules").symlink_to(modules)
        yield Path(directory)


def environment(server, **more):
    """Returns the variables that a user of the SDK sets, and none of ours."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("E2B_", "HUTCH"))}
    env.update(E2B_API_URL=server.url, E2B_SANDBOX_URL=server.url, E2B_API_KEY=server.key)
    env.update({k: str(v) for k, v in more.items() if v is not None})
    return env


class Result:
    """A line of TAP."""

    def __init__(self, match):
        self.section, self.name, self.skip = match["section"], match["name"], match["skip"]
        self.outcome = "failed" if match["ok"] == "not ok" else "skipped" if self.skip is not None else "passed"
        self.details = []


def run(version, server, sections=None, skip=(), timeout=1800, script="main.mjs", verbose=False, **more):
    """Runs the client and returns the result of each test. A client that does not print its last
    line has failed."""
    extra = [s for s in EXTRA if (not sections or s in sections) and s not in skip]
    env = environment(server, CONF_ONLY=",".join(sections) if sections else None, CONF_SKIP=",".join(skip) or None,
                      CONF_VERBOSE=1 if verbose else None, **more)
    with scratch(installed(version, extra)) as directory:
        r = subprocess.run(["node", script], cwd=directory, env=env, timeout=timeout, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    results, comments = [], []
    for line in r.stdout.splitlines():
        if match := LINE.match(line):
            results.append(Result(match))
        elif line.startswith("#   ") and results:
            results[-1].details.append(line[4:])
        else:
            comments.append(line)
    counts = [sum(x.outcome == outcome for x in results) for outcome in ("passed", "failed", "skipped")]
    if not comments or comments[-1] != "{} passed, {} failed, {} skipped".format(*counts):
        raise RuntimeError(f"the client ended with {r.returncode} and without its counts: " + "\n".join(comments[-20:]))
    return results
