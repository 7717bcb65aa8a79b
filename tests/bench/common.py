# SPDX-License-Identifier: Apache-2.0
"""Shared by the benchmarks: runs programs, makes a scratch directory with sandboxes, inspects
processes."""

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
PATIENCE = 300  # seconds; no single step takes a tenth of it
MIB = 1 << 20
STEP = 16  # sandboxes removed by one command: kernels stall when many seccomp filters are freed together


class Trouble(Exception):
    """A figure could not be measured."""


def call(*args, **more):
    """Runs a program to its end and returns its standard output; a failure is trouble."""
    more.setdefault("stdin", subprocess.DEVNULL)
    more.setdefault("timeout", PATIENCE)
    args = [str(a) for a in args]
    try:
        r = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **more)
    except subprocess.TimeoutExpired as e:
        raise Trouble(f"{' '.join(args)}: not done after {e.timeout} s: {e.stderr or b''}") from e
    if r.returncode != 0:
        raise Trouble(f"{' '.join(args)}: status {r.returncode}: {r.stderr.decode(errors='replace').strip()[-2000:]}")
    return r.stdout.decode()


def patiently(done, what=None):
    """Retries for five seconds; reports a failure to remove `what`."""
    for _ in range(50):
        if done():
            return True
        time.sleep(0.1)
    if what:
        print(f"cannot remove {what}", file=sys.stderr)
    return False


def memory(pid, field="Pss"):
    """Returns a field of one process's smaps_rollup, in KiB."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise Trouble(f"/proc/{pid}/smaps_rollup has no {field}")


class Place:
    """A build, and a scratch directory with its own images and sandboxes; `stack` removes both."""

    def __init__(self, options, stack, *programs):
        self.options = options
        self.build = Path(options.build).resolve()
        self.hutch = self.program("src/cli/hutch")
        for name in programs:
            self.program(name)
        self.tmp = Path(tempfile.mkdtemp(prefix="hutch-bench-"))
        stack.callback(patiently, lambda: shutil.rmtree(self.tmp, ignore_errors=True) or not self.tmp.exists(), self.tmp)
        self.tmp.chmod(0o755)
        (self.tmp / "state").mkdir()
        # An installed Hutch keeps its sandboxes below /run, which is memory; so use memory here,
        # also for crun and podman.
        self.run_dir = Path(tempfile.mkdtemp(prefix="hutch-bench-", dir="/dev/shm" if os.path.ismount("/dev/shm") else None))
        stack.callback(shutil.rmtree, self.run_dir, ignore_errors=True)
        self.env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": str(self.tmp), "HUTCH_CONFIG_PATH": "",
                    "HUTCH_STATE_DIR": str(self.tmp / "state"), "HUTCH_RUN_DIR": str(self.run_dir),
                    "HUTCH_AUDIT_DIR": str(self.tmp / "audit")}
        stack.callback(self.end_all)

    def overcommit(self):
        """Lets disks grow as they are written: many sandboxes would reserve more than the host has."""
        config = self.tmp / "config"
        config.mkdir(exist_ok=True)
        (config / "host.yaml").write_text("disk_overcommit: true\n")
        self.env["HUTCH_CONFIG_PATH"] = str(config)

    def program(self, name, build=None):
        path = (build or self.build) / name
        if not os.access(path, os.X_OK):
            raise Trouble(f"{path} not found; run ninja -C {build or self.build}")
        return path

    def say(self, text):
        if self.options.verbose:
            print(f"# {text}", file=sys.stderr, flush=True)

    def image(self):
        """Returns the tarball of the test image; makes a missing one."""
        given = Path(os.environ.get("HUTCH_TEST_IMAGE") or self.build / "test-image.tar")
        if not given.exists():
            self.say(f"making {given}")
            call("bash", SOURCE / "tests/integration/make-image.sh", given, timeout=900)
        return given

    def directory(self, sandbox):
        return self.run_dir / "sandboxes" / sandbox

    def sandboxes(self):
        folder = self.run_dir / "sandboxes"
        return sorted(os.listdir(folder)) if folder.exists() else []

    def end(self, *names):
        if names:
            call(self.hutch, "rm", "-f", *names, env=self.env)

    def end_all(self, but=()):
        """Removes the sandboxes, a few at a time."""
        names = [n for n in self.sandboxes() if n not in but]
        for i in range(0, len(names), STEP):
            try:
                self.end(*names[i:i + STEP])
            except Trouble as e:
                print(e, file=sys.stderr)
            time.sleep(0.3)

    def warden(self, sandbox):
        """Returns the pid of the process that holds the sandbox's lock."""
        with open(self.directory(sandbox) / "lock", "rb+") as f:
            asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack("hhqqi4x", fcntl.fcntl(f, fcntl.F_GETLK, asked))
        if kind == fcntl.F_UNLCK:
            raise Trouble(f"sandbox {sandbox} has no warden")
        return pid

    def processes(self, sandbox):
        """Returns {pid: name} of the warden and its children."""
        warden = self.warden(sandbox)
        found = {warden: "warden"}
        for pid in Path(f"/proc/{warden}/task/{warden}/children").read_text().split():
            with contextlib.suppress(FileNotFoundError):  # exited, not yet reaped
                found[int(pid)] = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
        return found
