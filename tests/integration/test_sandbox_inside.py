# SPDX-License-Identifier: Apache-2.0
"""User code in a sandbox: what it sees and can do. Every "cannot" has a "can" as positive
control."""

import json
import os
import re
import socket
import subprocess
from pathlib import Path

from sandbox import (BOX, IDS, IDS_FIRST, MACHINE, ROOT, SandboxCase, SharedCase, agent, children_of, create, eventually, hutch, processes, settle,
                     subordinate, warden_of)

# Tries a list of operations; prints {"operation": "ok" or the name of the error}.
TRY = """
import errno, json, os, socket, subprocess, sys
def attempt(f):
    try:
        f()
    except OSError as e:
        return errno.errorcode[e.errno]
    return 'ok'
def write(path):
    with open(path, 'w') as f:
        f.write('x')
"""


class Tries(SharedCase):
    def tries(self, script, sandbox=None, **more):
        return json.loads(self.python(sandbox or self.sandbox, TRY + script, **more))


class View(Tries):
    def status(self, pid="self"):
        return dict(line.split(":\t", 1) for line in self.sh(self.sandbox, f"cat /proc/{pid}/status").splitlines())

    def test_only_loopback(self):
        devices = [line.split(":")[0].strip() for line in self.sh(self.sandbox, "tail -n +3 /proc/net/dev").splitlines()]
        self.assertEqual(devices, ["lo"])

    def test_no_way_out(self):
        said = self.tries("""
def to(family, address):
    s = socket.socket(family)
    s.settimeout(120)
    s.connect((address, 443))
print(json.dumps([attempt(lambda: to(socket.AF_INET, '1.1.1.1')), attempt(lambda: to(socket.AF_INET6, '2606:4700::1111')),
                  attempt(lambda: to(socket.AF_INET, '169.254.169.254'))]))""")
        self.assertEqual([e for e in said if e not in ("ENETUNREACH", "EADDRNOTAVAIL", "EHOSTUNREACH")], [])

    def test_loopback_works(self):
        self.assertEqual(self.tries("""
listener = socket.create_server(('127.0.0.1', 0))
print(json.dumps(attempt(lambda: socket.create_connection(listener.getsockname()))))"""), "ok")

    def test_the_hosts_loopback_is_another(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port)):
                pass
            self.assertEqual(self.tries(f"print(json.dumps(attempt(lambda: socket.create_connection(('127.0.0.1', {port})))))"),
                             "ECONNREFUSED")

    def test_no_other_processes(self):
        """Except kernel threads of a VM, which have no memory and so no command line, and the
        agent's standby for the next command."""
        pids = self.python(self.sandbox, """
import contextlib, os
for p in filter(str.isdigit, os.listdir('/proc')):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it may end meanwhile
        if open(f'/proc/{p}/cmdline').read(1) and open(f'/proc/{p}/comm').read() != 'hutch-standby\\n':
            print(p)
print(os.getpid())""").split()
        self.assertEqual(sorted(set(pids), key=int), ["1", pids[-1]])

    def test_three_descriptors(self):
        """And the one that lists them."""
        self.assertEqual(self.sh(self.sandbox, "ls /proc/self/fd"), "0\n1\n2\n3\n")

    def test_the_agent_is_out_of_reach(self):
        said = self.tries("""
print(json.dumps([attempt(lambda: os.listdir('/proc/1/fd')), attempt(lambda: open('/proc/1/mem', 'rb')),
                  attempt(lambda: os.readlink('/proc/1/exe')), attempt(lambda: os.kill(1, 9)), attempt(lambda: os.kill(os.getpid(), 0))]))""")
        self.assertEqual([e in ("EACCES", "EPERM") for e in said], [True] * 4 + [False], said)
        self.assertEqual(said[-1], "ok")

    def test_root_inside_does_not_reach_the_agent_either(self):
        said = self.tries("""
print(json.dumps([attempt(lambda: os.readlink('/proc/1/fd/3')), attempt(lambda: open('/proc/1/fd/3', 'wb')),
                  attempt(lambda: open('/proc/1/mem', 'rb')), attempt(lambda: open('/proc/1/environ', 'rb')),
                  attempt(lambda: open('/proc/self/mem', 'rb'))]))""", opts=["-u", "root"])
        self.assertEqual([e in ("EACCES", "EPERM") for e in said[:4]], [True] * 4, said)
        self.assertEqual(said[4], "ok")
        self.sh(self.sandbox, "kill -9 1; true", opts=["-u", "root"])
        self.assertEqual(self.sh(self.sandbox, "echo alive"), "alive\n")

    def test_proc_tells_nothing_of_the_host(self):
        said = self.tries("""
def some(path):
    if not (os.listdir(path) if os.path.isdir(path) else open(path, 'rb').read(1)):
        raise OSError(errno.ENODATA, '')
print(json.dumps({p: attempt(lambda: some(p)) for p in ('/proc/kcore', '/proc/keys', '/proc/timer_list', '/proc/kallsyms',
    '/proc/interrupts', '/proc/sched_debug', '/proc/scsi', '/proc/acpi', '/proc/sysrq-trigger', '/proc/self/status')}))""",
                          opts=["-u", "root"])
        self.assertEqual(said.pop("/proc/self/status"), "ok")
        self.assertEqual({p for p, e in said.items() if e == "ok"}, set())

    def test_proc_changes_nothing_of_the_host(self):
        for path in ("/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory",
                     "/proc/sysrq-trigger"):
            with self.subTest(path=path):
                self.assertNotEqual(self.exec_(self.sandbox, "sh", "-c", f"echo 1 >{path}", opts=["-u", "root"], code=2).stderr, b"")

    def test_no_sysfs(self):
        self.assertNotIn("sysfs", self.sh(self.sandbox, "cut -d' ' -f3 /proc/mounts").split())
        self.assertEqual(self.sh(self.sandbox, "ls /sys"), "")

    def test_harmless_devices_only(self):
        names = json.loads(self.python(self.sandbox, """
import json, os, stat
print(json.dumps([n for n in os.listdir('/dev') if stat.S_IFMT(os.lstat('/dev/' + n).st_mode) in (stat.S_IFCHR, stat.S_IFBLK)]))"""))
        self.assertEqual(set(names), {"null", "zero", "full", "random", "urandom", "tty"})

    def test_a_host_name_of_its_own(self):
        name = self.sh(self.sandbox, "cat /proc/sys/kernel/hostname").strip()
        self.assertNotEqual(name, Path("/proc/sys/kernel/hostname").read_text().strip())
        self.assertNotEqual(name, "")

    def test_no_rights(self):
        for pid in ("self", "1"):
            said = self.status(pid)
            self.assertEqual({k: said[k] for k in said if k.startswith("Cap") and k not in ("CapPrm", "CapEff")},
                             {k: "0" * 16 for k in ("CapInh", "CapBnd", "CapAmb")}, pid)
            # PID 1 of a VM runs without a syscall filter, because it needs calls of its own kernel;
            # its children have one.
            self.assertEqual((said["NoNewPrivs"], said["Seccomp"]), ("1", "0" if MACHINE and pid == "1" else "2"), pid)
        self.assertEqual((self.status()["CapPrm"], self.status()["CapEff"]), ("0" * 16, "0" * 16))

    def test_no_rights_for_root_inside(self):
        said = self.exec_(self.sandbox, "grep", "^Cap", "/proc/self/status", opts=["-u", "root"]).stdout.decode().split()
        self.assertEqual(set(said[1::2]), {"0" * 16})

    def test_ids_that_are_nobody_on_the_host(self):
        inside, outside, count = (int(x) for x in self.sh(self.sandbox, "cat /proc/self/uid_map").split())
        if MACHINE:  # its ids are not host ids
            self.assertEqual((inside, outside, count), (0, 0, 2 ** 32 - 1))
            return
        self.assertEqual((inside, count), (0, IDS))
        if ROOT:
            self.assertGreaterEqual(outside, IDS_FIRST)

    def test_no_namespaces_of_its_own(self):
        for kind in ("--user", "--mount", "--net", "--pid"):
            with self.subTest(kind=kind):
                self.exec_(self.sandbox, "unshare", kind, "true", opts=["-u", "root"], code=1)

    def test_no_mounts(self):
        call = "import ctypes; c = ctypes.CDLL(None, use_errno=True); print(c.mount(b'x', b'/tmp', b'tmpfs', 0, b''), ctypes.get_errno())"
        self.assertEqual(self.python(self.sandbox, call, opts=["-u", "root"]), "-1 1\n")

    def test_the_environment_of_pid_1_is_no_secret_of_the_host(self):
        sandbox = self.create(env={"SECRET_CANARY": "CANARY"})
        self.assertNotIn("CANARY", self.sh(sandbox, "cat /proc/1/environ /proc/1/cmdline 2>&1; env", opts=["-u", "root"]))


