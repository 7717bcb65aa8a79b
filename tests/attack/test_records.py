# SPDX-License-Identifier: Apache-2.0
"""
Rows 157 to 173, as far as they concern one host: escaping on terminals and in logs, where secrets
appear, and ends at the wrong moment. tests/integration/test_sandbox_life.py kills every part with
SIGKILL. Run by run_as.py, as root and as an ordinary user.
"""

import concurrent.futures
import json
import os
import re
import socket
import subprocess
import tempfile
from pathlib import Path

from sandbox import BOX, MACHINE, PATIENCE, RUN, SandboxCase, SharedCase, as_root, children_of, hutch, settle, start, warden_of
from waiting import LONG, readable

# A terminal title, the clipboard, colours, a DCS, C1 in one byte and in two, a bidirectional
# override, a newline and a forged line of hutch.
BYTES = b"\x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x07\x1b[31m\x1bPq\x1b\\\x9b31m\xc2\x9b31m\xe2\x80\xae\r\nhutch: forged\n2026-01-01T00:00:00Z forged"
ACTIVE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffd]")
SECRET = "canary-9f1c77d2e5"


def texts(sandbox):
    """Returns the text of every file that hutch keeps for a sandbox."""
    where = RUN / "sandboxes" / sandbox
    return {p.name: p.read_text(errors="replace") for p in where.iterdir() if p.is_file()}


class Terminals(SharedCase):
    def quiet(self, said, lines=None):
        """Checks that the output has no terminal control characters and no forged line."""
        text = said.decode(errors="replace")
        self.assertNotRegex(text, ACTIVE)
        self.assertEqual([line for line in text.splitlines() if line.startswith(("hutch: forged", "2026-01"))], [])
        if lines is not None:
            self.assertEqual(text.count("\n"), lines, text)
        return text

    def test_what_hutch_says_is_escaped(self):
        """Rows 157 and 158."""
        wrong = os.fsdecode(BYTES)
        for command in (["exec", self.sandbox, "--", wrong], ["exec", "-w", "/" + wrong, self.sandbox, "--", "true"],
                        ["exec", "-e", wrong, self.sandbox, "--", "true"], ["exec", "--timeout", wrong, self.sandbox, "--", "true"],
                        ["exec", "-u", "\x1b[31m\u202e", self.sandbox, "--", "true"], ["exec", wrong, "--", "true"],
                        ["run", "--memory", wrong, "--", "true"], ["run", "--image", wrong, "--", "true"],
                        ["run", "--agent", wrong, "--", "true"], ["run", "-u", wrong, "--", "true"], ["run", f"--{wrong}", "--", "true"],
                        ["inspect", wrong], ["kill", wrong], ["receipt", wrong], [wrong], ["image", "import", wrong, "/dev/null"],
                        ["image", "import", "x", wrong], ["image", "inspect", wrong], ["config", "validate", wrong], ["agents", wrong]):
            with self.subTest(command=[word[:20] for word in command]):
                r = hutch(*command)
                self.assertNotIn(r.returncode, (0, -11, -6))
                self.assertIn("hutch", self.quiet(r.stderr))
                self.quiet(r.stdout)
        for name in ("HUTCH_RUN_DIR", "HUTCH_LIBEXEC_DIR", "HUTCH_LOG", "TERM"):
            with self.subTest(variable=name):
                self.quiet(hutch("run", "--rm", "--", "true", env={name: wrong}).stderr)

    def test_commands_are_shown_escaped(self):
        """Command lines and names in the lists of commands."""
        handle = self.exec_(self.sandbox, "sh", "-c", "true", os.fsdecode(BYTES), opts=["-d"]).stdout.decode().strip()
        shown = self.ended(hutch("ps", "-e", self.sandbox), 0).stdout
        self.assertIn(handle, self.quiet(shown))
        self.assertEqual(len([line for line in shown.splitlines() if handle.encode() in line]), 1)
        for name in ("../x", "/etc", ".", "", "-1", "1", "x" * 64, "\x1b[31m", "\u202ex", "a\nb"):
            with self.subTest(name=name):
                self.quiet(self.ended(hutch("exec", "-d", f"--name={name}", self.sandbox, "--", "true"), 125).stderr)
                if name != "1":
                    r = hutch("logs", f"{self.sandbox}/{name}")
                    self.assertEqual((r.returncode, r.stdout), (1, b""))
                    self.quiet(r.stderr, lines=1)

    def test_logs_are_lines(self):
        """Row 158, in the keeper's log of misbehaving clients and sandboxes."""
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(RUN / "sandboxes" / self.sandbox / "sock"))
            s.sendall(BYTES)
            s.settimeout(LONG)
            while s.recv(4096):
                pass
        log = self.quiet(texts(self.sandbox)["log"].encode())
        self.assertIn("broke the protocol", log)
        for line in log.splitlines():
            self.assertRegex(line, r"^\d{4}-\d\d-\d\dT[0-9:.]+Z hutch-keeper\[\d+\] (info|warning|error): ")

    def test_control_output_is_a_commands_own(self):
        """hutch passes on a command's output unchanged, and only that."""
        r = self.exec_(self.sandbox, "python3", "-c", f"import sys; sys.stdout.buffer.write({BYTES!r})")
        self.assertEqual(r.stdout, BYTES)

    def test_names_that_a_sandbox_gives_itself(self):
        """Names of processes and files inside are shown only by commands inside: hutch ps and
        inspect show none."""
        self.python(self.sandbox, f"""
import ctypes, os
ctypes.CDLL(None).prctl(15, {BYTES[:15]!r})
open(b'/tmp/' + {BYTES.replace(b'/', b'')!r}, 'w').close()""")
        for command in (["ps"], ["ps", "-a"], ["inspect", self.sandbox], ["receipt", self.sandbox]):
            self.quiet(self.ended(hutch(*command), 0).stdout)


