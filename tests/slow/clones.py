#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
clones.py [-n N] [--at-once N] [--control N] [--of template|saved]: starts N clones (1,000) of one
template, some at a time, as root. No two clones may share random numbers, machine-id, boot id,
UUIDs, program addresses, ssh host keys or TLS randomness. The clock of each is within 50 ms of the
host's, and only its first process ran before its first command. Nothing is left afterwards.

The control: some clones (12) whose agent withholds the seed from its kernel. The test must find
that their first random numbers are equal.

--of saved: clones a snapshot of a sandbox instead of a template. A program in it has used all of
these, and continues to.

HUTCH, HUTCH_KEEPER, HUTCH_GUEST, HUTCH_RAM_SO and HUTCH_TEST_KERNEL_DIR as for
tests/integration/run_as.py; HUTCH_GUEST_UNSEEDED: the agent of the control (tests/slow/unseeded.c);
HUTCH_CLONES_IMAGE: path of the image with ssh-keygen, made if missing.
"""

import argparse
import concurrent.futures
import contextlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))
import run_as  # noqa: E402

CLOCK = 0.05
OPTIONS = ("--memory", "256MiB", "--cpus", "1")
LOOK = r"""
import json, os, ssl, subprocess, uuid
def read(path):
    return open(path).read().strip()
others = [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) not in (1, os.getpid()) and os.path.exists(f"/proc/{pid}/cmdline")
          and read(f"/proc/{pid}/cmdline")]
seen = {"random": os.getrandom(32).hex(), "machine": read("/etc/machine-id"), "boot": read("/proc/sys/kernel/random/boot_id"),
        "uuid": str(uuid.uuid4()), "name": os.uname().nodename, "tls": ssl.RAND_bytes(32).hex(),
        "memory": [line.split("-")[0] for line in open("/proc/self/maps") if "[stack]" in line or "libc.so" in line][0]}
key = f"/tmp/key{os.getpid()}"
subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
seen["ssh"] = read(key + ".pub").split()[1]
diary = open("/dev/shm/diary").read().split("\n")[:-1] if os.path.exists("/dev/shm/diary") else []
print(json.dumps({"distinct": seen, "others": others, "diary": diary}))
"""
# The first and small command of each clone.
FIRST = "head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \\n'"
# The control's agent draws a random number instead of using the seed. A command might be too late:
# a kernel reseeds itself after about a second.
DRAWN = "/dev/shm/first"
# Runs in a sandbox while it is saved: keeps writing its boot id and a random number.
DIARY = r"""
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
with open("/dev/shm/diary", "a") as f:
    while True:
        f.write(open("/proc/sys/kernel/random/boot_id").read().strip() + " " + os.getrandom(16).hex() + "\n")
        f.flush()
        signal.sigwait([signal.SIGALRM])