class Outside(SharedCase):
    """The same from the host."""

    def found(self, command):
        """A command in a VM is not a process of the host; QEMU is."""
        commands = [q for q in processes() if cmdline(q.pid) == command]
        if MACHINE:
            self.assertEqual(commands, [])
            return [q for q in processes() if q.pid in children_of(warden_of(self.sandbox), BOX)]
        return commands

    def test_the_ids_of_a_command(self):
        seconds = f"43{os.getpid()}"  # unique to this run
        p = subprocess.Popen([os.environ["HUTCH"], "exec", self.sandbox, "--", "sh", "-c", f"echo; sleep {seconds}"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        p.stdout.readline()
        found = eventually(lambda: self.found(f"sleep\0{seconds}\0".encode()), "the command")
        uids = set().union(*(q.uids for q in found))
        p.terminate()  # also ends the command
        p.wait()
        p.stdout.close()
        self.assertEqual(len(uids), 1)
        if ROOT:
            self.assertGreaterEqual(min(uids), IDS_FIRST + (1 if MACHINE else 1000))
        else:
            self.assertIn(min(uids), subordinate())

    def test_the_keepers_id_is_none_of_the_sandboxs(self):
        """A process with the keeper's ids could send it signals, or use up its per-user limits."""
        keeper = children_of(warden_of(self.sandbox), "hutch-keeper")[0]
        ids = {int(x) for kind in ("Uid", "Gid") for x in re.findall(rf"^{kind}:(.*)$", Path(f"/proc/{keeper}/status").read_text(), re.M)[0].split()}
        inside = next(p for p in children_of(warden_of(self.sandbox), BOX))
        first, count = (int(x) for x in Path(f"/proc/{inside}/uid_map").read_text().split()[1:3])
        self.assertEqual(len(ids), 1)
        self.assertNotIn(ids.pop(), range(first, first + count))
        if not MACHINE:
            self.assertEqual(self.sh(self.sandbox, "id -u", opts=["-u", "65534"]), "65534\n", "control")
            self.assertEqual(self.exec_(self.sandbox, "id", opts=["-u", "65535"], code=125).stdout, b"")


def cmdline(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Apart(SandboxCase):
    """Two sandboxes of one image."""

    def test_they_do_not_see_each_others_files(self):
        one, two = self.create(), self.create()
        for path in ("/tmp/x", "/workspace/x", "/dev/shm/x", "/home/user/x", "/var/tmp/x"):
            with self.subTest(path=path):
                self.sh(one, f"echo one >{path}")
                self.assertEqual(self.sh(one, f"cat {path}"), "one\n")
                self.exec_(two, "cat", path, code=1)

    def test_they_do_not_change_the_image(self):
        name = agent("writes-all", "filesystem:\n  write: [/]\n")
        one, two = self.create("--agent", name), self.create("--agent", name)
        self.sh(one, "echo changed >/etc/motd; rm /usr/bin/env; echo new >/usr/new; cat /etc/motd", opts=["-u", "root"])
        self.assertEqual(self.sh(one, "cat /etc/motd /usr/new"), "changed\nnew\n")
        self.assertEqual(self.sh(two, "cat /etc/motd; ls /usr/bin/env; ls /usr/new 2>/dev/null; true"), "the image\n/usr/bin/env\n")
        self.assertEqual(self.out("cat", "/etc/motd"), "the image\n")

    def test_they_do_not_meet_on_sockets(self):
        one, two = self.create(), self.create()
        listen = subprocess.Popen([os.environ["HUTCH"], "exec", one, "--", "python3", "-uc", """
import signal, socket
s = socket.socket(socket.AF_UNIX)
s.bind(chr(0) + 'meeting')
s.listen()
print('ready')
signal.pause()"""], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.assertEqual(listen.stdout.readline(), b"ready\n")
        connect = "import socket; print(socket.socket(socket.AF_UNIX).connect_ex(chr(0) + 'meeting'))"
        self.assertEqual(self.python(one, connect), "0\n")
        self.assertEqual(self.python(two, connect), "111\n")
        listen.kill()
        listen.wait()
        listen.stdout.close()


POLICY = """filesystem:
  read: [/usr, /bin, /lib, /lib64, /etc/passwd, /etc/group, /etc/ld.so.cache, /workspace, /tmp]
  write: [/workspace]
  execute: [/usr, /bin, /lib, /lib64]
"""


class Paths(Tries):
    """The policy's filesystem section applies to commands and their children. The wide sandbox
    is the control."""

    @classmethod
    def setUpClass(cls):
        cls.options = ("--agent", agent("narrow", POLICY))
        super().setUpClass()
        cls.wide = create()

    @classmethod
    def tearDownClass(cls):
        hutch("rm", "-f", cls.wide)
        super().tearDownClass()

    def both(self, script, **more):
        """The output of a shell script in the narrow and in the wide sandbox."""
        return tuple(self.exec_(s, "sh", "-c", f"({script}) 2>&1; true", **more).stdout.decode() for s in (self.sandbox, self.wide))

    def test_reading(self):
        narrow, wide = self.both("cat /etc/motd")
        self.assertEqual(wide, "the image\n")
        self.assertIn("Permission denied", narrow)

    def test_reading_a_directory(self):
        narrow, wide = self.both("ls /var")
        self.assertIn("lib", wide.split())
        self.assertIn("Permission denied", narrow)

    def test_what_is_named_can_be_read(self):
        self.assertEqual(self.both("grep -c ^user: /etc/passwd"), ("1\n", "1\n"))

    def test_writing(self):
        narrow, wide = self.both("echo x >/tmp/x && cat /tmp/x; rm -f /tmp/x")
        self.assertEqual(wide, "x\n")
        self.assertIn("Permission denied", narrow)

    def test_what_is_named_can_be_written(self):
        self.assertEqual(self.both("echo x >/workspace/x && mkdir /workspace/d && mv /workspace/x /workspace/d && "
                                   "cat /workspace/d/x && rm -r /workspace/d"), ("x\n", "x\n"))

    def test_the_image_is_written_in_neither(self):
        for said in self.both("echo x >/etc/x; echo x >/usr/bin/x; rm /usr/bin/env", opts=["-u", "root"]):
            self.assertEqual(said.count("Permission denied"), 3, said)
        self.assertEqual(self.both("ls /usr/bin/env"), ("/usr/bin/env\n",) * 2)

    def test_executing_what_was_written(self):
        narrow, wide = self.both("cp /bin/echo /workspace/mine && /workspace/mine ran; rm -f /workspace/mine")
        self.assertEqual(wide, "ran\n")
        self.assertIn("Permission denied", narrow)

    def test_executing_a_script_that_was_written(self):
        narrow, wide = self.both("printf '#!/bin/sh\\necho ran\\n' >s && chmod +x s && ./s; rm -f s")
        self.assertEqual(wide, "ran\n")
        self.assertIn("Permission denied", narrow)

    def test_a_command_that_was_written(self):
        for sandbox, code in ((self.sandbox, 126), (self.wide, 0)):
            self.sh(sandbox, "cp /bin/true /workspace/mine")
            self.exec_(sandbox, "/workspace/mine", code=code)
            self.sh(sandbox, "rm /workspace/mine")

    def test_programs_of_the_image_run_scripts(self):
        self.assertEqual(self.both("echo 'import subprocess; subprocess.run([\"echo\", \"ran\"])' >s && python3 s; rm s"),
                         ("ran\n", "ran\n"))

    def test_root_inside_is_held_by_it_too(self):
        narrow, wide = self.both("cat /etc/motd; echo x >/tmp/r && cat /tmp/r; rm -f /tmp/r", opts=["-u", "root"])
        self.assertEqual(wide, "the image\nx\n")
        self.assertEqual(narrow.count("Permission denied"), 2, narrow)

    def test_links_do_not_lead_around_it(self):
        narrow, wide = self.both("ln -s /etc/motd l && cat l; rm -f l; cat /proc/self/root/etc/motd")
        self.assertEqual(wide, "the image\nthe image\n")
        self.assertEqual(narrow.count("Permission denied"), 2, narrow)

    def test_the_workspace_is_where_the_policy_says(self):
        """The workspace is created if the image lacks it."""
        name = agent("elsewhere", "filesystem:\n  workspace: /srv/project\n  write: [/srv/project]\n")
        self.assertEqual(self.out("sh", "-c", "pwd; echo x >x && cat /srv/project/x", opts=["--agent", name]), "/srv/project\nx\n")


class PolicyEnvironment(SandboxCase):
    def test_env_of_the_policy_and_of_the_command_line(self):
        name = agent("with-env", "env:\n  COLOUR: blue\n  SIZE: small\n")
        said = self.out("sh", "-c", "echo $COLOUR $SIZE", opts=["--agent", name, "-e", "SIZE=large"])
        self.assertEqual(said, "blue large\n")
        self.assertEqual(settle(self.before), set())