class Secrets(SandboxCase):
    """Row 159. A secret given to a command appears only where it must."""

    def whereabouts(self, sandbox):
        """Returns the places outside the sandbox that hold the secret."""
        found = {f"file {name}" for name, text in texts(sandbox).items() if SECRET in text}
        warden = warden_of(sandbox)
        for pid in [warden, *children_of(warden, "hutch-keeper", BOX)]:
            for name in ("cmdline", "environ"):
                try:
                    if SECRET in Path(f"/proc/{pid}/{name}").read_text(errors="replace"):
                        found.add(f"{name} of {Path(f'/proc/{pid}/comm').read_text().strip()}")
                except PermissionError:
                    pass
        for command in (["ps", "-a"], ["inspect", sandbox], ["receipt", sandbox], ["receipt", "--json", sandbox]):
            r = hutch(*command)
            if SECRET in (r.stdout + r.stderr).decode():
                found.add(f"hutch {command[0]}")
        return found

    def test_of_one_command(self):
        sandbox = self.create()
        p = start("exec", "-i", "-e", f"TOKEN={SECRET}", sandbox, "--", "sh", "-c", "echo ready; read line; echo ${#TOKEN} ${#line}",
                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(p.stdout.readline(), b"ready\n")
        self.assertEqual(self.whereabouts(sandbox), set())
        self.assertEqual(self.sh(sandbox, f"grep -ls [c]{SECRET[1:]} /proc/[0-9]*/environ /proc/[0-9]*/cmdline; true",
                                 opts=["-u", "root"]), "", "nor does another user inside see it")
        self.assertEqual(p.communicate(f"{SECRET}\n".encode(), timeout=LONG)[0].decode(), f"{len(SECRET)} {len(SECRET)}\n")
        self.assertEqual(self.whereabouts(sandbox), set())

    def test_of_a_whole_sandbox(self):
        """The control: a sandbox's secret is found in its specification, which only the owner
        can read."""
        sandbox = self.create("-e", f"TOKEN={SECRET}")
        self.assertEqual(self.sh(sandbox, "echo ${#TOKEN}"), f"{len(SECRET)}\n")
        self.assertEqual(self.whereabouts(sandbox), {"file spec.json"})
        self.assertEqual((RUN / "sandboxes" / sandbox / "spec.json").stat().st_mode & 0o777, 0o600)
        self.ended(hutch("rm", "-f", sandbox), 0)
        self.assertEqual(subprocess.run(["grep", "-rl", SECRET, RUN], capture_output=True, check=False).stdout, b"")

    def test_the_callers_variables_stay_outside(self):
        """Row 46: the caller's variables reach neither the sandbox nor the programs around it."""
        sandbox = self.create(env={"TOKEN": SECRET, "LD_PRELOAD": f"/{SECRET}", "BASH_ENV": SECRET, "PYTHONPATH": SECRET})
        self.assertEqual(self.whereabouts(sandbox), set())
        r = hutch("exec", sandbox, "--", "env", env={"TOKEN": SECRET})
        self.assertNotIn(SECRET.encode(), r.stdout)

    def test_variables_that_steer_programs(self):
        """Row 46: variables of a sandbox or a command reach only its commands. Control: these
        have them."""
        names = ("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "BASH_ENV", "ENV", "GCONV_PATH", "PATH", "PYTHONPATH", "GLIBC_TUNABLES", "HUTCH_RUN_DIR", "TMPDIR")
        given = [word for name in names for word in ("-e", f"{name}=/{SECRET}")]
        sandbox = self.create(*given)
        self.assertEqual(self.whereabouts(sandbox), {"file spec.json"})
        r = hutch("exec", "-e", f"LD_AUDIT=/{SECRET}", sandbox, "--", "/usr/bin/env")
        self.assertEqual(set(re.findall(rf"(?m)^(\w+)=/{SECRET}$", r.stdout.decode())), set(names))
        self.assertIn(f"/{SECRET}", r.stderr.decode(), "its own loader has looked for it")
        self.assertEqual(self.whereabouts(sandbox), {"file spec.json", "file cmd-1"}, "and in what it has printed")
        source = Path(os.environ["TMPDIR"]) / "copied"
        source.write_text("x")
        self.addCleanup(source.unlink)
        self.ended(hutch("cp", str(source), f"{sandbox}:/tmp/copied"), 0)


# Leaves a word in every place where data could persist, and waits to be killed.
LEAVE = """
import ctypes, os, signal, socket, sys
word = sys.argv[1]
for place in ('/tmp', os.path.expanduser('~'), '/workspace', '/dev/shm'):
    with open(f'{place}/{word}', 'w') as f:
        f.write(word)
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
segment = libc.shmget(4711, 4096, 0o1666)
ctypes.memmove(libc.shmat(segment, None, 0), word.encode(), len(word))
r, w = os.pipe()
os.write(w, word.encode())
s = socket.socket(socket.AF_UNIX)
s.bind('\\0' + word)
print('left', flush=True)
signal.pause()
"""
# Searches for the word. It is assembled here, so that the search does not find itself.
FIND = """
import ctypes, os, sys
word = sys.argv[1] + sys.argv[2]
found = set()
for top in ('/tmp', '/home', '/workspace', '/dev/shm', '/var', '/etc', '/run', '/root'):
    for where, dirs, files in os.walk(top):
        found |= {os.path.join(where, n) for n in files if word in n}
for p in filter(str.isdigit, os.listdir('/proc')):
    try:
        if word in open(f'/proc/{p}/cmdline').read():
            found.add('a command')
    except OSError:
        pass
if word in open('/proc/net/unix').read():
    found.add('a socket')
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
segment = libc.shmget(4711, 4096, 0)
if segment >= 0 and ctypes.string_at(libc.shmat(segment, None, 0), len(word)) == word.encode():
    found.add('a segment')
print(*sorted(found), sep='\\n')
"""


class Leftovers(SandboxCase):
    """Row 148."""

    def found(self, sandbox):
        return self.python(sandbox, FIND, SECRET[:7], SECRET[7:], opts=["-u", "root"]).split("\n")[:-1]

    def test_a_sandbox_of_the_pool_has_nothing_of_another(self):
        self.ended(hutch("pool", "fill", "-n", "1"), 0)
        self.addCleanup(hutch, "pool", "drain")
        seen = set()
        for _ in range(3):
            sandbox = self.create()
            self.assertNotIn(sandbox, seen, "used once")
            self.assertEqual(self.found(sandbox), [""])
            p = start("exec", sandbox, "--", "python3", "-c", LEAVE, SECRET, stdout=subprocess.PIPE)
            self.assertEqual(p.stdout.readline(), b"left\n")
            found = self.found(sandbox)
            self.assertLessEqual({f"/tmp/{SECRET}", f"/workspace/{SECRET}", f"/dev/shm/{SECRET}", "a segment", "a command", "a socket"}, set(found), "control")
            self.ended(hutch("rm", "-f", sandbox), 0)
            p.communicate(timeout=LONG)
            self.assertNotIn(sandbox, self.ps("-a"))
            seen.add(sandbox)


class Races(SandboxCase):
    def test_removed_by_many_at_once(self):
        """Row 171. Each concurrent caller succeeds or gets the error that no such sandbox
        exists."""
        for _ in range(3):
            sandbox = self.create()
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                ended = list(pool.map(lambda i, s=sandbox: hutch("rm" if i % 2 else "kill", *(["-f"] if i % 2 else []), s), range(8)))
            for r in ended:
                self.assertTrue(r.returncode == 0 or b"no sandbox" in r.stderr, r)
            self.ended(hutch("rm", "-f", sandbox), 0 if sandbox in self.ps("-a") else 1)
            self.assertEqual(settle(self.before), set())

    def test_removed_while_commands_start(self):
        """Each command has its own result or reports that the sandbox ended; none hangs."""
        for started in (0, 1, 4):
            sandbox = self.create()
            running = [start("exec", sandbox, "--", "sh", "-c", "echo started; sleep 0.2", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                       for _ in range(8)]
            for p in running[:started]:
                readable(p.stdout, "a command's first line")
            self.ended(hutch("rm", "-f", sandbox), 0)
            for p in running:
                said = p.communicate(timeout=LONG)[1]
                self.assertIn(p.returncode, (0, 1, 125), said)
                self.assertTrue(p.returncode == 0 or b"sandbox" in said, said)

    def test_a_number_that_is_somebody_elses_now(self):
        """Row 168. hutch stores no pid, so none can be stale: it asks the kernel which process
        holds the lock."""
        sandbox = self.create()
        warden = warden_of(sandbox)
        known = {str(warden), *map(str, children_of(warden, "hutch-keeper", BOX))}
        for name, text in texts(sandbox).items():
            numbers = set(re.findall(r"\b\d+\b", text)) if name != "log" else set()
            self.assertEqual(numbers & known, set(), name)
        with open(RUN / "sandboxes" / sandbox / "lock", "w") as f:
            f.write(str(os.getpid()))  # the contents do not matter
        self.ended(hutch("rm", "-f", sandbox), 0)

    def test_clocks(self):
        """Row 172. Time limits use the monotonic clock: recorded times do not affect them."""
        lasting, short = self.create("--ttl", "1h"), self.create("--ttl", f"{3 * PATIENCE}s")
        for sandbox in (short, lasting):
            with open(RUN / "sandboxes" / sandbox / "spec.json", "r+", encoding="utf-8") as spec:  # also after the sandbox has ended
                text = json.loads(spec.read())
                for created in (0, 1 << 62):
                    spec.seek(0)
                    spec.truncate()
                    spec.write(json.dumps({**text, "created": created}))
                    spec.flush()
                    self.assertIn(sandbox, self.ps("-a"))
                if sandbox == short:
                    self.gone(sandbox, "ttl")
                else:
                    self.assertEqual(self.sh(sandbox, "echo well"), "well\n")
                spec.seek(0)
                spec.truncate()
                spec.write(json.dumps(text))


class Faults(SandboxCase):
    """Row 170, from outside: missing resources. The result is an error or success; nothing is
    left behind, and no command hangs."""

    def tried(self, before, *cmd, **more):
        r = subprocess.run([*before, os.environ["HUTCH"], *cmd], capture_output=True, stdin=subprocess.DEVNULL, timeout=LONG,
                           check=False, **more)
        if r.returncode != 0:
            self.assertNotIn(r.returncode, (-11, -6), r.stderr)
            self.assertTrue(r.stderr, r)
        # The next command cleans up what this one could not for lack of descriptors.
        self.ended(hutch("ps"), 0)
        self.assertEqual(settle(self.before), set(), (before, r.stderr))
        return r.returncode

    def test_few_descriptors(self):
        codes = [self.tried(["prlimit", f"--nofile={n}"], "run", "--rm", "--", "true") for n in (4, 6, 9, 11, 14, 17, 20, 24, 32, 48)]
        self.assertEqual(codes[0], 125)
        self.assertEqual(self.tried(["prlimit", "--nofile=256"], "run", "--rm", "--", "true"), 0)

    def test_short_files(self):
        """No process dies of SIGXFSZ. A disk is a file of its full size; only an ordinary user's
        container has none."""
        disk = MACHINE or os.geteuid() == 0
        for n in (0, 100, 1200, *([1000000] if disk else [])):
            self.assertEqual(self.tried(["prlimit", f"--fsize={n}"], "run", "--rm", "--", "true"), 125, n)
        enough = 3 << 30 if disk else 1000000
        self.assertEqual(self.tried(["prlimit", f"--fsize={enough}"], "run", "--rm", "--", "true"), 0)

    def test_no_standard_descriptors(self):
        """A descriptor that hutch opens must not become the command's standard stream."""
        for closed in ("<&-", "2>&-", "<&- 2>&-"):
            r = subprocess.run(["sh", "-c", f'exec "$0" run --rm -- echo out {closed}', os.environ["HUTCH"]],
                               capture_output=True, timeout=LONG, check=False)
            self.assertEqual((r.returncode, r.stdout), (0, b"out\n"), closed)
        r = subprocess.run(["sh", "-c", 'exec "$0" run --rm -- echo lost >&-', os.environ["HUTCH"]], capture_output=True,
                           timeout=LONG, check=False)
        self.assertNotEqual(r.returncode, 0)
        self.assertEqual(settle(self.before), set())

    @as_root
    def test_a_full_run_directory(self):
        """Tries every amount of free KiB up to the first that works. A run directory that fills
        up later does not keep a sandbox from ending."""
        script = """
set -e
mount -t tmpfs -o mode=700,size=$2,nr_inodes=64 tmpfs "$1"
if "$HUTCH" create >"$1.id" 2>"$1.said"; then
    id=$(cat "$1.id")
    cat /dev/zero >"$1/fill" 2>/dev/null || true
    "$HUTCH" exec $id -- echo works
    "$HUTCH" kill $id >/dev/null || "$HUTCH" kill $id >/dev/null || true
    rm "$1/fill"
    "$HUTCH" ps >/dev/null
    "$HUTCH" rm -f $id >/dev/null || true
else
    cat "$1.said"
fi
ls "$1/sandboxes" 2>/dev/null || true
"""
        outcomes = []
        for size in ("4k", "8k", "12k", "64k"):
            with tempfile.TemporaryDirectory() as where:
                run = f"{where}/run"
                os.mkdir(run, 0o700)
                r = subprocess.run(["unshare", "--mount", "sh", "-c", script, "-", run, size], capture_output=True, timeout=LONG,
                                   check=False, env={**os.environ, "HUTCH_RUN_DIR": run})
                said = r.stdout.decode()
                self.assertEqual(r.returncode, 0, r)
                self.assertNotRegex(said, r"(?m)^[a-z][a-z0-9]{15}$", "a directory is left")
                self.assertRegex(said, "works|No space left", size)
                outcomes.append("works" in said)
        self.assertEqual((outcomes[0], outcomes[-1]), (False, True))
        self.assertEqual(settle(self.before), set())
