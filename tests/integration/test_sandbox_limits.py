# SPDX-License-Identifier: Apache-2.0
"""Limits that real programs reach."""

import json

from sandbox import FILL, LOOSE, MACHINE, PATIENCE, ROOT, SandboxCase, as_root, eventually, hutch

# The VM's own kernel needs memory too.
SMALL = "128MiB" if MACHINE else "64MiB"
# Appended to counts of the VM's own kernel.
TOLD = ", by the word of the agent inside" if MACHINE else ""
GROW = "x = []\nwhile True: x.append(bytearray(1 << 20))"
MUCH = str(256 << 20)  # bytes, more than any limit here
FILES = """
import errno, os, sys
n = 0
try:
    while n < 300000:
        os.close(os.open(f'{sys.argv[1]}/{n}', os.O_CREAT | os.O_WRONLY))
        n += 1
    print('no', n)
except OSError as e:
    print(errno.errorcode[e.errno], n)
"""
FORKS = """
import errno, os, signal
pids = []
try:
    while len(pids) < 200:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        pids.append(pid)
    print('no', len(pids))
except OSError as e:
    print(errno.errorcode[e.errno], len(pids))
for pid in pids:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
"""
OPENS = """
import errno, os, resource
n = 0
try:
    while n < 2000000:
        os.dup(0)
        n += 1
    print('no', n)
except OSError as e:
    print(errno.errorcode[e.errno], n + 3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
SPIN = """
import time
began, cpu = time.monotonic(), time.process_time()
while time.monotonic() - began < 3:
    pass
