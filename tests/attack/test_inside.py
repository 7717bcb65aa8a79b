# SPDX-License-Identifier: Apache-2.0
"""
The tries of test_container.py, and more, from inside a real sandbox, as a command that a hutch user
could start. The table is the same except for the differences named here. Run by run_as.py, as root
and as an ordinary user.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess

import wire
from sandbox import MACHINE, RUN, SharedCase, hutch
from test_container import classify, parse

EXPECTED = pathlib.Path(__file__).parent / "container.expected"
# The hand-made box has no Landlock, which checks first here and returns its own error.
DIFFERENT = {"27 mknod block device": "EACCES"}
# A VM has another kernel: a file may be missing, masked or not writable. Root inside is that
# kernel's root, whom file modes do not stop; the read-only /proc does, and Landlock after it. The
# control group of all users has a name there.
REFUSALS = {"19 /proc/": ("ENOENT", "ENODATA"), "20 /proc": ("ENOENT", "EACCES", "EROFS"),
            "22 write /dev/hutch-guest": ("ENOENT", "EACCES")}
IN_MACHINES = {"26 paths of groups": "/users"}

# Files about the host and its kernel that a sandbox can read below /proc, as documented in
# docs/THREAT-MODEL.md, apart from processes and `self`.
VISIBLE = {
    "the kernel: version, and its components": {"cgroups", "consoles", "crypto", "devices", "dma", "execdomains", "fb", "filesystems",
                                                "misc", "version", "driver", "tty"},
    "CPUs and memory": {"cpuinfo", "meminfo", "mtrr", "swaps"},
    "activity: load, time, statistics": {"loadavg", "locks", "pressure", "schedstat", "softirqs", "stat", "uptime", "vmstat"},
    "its buses": {"bus", "irq"},
    "settings": {"sys", "fs"},
    "the sandbox's own": {"mounts", "net", "sysvipc", "self", "thread-self"},
}
# Prints each non-empty entry below /proc, and the readable files that contain a canary.
SEARCH = """
import json, os, sys
canaries = json.loads(sys.argv[1])
def some(path):
    try:
        if os.path.isdir(path):
            return bool(os.listdir(path))
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            return bool(os.read(fd, 1))
        finally:
            os.close(fd)
    except OSError:
        return False
def contents(path):
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return b''
    try:
        return os.read(fd, 1 << 20)
    except OSError:
        return b''
    finally:
        os.close(fd)
names = [n for n in os.listdir('/proc') if not n.isdigit()]
files = ['/proc/' + n for n in names if n not in ('kmsg', 'kcore', 'kpagecount', 'kpageflags', 'kpagecgroup', 'kallsyms')]
for top in ('/proc/sys', '/proc/net/', '/proc/self', '/proc/fs', '/proc/bus', '/proc/driver', '/sys/class/dmi/id/', '/run'):
    for where, dirs, inside in os.walk(top):
        dirs[:] = [d for d in dirs if d not in ('task', 'fd', 'map_files', 'cwd', 'root')]
        files += [os.path.join(where, f) for f in inside if f not in ('pagemap', 'clear_refs', 'cmdline', 'environ', 'mem')]
files = [f for f in files if not os.path.isdir(f)]
found = {}
for f in files:
    text = contents(f)
    for name, value in canaries.items():
        if value.encode() in text:
            found.setdefault(name, []).append(f)
