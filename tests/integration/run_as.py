#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
run_as.py root|user [DIRECTORY...] [TEST...]: run the sandbox tests (test_sandbox_*.py) as root, or
as an ordinary user. Started by root, `user` creates a temporary user with subordinate ids and its
own directories, and removes it afterwards. Started by an ordinary user, `user` runs the tests as
that user. With directories, run the tests in those.

The programs and tests are copied to a public directory first: another user cannot reach a build in
a private directory (CI's mktemp -d, a home), and the tests must not change its mode. The copies
also identify our processes: each runs one of these files.

HUTCH_TEST_LEVEL=microvm makes every sandbox a VM; the kernel's package is in HUTCH_TEST_KERNEL_DIR.
HUTCH_TEST_ENGINE names the container engine. HUTCH_TEST_REPEAT=N runs each test N times.

HUTCH, HUTCH_KEEPER, HUTCH_GUEST, HUTCH_RAM_SO and HUTCHD are the programs, PROBE, RAIDER and BOMB
those of the attacks. HUTCH_TEST_IMAGE is the tarball of make-image.sh, made if it is missing.
"""

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from waiting import eventually

HERE = Path(__file__).resolve().parent
ROOT = os.geteuid() == 0
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # others cannot reach root's home
PROGRAMS = {"HUTCH": "src/cli/hutch", "HUTCH_KEEPER": "src/warden/hutch-keeper", "HUTCH_GUEST": "src/guest/hutch-guest",
            "HUTCHD": "src/daemon/hutchd", "HUTCH_TAP": "src/tap/hutch-tap", "HUTCH_TOKEN": "src/token/hutch-token", "HUTCH_FILTER": "src/filter/hutch-filter", "HUTCH_RAM_SO": "src/ram/hutch-ram.so", "PROBE": "probe", "RAIDER": "raider", "BOMB": "bomb", "CELL": "cell",
            "JAIL": "jail", "WILD": "wild", "TAKEN": "taken"}


def image():
    path = os.environ.get("HUTCH_TEST_IMAGE") or "test-image.tar"
    subprocess.run(["bash", HERE / "make-image.sh", path], check=True, stdout=sys.stderr)
    return path


@contextlib.contextmanager
def account():
    """Creates a user, with subordinate ids from useradd."""
    name = f"hutch-{os.getpid()}"
    subprocess.run(["useradd", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/bin/sh", name], check=True)
    try:
        for kind in ("uid", "gid"):
            if f"{name}:" not in Path(f"/etc/sub{kind}").read_text():
                raise RuntimeError(f"useradd gave {name} no subordinate {kind}s: see /etc/login.defs")
        yield pwd.getpwnam(name)
    finally:
        subprocess.run(["userdel", name], check=True)


@contextlib.contextmanager
def directory(parent, owner, mode):
    path = Path(tempfile.mkdtemp(prefix="hutch-suite-", dir=parent))
    try:
        if owner:
            os.chown(path, owner.pw_uid, owner.pw_gid)
        os.chmod(path, mode)
        yield path
    finally:
        shutil.rmtree(path)


def copy(public, where):
    """Copies the programs, at paths where they find each other, and the tests."""
    env = {}
    for name, place in PROGRAMS.items():
        if name not in os.environ:
            continue
        path = public / place
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.environ[name], path)
        path.chmod(0o755)
        env[name] = str(path)
    for tests in {HERE, *where}:
        shutil.copytree(tests, public / "tests" / tests.name, ignore=shutil.ignore_patterns("__pycache__"))
    (public / "docs").mkdir()
    for page in ("DEBUGGING.md", "LLM.md", "SECRETS.md"):  # tests run their sessions
        shutil.copy(HERE.parents[1] / "docs" / page, public / "docs")
    for path in [public, *public.rglob("*")]:
        path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
    return env


def processes(user):
    """The processes of the temporary user; no other user has this uid."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            status = (entry / "status").read_text()
            if f"\nUid:\t{user.pw_uid}\t" in status and "\nState:\tZ" not in status:
                yield int(entry.name), status.split()[1]


def end(user):
    """A leftover process, which is a bug, would prevent the removal of the user."""
    with contextlib.suppress(AssertionError):
        eventually(lambda: not list(processes(user)), "the end of the user's processes", 120)
    left = list(processes(user))
    for pid, _ in left:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    eventually(lambda: not list(processes(user)), "the end of those that were killed")
    return left


def make_machines(env, work, who):
    """Makes a kernel, and sets the level for all child processes."""
    packages = os.environ.get("HUTCH_TEST_KERNEL_DIR")
    subprocess.run([env["HUTCH"], "image", "kernel", *(["--from", packages] if packages else [])], env=env, check=True, cwd=work,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **who)
    env["HUTCH_LEVEL"] = "microvm"


def own_mounts():
    """Give this suite its own mount namespace, so that the ledger does not see mounts of other
    processes."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0 or libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None) != 0:
        raise OSError(ctypes.get_errno(), "cannot make a mount namespace")


def prepare(where, tarball, user, stack):
    """Prepares programs, tests, directories and the image. Returns the environment, the working
    directory and user, and the place of the copies."""
    if ROOT:
        own_mounts()
    public = stack.enter_context(directory("/tmp", None, 0o755))
    env = {k: v for k, v in os.environ.items() if k in ("HUTCH_BAR", "HUTCH_TEST_KERNEL", "HUTCH_TEST_CREATES", "HUTCH_TEST_ENGINE", "HUTCH_TEST_LEVEL", "HUTCH_TEST_REPEAT", "HUTCH_WORLD_SERVICES") or not k.startswith(("HUTCH", "XDG_", "SUDO_"))}
    env.update(copy(public, where), PYTHONDONTWRITEBYTECODE="1", PATH=PATH, HUTCH_ENGINE=env.get("HUTCH_TEST_ENGINE", ""))
    # Beside the system's own run directory, so that a mount over /run does not hide it.
    run_dir = stack.enter_context(directory("/run" if ROOT else "/tmp", user, 0o700))
    work = stack.enter_context(directory("/tmp", user, 0o700))
    env.update(HOME=str(work), HUTCH_RUN_DIR=str(run_dir / "run"), HUTCH_STATE_DIR=str(work / "state"),
               HUTCH_AUDIT_DIR=str(work / "audit"), XDG_RUNTIME_DIR=str(run_dir), HUTCH_CONFIG_PATH=str(work / "config"), TMPDIR=str(work))
    who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
    (work / "state").mkdir()
    (work / "config").mkdir()
    # The suites run side by side, and disks of 2 GiB to 20 GiB add up to more than a host has.
    # test_sandbox_disk and test_microvm test the default.
    (work / "config/host.yaml").write_text("disk_overcommit: true\n")
    if user:
        for path in ("state", "config", "config/host.yaml"):
            os.chown(work / path, user.pw_uid, user.pw_gid)
        env.update(USER=user.pw_name, LOGNAME=user.pw_name)
    # Passed as an open file: the user may be unable to reach its path.
    with open(tarball, "rb") as f:
        subprocess.run([env["HUTCH"], "image", "import", "base", "/dev/stdin"], stdin=f, env=env, check=True, cwd=work,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **who)
    if env.get("HUTCH_TEST_LEVEL") == "microvm":
        make_machines(env, work, who)
    # Creates the run directory. Its inode number may be that of a removed one; gc removes leftovers
    # with that number before the first test looks.
    subprocess.run([env["HUTCH"], "gc"], env=env, check=True, cwd=work, stdout=subprocess.DEVNULL, **who)
    stack.callback(subprocess.run, [env["HUTCH"], "image", "rm", "base"], env=env, check=True, cwd=work,
                   stdout=subprocess.DEVNULL, **who)
    return env, {"cwd": work, **who}, public


def run(tests, tarball, user, stack):
    where = []
    while tests and os.path.isdir(tests[0]):
        where.append(Path(tests.pop(0)).resolve())
    where = where or [HERE]
    env, place, public = prepare(where, tarball, user, stack)
    python = shutil.which("/usr/bin/python3") or shutil.which("python3", path=PATH)
    try:
        r = subprocess.run([python, public / "tests/integration/run.py", *(public / "tests" / w.name for w in where),
                            *(tests or ["test_sandbox"])], env=env, check=False, stdin=subprocess.DEVNULL, **place).returncode
    finally:
        subprocess.run([env["HUTCH"], "gc"], env=env, check=True, stdout=subprocess.DEVNULL, **place)
    left = end(user) if user else []
    if left:
        print(f"# processes were left: {left}")
    return 1 if left else r


def main(args):
    if not args or args[0] not in ("root", "user"):
        print("usage: run_as.py root|user [DIRECTORY...] [TEST...]", file=sys.stderr)
        return 2
    if args[0] == "root" and not ROOT:
        print("1..0 # SKIP needs root")
        return 0
    tarball = image()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with contextlib.ExitStack() as stack:
        user = stack.enter_context(account()) if args[0] == "user" and ROOT else None
        return run(args[1:], tarball, user, stack)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