"""


def say(sandbox, *args):
    r = sandbox.hutch(*args, timeout=600)
    if r.returncode != 0:
        raise RuntimeError(f"hutch {args[0]}: {r.stderr.decode()}")
    return r.stdout.decode().strip()


def look(sandbox, name):
    return json.loads(say(sandbox, "exec", name, "--", "python3", "-c", LOOK))


def save(sandbox):
    """Saves a sandbox that has used everything that clones must not share. Returns its snapshot
    and its values."""
    name = say(sandbox, "create", "--rm", *OPTIONS)
    try:
        say(sandbox, "exec", "-d", name, "--", "python3", "-c", DIARY)
        seen = look(sandbox, name)
        return say(sandbox, "snapshot", "create", name), seen
    finally:
        say(sandbox, "kill", name)


def clone(sandbox, saved):
    """Starts, inspects and ends one clone. Returns its values and the offset of its clock."""
    name = say(sandbox, "create", "--rm", *OPTIONS, *(("--snapshot", saved) if saved else ()))
    try:
        first = say(sandbox, "exec", name, "--", "sh", "-c", FIRST)
        seen = look(sandbox, name)
        seen["distinct"]["first"] = first
        return seen, sandbox.clock_of(name)
    finally:
        say(sandbox, "kill", name)


def unseeded(sandbox, n):
    """Returns the first random number of each of n clones without a seed."""
    names = {"hutch-guest": "HUTCH_GUEST_UNSEEDED", "hutch-keeper": "HUTCH_KEEPER", "hutch-ram.so": "HUTCH_RAM_SO"}
    guest = os.environ["HUTCH_GUEST"]
    with tempfile.TemporaryDirectory(dir=Path(guest).parent) as lib:
        os.chmod(lib, 0o755)
        for name, variable in names.items():
            shutil.copy(os.environ[variable], Path(lib) / name)
        os.environ.update(HUTCH_GUEST=f"{lib}/hutch-guest", HUTCH_LIBEXEC_DIR=lib)
        try:
            drawn = []
            for _ in range(n):
                name = say(sandbox, "create", "--rm", *OPTIONS)
                drawn.append(say(sandbox, "exec", name, "--", "cat", DRAWN))
                say(sandbox, "kill", name)
            return drawn
        finally:
            os.environ["HUTCH_GUEST"] = guest
            del os.environ["HUTCH_LIBEXEC_DIR"]


# ---- judging ----
def judge_diaries(seen, original):
    """A running program continues with the clone's new identity: it wrote no line between the
    copy and the new identity."""
    boot = original["distinct"]["boot"]
    old = {tuple(line for line in one["diary"] if line.startswith(boot)) for one in seen}
    yield f"what the original wrote: {len(old)} version", len(old) == 1 and all(old)
    new = [line for one in seen for line in one["diary"] if not line.startswith(boot)]
    wrong = [line for one in seen for line in one["diary"] if line.split()[0] not in (boot, one["distinct"]["boot"])]
    yield (f"what clones wrote: {len(new)} lines, {len(set(new))} different, {len(wrong)} with a boot id that is not theirs",
           len(set(new)) == len(new) >= len(seen) and not wrong)


def judge(results, original):
    seen = [one for one, _ in results]
    for key in seen[0]["distinct"]:
        values = [one["distinct"][key] for one in seen + ([original] if original and key in original["distinct"] else [])]
        yield f"{key}: {len(values)}, {len(set(values))} different", len(set(values)) == len(values)
    off = sorted(off for _, off in results)
    late = sum(one > CLOCK for one in off)
    yield f"clock: off by at most {off[-1] * 1000:.1f} ms, median {off[len(off) // 2] * 1000:.1f} ms, {late} by more than 50 ms", late == 0
    if original:
        yield from judge_diaries(seen, original)
        return
    others = [one["others"] for one in seen if one["others"]]
    yield f"processes before the first command: {others or 'none'}", not others


def image():
    path = os.environ.get("HUTCH_CLONES_IMAGE") or "clones-image.tar"
    subprocess.run(["bash", HERE.parent / "integration/make-image.sh", path, "openssh-client"], check=True, stdout=sys.stderr)
    return path


def run(options):
    os.environ["HUTCH_TEST_LEVEL"] = "microvm"
    with contextlib.ExitStack() as stack:
        env, _, _ = run_as.prepare([], image(), None, stack)
        os.environ.update({k: v for k, v in env.items() if k.startswith("HUTCH")})
        sandbox = importlib.import_module("sandbox")
        before = sandbox.ledger()
        saved, original = save(sandbox) if options.of == "saved" else (None, None)
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
            results = list(pool.map(lambda _: clone(sandbox, saved), range(options.n)))
        took = time.monotonic() - start
        lines = list(judge(results, original))
        drawn = unseeded(sandbox, options.control)
        lines.append((f"control, without a seed: {len(drawn)}, {len(set(drawn))} different", len(set(drawn)) < len(drawn)))
        if saved:
            say(sandbox, "snapshot", "rm", saved)
        left = sandbox.settle(before)
        lines.append((f"left behind: {sorted(left) or 'nothing'}", not left))
        for number, (text, good) in enumerate(lines, 1):
            print(f"{'ok' if good else 'not ok'} {number} - {text}")
        print(f"1..{len(lines)}\n# {options.n} clones ({options.of}) in {took:.0f} s")
        return 0 if all(good for _, good in lines) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--control", type=int, default=12)
    parser.add_argument("--of", choices=("template", "saved"), default="template")
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