print(json.dumps({'some': [n for n in names if some('/proc/' + n)], 'found': found, 'read': len(files)}))
"""


def alike(table):
    """Replaces refusals that differ between kernels by one word if sandboxes are VMs."""
    if not MACHINE:
        return table
    return {what: "refused" if any(what.startswith(row) and result in errors for row, errors in REFUSALS.items()) else result
            for what, result in table.items()}


def digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def canaries():
    """Returns values that identify this host."""
    found = {"the name of the host": socket.gethostname(),
             "the kernel's command line": pathlib.Path("/proc/cmdline").read_text().strip()[:60],
             "the run directory": str(RUN)}
    for place in [pathlib.Path("/etc/machine-id"), *pathlib.Path("/sys/class/net").glob("*/address"),
                  *pathlib.Path("/sys/class/dmi/id").glob("*_serial"), *pathlib.Path("/sys/class/dmi/id").glob("*_uuid")]:
        try:
            value = place.read_text().strip()
        except OSError:
            continue
        found[str(place)] = value
    # Short values match by accident.
    return {k: v for k, v in found.items() if len(v) >= 8 and v != "00:00:00:00:00:00"}


class Inside(SharedCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.digests = {p: digest(p) for p in (os.environ["HUTCH_GUEST"], shutil.which("crun"))}
        with open(os.environ["PROBE"], "rb") as f:
            hutch("exec", "-i", cls.sandbox, "--", "sh", "-c", "cat >/tmp/probe && chmod 755 /tmp/probe", stdin=f)

    def client(self):
        s = socket.socket(socket.AF_UNIX)
        s.connect(str(RUN / "sandboxes" / self.sandbox / "sock"))
        link = wire.Link(s)
        self.addCleanup(link.close)
        link.hello(read=(), write=(), execute=())
        return link

    def probe(self, *opts, **more):
        return alike(classify(parse(self.exec_(self.sandbox, "/tmp/probe", opts=opts, **more).stdout.decode())))

    def expected(self):
        return alike({**parse(EXPECTED.read_text()), **DIFFERENT, **(IN_MACHINES if MACHINE else {})})

    # ---- the table ----
    def test_table(self):
        """Rows 19 to 22, 24 to 30, 32 to 41, 44, 66. Its controls are those of test_container.py."""
        self.assertEqual(self.probe(), self.expected())
        self.files_of_the_host_are_as_they_were()

    def test_table_of_root_inside(self):
        """Root inside maps to an unprivileged host user. It may send signals, which PID 1
        blocks, and see the numbers of PID 1's descriptors."""
        seen = self.probe("-u", "root", "-i")
        self.assertEqual({k: v for k, v in seen.items() if v != self.expected()[k]}, {"37 signal PID 1": "ok", "21 /proc/1/fd": "ok"})
        self.assertEqual(set(seen), set(self.expected()))
        self.files_of_the_host_are_as_they_were()

    def files_of_the_host_are_as_they_were(self):
        for path, was in self.digests.items():
            self.assertEqual(digest(path), was, path)

    # ---- 22 ----
    def test_the_agents_file_is_not_written_through_a_process_that_runs_it(self):
        """The method of CVE-2019-5736. No runtime can be caught: the agent inside starts
        commands."""
        said = json.loads(self.python(self.sandbox, """
import errno, json, os, subprocess
def attempt(path, flags):
    try:
        os.close(os.open(path, flags))
    except OSError as e:
        return errno.errorcode[e.errno]
    return 'ok'
p = subprocess.Popen(['/dev/hutch-guest', '--not-init', '--channel', '0'], stdin=subprocess.PIPE)
exe = f'/proc/{p.pid}/exe'
said = [attempt(exe, os.O_WRONLY), attempt(exe, os.O_WRONLY | os.O_TRUNC)]
p.stdin.close()
p.wait()
own = subprocess.Popen(['/bin/sleep', '1000'])
said += [attempt('/dev/hutch-guest', os.O_WRONLY), attempt('/dev/hutch-guest', os.O_RDONLY), attempt(f'/proc/{own.pid}/exe', os.O_RDONLY)]
own.kill()
print(json.dumps(said))"""))
        self.assertEqual([e in ("EACCES", "EROFS", "ETXTBSY") for e in said], [True, True, True, False, False], said)
        self.assertEqual(said[3:], ["ok", "ok"])
        r = hutch("exec", self.sandbox, "--", "/proc/self/exe")
        self.assertNotEqual(r.returncode, 0)
        self.files_of_the_host_are_as_they_were()

    # ---- 23 ----
    def test_no_descriptor_is_a_way_out(self):
        """The method of CVE-2024-21626: a working directory or a program behind a descriptor
        that was left open."""
        link = self.client()
        numbers = list(range(3, 1024))
        for i in range(0, len(numbers), 100):
            asked = [(n, link.open("exec", argv=["/bin/pwd"], env=[], cwd=f"/proc/self/fd/{n}")) for n in numbers[i:i + 100]]
            for n, ch in asked:
                self.assertNotEqual(ch.wait_closed(), wire.DONE, (n, ch.out()))
                self.assertIsNone(ch.exit, n)
        control = link.open("exec", argv=["/bin/pwd"], env=[], cwd="/proc/self/root/usr")
        self.assertEqual((control.wait_closed(), control.out()), (wire.DONE, b"/usr\n"))
        for n in (3, 4, 7, 1023):
            self.assertNotEqual(hutch("exec", "-w", f"/proc/self/fd/{n}", self.sandbox, "--", "pwd").returncode, 0)
            self.assertNotEqual(hutch("exec", self.sandbox, "--", f"/proc/self/fd/{n}/bin/true").returncode, 0)
        self.assertEqual(hutch("exec", "-w", "/usr", self.sandbox, "--", "pwd").stdout, b"/usr\n")

    def test_control_a_descriptor_is_a_way_out_where_one_is_left_open(self):
        fd = os.open("/usr", os.O_RDONLY)
        os.set_inheritable(fd, True)
        out = subprocess.run(["sh", "-c", f"cd /proc/self/fd/{fd} && pwd -P"], close_fds=False, capture_output=True, check=True).stdout
        os.close(fd)
        self.assertEqual(out, b"/usr\n")

    # ---- 31 ----
    def test_what_is_seen_of_the_host(self):
        said = json.loads(self.python(self.sandbox, SEARCH, json.dumps(canaries())))
        self.assertEqual(set(said["some"]) - set().union(*VISIBLE.values()), set(), "not documented")
        self.assertEqual(said["found"], {})
        self.assertGreater(said["read"], 100)
        self.assertEqual(self.sh(self.sandbox, "cat /proc/sys/kernel/hostname").strip(), self.sandbox)
        same = self.sh(self.sandbox, "cat /proc/sys/kernel/random/boot_id") == pathlib.Path("/proc/sys/kernel/random/boot_id").read_text()
        self.assertEqual(same, not MACHINE, "documented as seen, but for one who has a kernel of their own")

    def test_control_the_search_finds_them_on_the_host(self):
        said = json.loads(subprocess.check_output(["/usr/bin/python3", "-c", SEARCH, json.dumps(canaries())]))
        self.assertIn("/proc/cmdline", said["found"]["the kernel's command line"])
        self.assertIn("cmdline", said["some"])

    def test_paths_of_the_host(self):
        """The agent's file is the only host file that is mounted, besides six devices; its path
        is visible. A VM has none."""
        roots = [line.split()[3:5] for line in self.sh(self.sandbox, "cat /proc/self/mountinfo").splitlines()]
        of_the_host = {(root, point) for root, point in roots if root != "/" and not point.startswith("/proc/")}
        devices = {(f"/{n}", f"/dev/{n}") for n in ("null", "zero", "full", "tty", "random", "urandom")}
        self.assertEqual({point for _, point in of_the_host - devices}, set() if MACHINE else {"/dev/hutch-guest"})

    # ---- 45 ----
    def test_users_that_are_none(self):
        """A command runs as root or another user only if the caller asks for it by name or
        number. Root inside is not root: test_sandbox_inside.py."""
        for wrong in ("-1", "4294967295", "4294967296", "-0", "+0", "0x0", " 0", "0 ", "00", "1000:", ":0", ":", "1000:-1", "1000:4294967295", "0:0:0",
                      "root:", "user:0:0", "\u0660", "\uff10", "nobody-at-all", "root\n", "ROOT", "", "1e3", "18446744073709551616"):
            for command in (["exec", "-u", wrong, self.sandbox], ["run", "--rm", "-u", wrong]):
                r = hutch(*command, "--", "id", "-u")
                with self.subTest(user=wrong, command=command[0]):
                    self.assertNotEqual(r.returncode, 0)
                    self.assertEqual(r.stdout, b"")
                    self.assertTrue(r.stderr)
        for right, seen in (("root", "0 0"), ("0", "0 0"), ("user", "1000 1000"), ("1000", "1000 1000"), ("1000:7", "1000 7"), ("4321", "4321 4321")):
            self.assertEqual(self.sh(self.sandbox, "echo $(id -u) $(id -g)", opts=["-u", right]).strip(), seen, "control")

    # ---- the channel, from inside ----
    def test_the_channel_is_out_of_reach(self):
        for user in ("user", "root"):
            said = self.python(self.sandbox, """
import os
for p in filter(str.isdigit, os.listdir('/proc')):
    try:
        for n in os.listdir(f'/proc/{p}/fd'):
            print(p, os.readlink(f'/proc/{p}/fd/{n}'))
    except OSError as e:
        print(p, type(e).__name__)
print(*open('/proc/net/unix').read().splitlines()[1:])""", opts=["-u", user, "-i"])
            self.assertNotIn("socket:", said)
            self.assertRegex(said, r"(?m)^1 PermissionError$")  # at the first link or before
            self.assertRegex(said, r"(?m)^\d+ pipe:")
            self.assertTrue(said.endswith("\n\n"), said)
        self.assertEqual(self.sh(self.sandbox, "find / -xdev -type s 2>/dev/null; true", opts=["-u", "root"]), "")

    def test_control_sockets_are_seen_where_there_are_some(self):
        said = self.python(self.sandbox, """
import os, socket
a = socket.socket(socket.AF_UNIX)
a.bind('/tmp/canary')
print(os.readlink(f'/proc/self/fd/{a.fileno()}'), open('/proc/net/unix').read(), flush=True)
os.system('find / -xdev -type s 2>/dev/null')
os.unlink('/tmp/canary')""")
        self.assertRegex(said, "^socket:")
        self.assertEqual(said.count("/tmp/canary"), 2)

    def test_abstract_sockets_of_the_host(self):
        name = f"hutch-attack-{os.getpid()}"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("\0" + name)
            listener.listen()
            with socket.socket(socket.AF_UNIX) as s:
                s.connect("\0" + name)
            said = self.python(self.sandbox, f"import socket; print(socket.socket(socket.AF_UNIX).connect_ex(chr(0) + '{name}'))")
        self.assertEqual(said, "111\n")

    def test_no_descriptor_comes_with_standard_input(self):
        """Row 24, with a stdin and with a terminal."""
        listing = "import os; print(*[n for n in range(4096) if os.path.exists(f'/proc/self/fd/{n}')])"
        self.assertEqual(self.python(self.sandbox, listing, opts=["-i"]), "0 1 2\n")
        r = hutch("exec", "-t", self.sandbox, "--", "python3", "-c", listing)
        self.assertTrue(re.fullmatch(rb"0 1 2\r?\n", r.stdout) or b"terminal" in r.stderr, r)