print(time.process_time() - cpu)
"""


class LimitCase(SandboxCase):
    def shown(self, sandbox, limit):
        """The line of `hutch inspect`."""
        lines = self.ended(hutch("inspect", sandbox), 0).stdout.decode().splitlines()
        return next(line for line in lines if line.startswith(f"{limit} "))


class Asked(LimitCase):
    """A limit of the command line is enforced or refused; a limit of the policy is best effort."""
    ROWS = {"--memory": ("128MiB", "cgroup-memory"), "--pids": ("64", "cgroup-pids"), "--cpus": ("0.5", "cgroup-cpu"), "--disk": ("32MiB", "disk-quota")}

    def rows(self, sandbox):
        return {x["name"]: x for x in json.loads(self.ended(hutch("receipt", "--json", sandbox), 0).stdout)["layers"]}

    def test_enforced_or_refused(self):
        can = self.rows(self.create())
        for option, (value, name) in self.ROWS.items():
            with self.subTest(option=option):
                r = hutch("run", "--rm", option, value, "--", "true")
                if can[name]["enforced"] or (MACHINE and name in ("cgroup-memory", "cgroup-pids")):
                    self.ended(r, 0)
                    continue
                said = self.ended(r, 125).stderr.decode()
                self.assertIn(f"{option} cannot be enforced on this host", said)
                self.assertIn("; or use --best-effort", said)
                self.ended(hutch("run", "--rm", "--best-effort", option, value, "--", "true"), 0)

    def test_best_effort_is_in_the_receipt(self):
        sandbox = self.create("--best-effort", "--memory", "256MiB")
        row = self.rows(sandbox)["cgroup-memory"]
        self.assertEqual(row.get("best_effort", False), not MACHINE)
        self.assertFalse(row["required"])
        shown = next(x for x in self.ended(hutch("receipt", sandbox), 0).stdout.decode().splitlines() if x.startswith("cgroup-memory "))
        self.assertEqual("(--best-effort)" in shown, not MACHINE and not row["enforced"])
        self.assertNotIn("best_effort", self.rows(self.create())["cgroup-memory"])

    def test_a_limit_that_is_enforced_is_required(self):
        row = self.rows(self.create("--disk", "32MiB"))["disk-quota"]
        self.assertEqual((row["required"], row["enforced"]), (True, True))


class Memory(LimitCase):
    @as_root
    def test_a_command_that_takes_too_much_is_killed(self):
        self.run_("python3", "-c", GROW, code=137, opts=[*LOOSE, "--memory", SMALL])

    @as_root
    def test_the_sandbox_goes_on_and_says_so(self):
        sandbox = self.create(*LOOSE, "--memory", SMALL)
        self.exec_(sandbox, "python3", "-c", GROW, code=137)
        self.assertEqual(self.sh(sandbox, "echo alive"), "alive\n")
        self.ended(hutch("kill", sandbox), 0)
        self.assertGreaterEqual(self.inspect(sandbox)["end"]["oom_kills"], 1)
        self.assertRegex(self.shown(sandbox, "memory"), "[1-9] process(es)? killed" + TOLD)

    @as_root
    def test_the_command_says_so_and_who_lives_too(self):
        sandbox = self.create(*LOOSE, "--memory", SMALL)
        r = self.exec_(sandbox, "python3", "-c", GROW, code=137)
        self.assertIn(f"memory limit of {SMALL} reached{TOLD}; raise it", r.stderr.decode())
        r = self.exec_(sandbox, "false", code=1)
        self.assertEqual(r.stderr.decode(), "", "that was another one")
        eventually(lambda: self.inspect(sandbox)["met"]["memory"]["killed"] >= 1, "a number")
        self.assertEqual(self.inspect(sandbox)["met"]["told_by_agent"], MACHINE)

    @as_root
    def test_files_in_memory_count_as_memory(self):
        sandbox = self.create(*LOOSE, "--memory", SMALL, "--scratch", "memory")
        r = hutch("exec", sandbox, "--", "sh", "-c", "head -c 268435456 /dev/zero >/tmp/x")
        self.assertNotEqual(r.returncode, 0, "a quarter of a GiB in 64 MiB")

    def test_within_the_limit_all_is_well(self):
        self.assertEqual(self.out("python3", "-c", "print(len(bytearray(32 << 20)))", opts=[*LOOSE, "--memory", "128MiB"]), f"{32 << 20}\n")


class Pids(LimitCase):
    @as_root
    def test_forks_beyond_the_limit_are_refused(self):
        sandbox = self.create(*LOOSE, "--pids", "32")
        error, n = self.exec_(sandbox, "python3", "-c", FORKS).stdout.decode().split()
        self.assertEqual(error, "EAGAIN")
        self.assertLess(int(n), 32)
        self.assertGreater(int(n), 16)
        self.assertEqual(self.sh(sandbox, "echo alive"), "alive\n")
        self.ended(hutch("kill", sandbox), 0)
        self.assertGreaterEqual(self.inspect(sandbox)["end"]["pids_refused"], 1)
        self.assertRegex(self.shown(sandbox, "pids"), "[1-9] forks? refused" + TOLD)

    @as_root
    def test_a_bomb_that_its_time_limit_ends_is_seen(self):
        sandbox = self.create(*LOOSE, "--pids", "32")
        self.exec_(sandbox, "python3", "-c", f"import os\nwhile True:\n try: os.fork()\n except OSError: pass", code=124, opts=("--timeout", f"{15 * PATIENCE}s"))
        self.ended(hutch("kill", sandbox), 0)
        self.assertGreaterEqual(self.inspect(sandbox)["end"]["pids_refused"], 1)


class Cpu(SandboxCase):
    @as_root
    def test_a_loop_is_throttled(self):
        sandbox = self.create(*LOOSE, "--cpus", "0.1")
        used = float(self.exec_(sandbox, "python3", "-c", SPIN).stdout)
        self.ended(hutch("kill", sandbox), 0)
        if not MACHINE:  # a VM counts stolen time as its own
            self.assertLess(used, 1.5, "three seconds with a tenth of a processor")
        self.assertGreater(self.inspect(sandbox)["end"]["throttled"], 0)
        control = self.create(*LOOSE, "--cpus", "2")
        self.exec_(control, "python3", "-c", SPIN)
        self.ended(hutch("kill", control), 0)
        self.assertEqual(self.inspect(control)["end"]["throttled"], 0, "a loop takes one processor at most")


class Disk(LimitCase):
    def fill(self, script, *args, opts=()):
        error, n = self.out("python3", "-c", script, *args, opts=opts).split()
        return error, int(n)

    def test_writing_beyond_the_limit_fails(self):
        error, n = self.fill(FILL, "/tmp/fill", MUCH, opts=("--disk", "8MiB"))
        self.assertEqual(error, "ENOSPC")
        self.assertLessEqual(n, 8 << 20)
        self.assertGreater(n, 4 << 20)

    def test_the_limit_is_for_all_places_together(self):
        sandbox = self.create("--disk", "8MiB")
        wrote = 0
        for where in ("/tmp", "/workspace", "/home/user", "/var/tmp"):
            wrote += int(self.exec_(sandbox, "python3", "-c", FILL, f"{where}/fill", MUCH).stdout.decode().split()[1])
        self.assertLessEqual(wrote, 8 << 20)

    def test_a_full_disk_is_seen_at_the_end(self):
        sandbox = self.create("--disk", "8MiB")
        self.exec_(sandbox, "python3", "-c", FILL, "/tmp/fill", MUCH)
        self.ended(hutch("kill", sandbox), 0)
        self.assertIs(self.inspect(sandbox)["end"]["disk_full"], True)
        self.assertRegex(self.shown(sandbox, "disk"), "full" + TOLD)

    def test_a_full_disk_does_not_stop_commands(self):
        sandbox = self.create("--disk", "8MiB")
        self.exec_(sandbox, "python3", "-c", FILL, "/tmp/fill", MUCH)
        self.assertEqual(self.sh(sandbox, "rm /tmp/fill && echo freed >/tmp/x && cat /tmp/x"), "freed\n")

    def test_files_beyond_the_number_of_inodes_fail(self):
        error, n = self.fill(FILES, "/tmp", opts=("--disk", "4MiB" if MACHINE else "1MiB"))
        self.assertEqual(error, "ENOSPC")
        self.assertGreater(n, 16)

    def test_shared_memory_has_a_limit(self):
        error, n = self.fill(FILL, "/dev/shm/fill", MUCH)
        self.assertEqual(error, "ENOSPC")
        self.assertGreater(n, 1 << 20)

    def test_no_other_place_can_be_written(self):
        """Otherwise the limit could be bypassed."""
        places = self.out("python3", "-c", """
import json, os
found = []
for mount in open('/proc/mounts'):
    path = mount.split()[1]
    if os.path.isdir(path):
        try:
            open(path + '/x', 'w').close()
            found.append(path)
        except OSError:
            pass
print(json.dumps(found))""", opts=["-u", "root"])
        self.assertLessEqual(set(json.loads(places)), {"/", "/dev/shm"} | set(("/tmp", "/workspace")))


class Descriptors(SandboxCase):
    def test_a_process_has_a_limit(self):
        error, n, limit = self.out("python3", "-c", OPENS).split()
        self.assertEqual((error, n), ("EMFILE", limit))


class NotEnforced(SandboxCase):
    def test_the_receipt_says_which_limits_hold(self):
        sandbox = self.create(*LOOSE, "--memory", SMALL)
        rows = {row["name"]: row["enforced"] for row in self.json("receipt", "--json", sandbox)["layers"]}
        self.assertEqual((rows["cgroup-memory"], rows["cgroup-pids"], rows["cgroup-cpu"], rows["disk-quota"]), (ROOT, ROOT, ROOT, True))
