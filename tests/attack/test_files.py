# SPDX-License-Identifier: Apache-2.0
"""
Rows 1 to 18: attempts to reach files of the host and of other sandboxes, and attacks on hutch's own
file handling. Run inside as root and as an ordinary user, by run_as.py as root and as an ordinary
user.
"""

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from sandbox import LOOSE, RUN, SandboxCase, SharedCase, agent, as_root, hutch

LONG_AGO = 1_000_000_000
# Tries to read a path in every way that works in a leaky box. Prints {way: contents or error}.
READ = """
import errno, json, os, sys
path = sys.argv[1]
def read(name):
    try:
        with open(name, 'rb') as f:
            return f.read().decode()
    except OSError as e:
        return errno.errorcode[e.errno]
ways = {'as it is': path, 'up': '../' * 60 + path[1:], 'root': '/proc/self/root' + path, 'cwd': '/proc/self/cwd/' + '../' * 60 + path[1:]}
for pid in filter(str.isdigit, os.listdir('/proc')):
    for at in ('root', 'cwd'):
        ways[f'{at} of {pid}'] = f'/proc/{pid}/{at}{"/.." * 60}{path}'
    for n in range(3, 16):
        ways[f'descriptor {n} of {pid}'] = f'/proc/{pid}/fd/{n}{"/.." * 60}{path}'
for i, line in enumerate(open('/proc/self/mountinfo')):
    point = line.split()[4]
    ways[f'above {point} {i}'] = point + '/..' * 60 + path
os.symlink(path, '/tmp/link')
ways['link'] = '/tmp/link'
os.mkdir('/tmp/dir')
os.chdir('/tmp/dir')
os.rename('/tmp/dir', '/tmp/moved')
ways['moved'] = '../' * 60 + path[1:]
print(json.dumps({way: read(name) for way, name in ways.items()}))
os.unlink('/tmp/link')
os.rmdir('/tmp/moved')
"""
# Tries to change a file and a directory of the image in every possible way.
CHANGE = """
import ctypes, json, mmap, os
libc = ctypes.CDLL(None)
done = []
def attempt(name, f):
    try:
        f()
        done.append(name)
    except OSError:
        pass
def mapped():
    with open('/etc/motd', 'r+b') as f, mmap.mmap(f.fileno(), 4) as m:
        m[:4] = b'map '
def write(how):
    fd = os.open('/etc/motd', how)
    os.write(fd, b'written')
    os.close(fd)
def splice():
    r, w = os.pipe()
    os.write(w, b'spliced')
    with open('/etc/motd', 'rb+') as f:
        os.splice(r, f.fileno(), 7)
# A reader that was there before the file is copied up, with its pages in the cache.
before = os.open('/etc/motd', os.O_RDONLY)
os.read(before, 100)
attempt('write', lambda: write(os.O_WRONLY))
attempt('append', lambda: write(os.O_WRONLY | os.O_APPEND))
attempt('map', mapped)
attempt('splice', splice)
attempt('by descriptor', lambda: os.write(os.open(f'/proc/self/fd/{before}', os.O_WRONLY), b'reopened'))
attempt('mode', lambda: os.chmod('/etc/motd', 0o4777))
attempt('owner', lambda: os.chown('/etc/motd', 0, 0))
attempt('times', lambda: os.utime('/etc/motd', (1, 1)))
attempt('hole', lambda: libc.fallocate(os.open('/etc/motd', os.O_RDWR), 3, 0, 4096))
attempt('attribute', lambda: os.setxattr('/etc/motd', 'user.x', b'y'))
attempt('overlay attribute', lambda: os.setxattr('/etc', 'user.overlay.redirect', b'/'))
attempt('link', lambda: os.link('/etc/motd', '/etc/motd.link'))
attempt('truncate', lambda: os.truncate('/etc/passwd', 0))
attempt('remove', lambda: os.unlink('/etc/group'))
attempt('replace', lambda: os.rename('/etc/motd.link', '/etc/shells'))
attempt('rename', lambda: os.rename('/etc/skel', '/etc/gone'))
attempt('exchange', lambda: libc.renameat2(-100, b'/etc/motd', -100, b'/etc/passwd', 2))
print(json.dumps(done))
"""
# CVE-2022-0847: splices a page of a read-only file into a pipe that was full before, then writes to
# the pipe.
PIPE = """
import json, os
page = os.open('/etc/shells', os.O_RDONLY)
text = os.read(page, 100)
said = {}
for way in ('splice', 'sendfile'):
    r, w = os.pipe()
    for _ in range(16):
        os.write(w, b'x' * 4096)
    for _ in range(16):
        os.read(r, 4096)
    if way == 'sendfile':
        os.sendfile(w, page, 0, 1)
    else:
        os.splice(page, w, 1, offset_src=0)
    os.write(w, b'overwritten')
    said[way] = os.read(r, 100).decode()
    said[way + ' since'] = os.pread(page, 100, 0) == text
print(json.dumps(said))
"""
# Makes a tree too deep to walk recursively, with paths too long for one name.
DEEP = """
import os, sys
os.chdir('/tmp')
name = 'd' * 200
for _ in range(int(sys.argv[1])):
    os.mkdir(name)
    os.chdir(name)
os.chdir('/tmp')
os.mkdir('wide')
for i in range(int(sys.argv[2])):
    os.symlink('/', f'wide/{i:0255}')
print(len(os.listdir('wide')))
"""
# Lists the mounts as (mount point, read-only), then tries to make them writable and to unmount
# those that cover others.
REMOUNT = """
import ctypes, errno, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    ctypes.set_errno(0)
    r = getattr(libc, name)(*args)
    return 'ok' if r == 0 else errno.errorcode[ctypes.get_errno()]
said = {}
for line in open('/proc/self/mountinfo'):
    point = line.split()[4].encode()
    if sys.argv[1:] and point.decode() not in sys.argv[1:]:
        continue
    said[f'remount {point.decode()}'] = call('mount', None, point, None, 0x20 | 0x1000, None)
    said[f'umount {point.decode()}'] = call('umount2', point, 2)
print(json.dumps(said))
"""


def anywhere():
    """Returns an agent that may write wherever its user may."""
    return agent("anywhere", "filesystem:\n  write: [/]\n")


def text_of(path):
    return Path(path).read_text()


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


class Canary(SharedCase):
    def setUp(self):
        super().setUp()
        self.dir = Path(tempfile.mkdtemp())
        self.addCleanup(self.dir.rmdir)
        self.canary = self.dir / "canary"
        self.canary.write_text("the canary")
        self.addCleanup(self.canary.unlink)
        for path, mode in ((self.dir, 0o755), (self.canary, 0o666)):
            path.chmod(mode)
        os.utime(self.canary, (LONG_AGO, LONG_AGO))

    def test_a_file_of_the_host(self):
        """Row 1. No way leads to it, and its access time is unchanged."""
        for user in ("user", "root"):
            said = json.loads(self.python(self.sandbox, READ, str(self.canary), opts=["-u", user]))
            self.assertEqual({k: v for k, v in said.items() if v not in ("ENOENT", "EACCES", "ENOTDIR", "ELOOP")}, {})
            self.assertGreater(len(said), 60)
        self.assertEqual(self.canary.stat().st_atime, LONG_AGO)

    def test_control_the_same_ways_lead_to_it_on_the_host(self):
        where = {"cwd": self.dir, "env": {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}}
        script = READ.replace("/tmp/", f"{self.dir}/")
        said = json.loads(subprocess.check_output([sys.executable, "-c", script, str(self.canary)], **where))
        for way in ("as it is", "up", "root", "cwd", "link", "moved"):
            self.assertEqual(said[way], "the canary", way)
        self.assertIn("the canary", [v for k, v in said.items() if k.startswith("root of")])
        if not os.statvfs(self.dir).f_flag & os.ST_NOATIME:
            self.assertNotEqual(self.canary.stat().st_atime, LONG_AGO)

    def test_what_is_read_only_stays_so(self):
        """Row 2. The mounts that mask parts of /proc also stay."""
        said = json.loads(self.python(self.sandbox, REMOUNT, opts=["-u", "root"]))
        self.assertEqual({k: v for k, v in said.items() if v not in ("EPERM", "EACCES")}, {})
        self.assertGreater(len(said), 40)
        for path in ("/sys/x", "/proc/sys/x", "/proc/bus/x"):
            self.assertNotEqual(hutch("exec", "-u", "root", self.sandbox, "--", "sh", "-c", f"echo x >{path}").returncode, 0)

    def test_control_a_mount_can_be_made_writable_by_who_may(self):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as f:
            f.write(REMOUNT)
            f.flush()
            os.chmod(f.name, 0o644)
            inside = f"mount -t tmpfs -o ro tmpfs {self.dir} && exec {sys.executable} {f.name} {self.dir}"
            out = subprocess.check_output(["unshare", "--map-root-user", "--mount", "sh", "-c", inside])
        self.assertEqual(set(json.loads(out).values()), {"ok"})

    def test_links_to_the_host_are_not_followed_when_it_is_removed(self):
        """Row 14. Plants links to the canary, its directory and hutch's own directories
        everywhere."""
        sandbox = self.create("--agent", anywhere())
        targets = [self.canary, self.dir, "/", RUN, self.inspect(sandbox)["root"], "/proc/self/fd", "/dev"]
        self.python(sandbox, """
import os, sys
for where in ('/tmp', '/', '/run', '/dev/shm', '/etc'):
    for i, target in enumerate(sys.argv[1:]):
        os.symlink(target, f'{where}/planted{i}')""", *map(str, targets), opts=["-u", "root"])
        self.ended(hutch("rm", "-f", sandbox), 0)
        self.assertEqual(text_of(self.canary), "the canary")
        self.assertTrue((RUN / "sandboxes" / self.sandbox / "spec.json").exists())
        self.assertEqual(self.sh(self.sandbox, "cat /etc/motd"), "the image\n")

    def test_control_whoever_follows_such_a_link_is_there(self):
        with tempfile.TemporaryDirectory() as tree:
            os.symlink(self.dir, f"{tree}/planted0")
            self.assertIn("canary", [name for _, _, names in os.walk(tree, followlinks=True) for name in names])


class Image(SandboxCase):
    def test_an_image_is_not_changed_from_inside(self):
        """Row 16. Changes go to the sandbox's own layer; control: they are visible there.
        Landlock does not interfere."""
        sandbox = self.create("--agent", anywhere())
        tree = Path(self.inspect(sandbox)["root"])
        files = [tree / "etc" / name for name in ("motd", "passwd", "group", "shells")]
        before = [(f.lstat(), digest(f)) for f in files] + [(tree / "etc").lstat()]
        names = sorted(os.listdir(tree / "etc"))
        done = json.loads(self.python(sandbox, CHANGE, opts=["-u", "root"]))
        self.assertLessEqual({"write", "append", "map", "mode", "times", "truncate", "remove", "replace"}, set(done))
        self.assertNotEqual(self.sh(sandbox, "cat /etc/motd /etc/passwd"), "the image\n")
        now = [(f.lstat(), digest(f)) for f in files] + [(tree / "etc").lstat()]
        # Ignore access times: digest() has read the files.
        plain = [(b[0].st_mtime_ns, b[0].st_ctime_ns, b[0].st_mode, b[0].st_uid, b[0].st_size, b[1]) for b in before[:-1]]
        self.assertEqual(plain, [(b[0].st_mtime_ns, b[0].st_ctime_ns, b[0].st_mode, b[0].st_uid, b[0].st_size, b[1]) for b in now[:-1]])
        self.assertEqual(before[-1].st_mtime_ns, now[-1].st_mtime_ns)
        self.assertEqual(names, sorted(os.listdir(tree / "etc")))
        self.assertEqual(self.out("cat", "/etc/motd"), "the image\n")

    def test_an_image_is_not_changed_through_a_pipe(self):
        """Row 42. Control: reading the pipe shows that the page was in it."""
        sandbox = self.create()
        file = Path(self.inspect(sandbox)["root"]) / "etc/shells"
        text, before = file.read_text(), digest(file)
        for user in ("user", "root"):
            said = json.loads(self.python(sandbox, PIPE, opts=["-u", user]))
            self.assertEqual(said, {**dict.fromkeys(("splice", "sendfile"), text[0] + "overwritten"),
                                    **dict.fromkeys(("splice since", "sendfile since"), True)})
        self.assertEqual(digest(file), before)
        self.assertEqual(self.out("cat", "/etc/shells"), text)

    def hostile(self, *entries):
        """Imports an image with a minimal set of directories and these entries: (name, link
        target)."""
        with tempfile.NamedTemporaryFile(suffix=".tar") as file:
            self.write_tar(file, entries)
            r = hutch("image", "import", "hostile", file.name)
        if r.returncode == 0:
            self.addCleanup(hutch, "image", "rm", "hostile")
        return r

    def write_tar(self, file, entries):
        with tarfile.open(fileobj=file, mode="w") as tar:
            for name in ("bin", "etc"):
                info = tarfile.TarInfo(name)
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(info)
            for name, target in entries:
                info = tarfile.TarInfo(name)
                info.type, info.linkname, info.mode = tarfile.SYMTYPE, target, 0o777
                tar.addfile(info)
        file.flush()

    def test_places_of_mounts_that_lead_elsewhere(self):
        """Rows 3 and 4: the method of CVE-2019-19921, CVE-2023-27561, CVE-2025-31133. Import
        rejects such an image."""
        for name in ("proc", "sys", "dev", "run"):
            for target in ("/etc", "../../../etc", "/proc/1/root", "bin"):
                with self.subTest(name=name, target=target):
                    r = self.hostile((name, target))
                    self.assertNotEqual(r.returncode, 0)
                    self.assertIn(f"/{name}'".encode(), r.stderr)
        for name in ("dev/null", "dev/console", "dev/pts", "dev/shm", "proc/sys", "proc/self", "sys/fs"):
            with self.subTest(name=name):
                self.ended(self.hostile((name, "/proc/sysrq-trigger")), 0)
                tree = Path(self.json("image", "inspect", "--json", "hostile")["root"])
                self.assertEqual(os.listdir(tree / name.split("/")[0]), [], "left out")

    def test_control_a_link_elsewhere_comes_in(self):
        self.ended(self.hostile(("elsewhere", "/etc")), 0)
        self.assertEqual(os.readlink(Path(self.json("image", "inspect", "--json", "hostile")["root"]) / "elsewhere"), "/etc")

    def test_a_workspace_that_leads_elsewhere(self):
        """The only path of an image that hutch creates: hutch makes nothing outside and does not
        look outside."""
        where = Path(tempfile.mkdtemp())
        self.addCleanup(where.rmdir)
        for target in (f"{where}/made", "/proc/self/cwd/made", "../../../../made"):
            with self.subTest(target=target):
                self.ended(self.hostile(("workspace", target)), 0)
                r = hutch("create", "--image", "hostile")
                self.assertNotEqual(r.returncode, 0)
                self.assertIn(b"workspace", r.stderr)
        # A path that exists on the host but not in the image fails as above; one in the image is
        # found inside.
        self.ended(self.hostile(("workspace", "/usr")), 0)
        self.assertIn(b"workspace", hutch("create", "--image", "hostile").stderr)
        self.ended(self.hostile(("workspace", "/etc")), 0)
        self.create("--image", "hostile")
        self.assertEqual(os.listdir(where), [])


class Trees(SandboxCase):
    def test_deep_and_wide_trees_are_removed(self):
        """Row 13. hutch does not walk the trees; they go away with their file system. (Landlock
        slows down the creation of deeper ones, on the sandbox's time.)"""
        sandbox = self.create(*LOOSE, "--memory", "1GiB", "--disk", "700MiB")
        self.assertEqual(self.python(sandbox, DEEP, "4000", "20000"), "20000\n")
        self.ended(hutch("rm", "-f", sandbox), 0)

    def test_control_such_a_tree_cannot_be_walked_by_its_path(self):
        sandbox = self.create(*LOOSE, "--memory", "1GiB", "--disk", "700MiB")
        self.python(sandbox, DEEP, "100", "1")
        r = hutch("exec", sandbox, "--", "python3", "-c", "import os; os.stat('/tmp' + ('/' + 'd' * 200) * 100)")
        self.assertIn(b"too long", r.stderr)


class SetId(SandboxCase):
    COPY = ("import os, shutil; shutil.copy('/bin/cat', '{0}'); os.chmod('{0}', 0o6755); "
            "print(oct(os.stat('{0}').st_mode & 0o7777))")

    def test_setuid_files_give_nothing(self):
        """Row 15. Root inside makes the files, another user inside runs them; file capabilities
        cannot be set at all."""
        sandbox = self.create()
        self.assertEqual(self.python(sandbox, self.COPY.format("/tmp/cat"), opts=["-u", "root"]), "0o6755\n")
        said = self.exec_(sandbox, "/tmp/cat", "/proc/self/status").stdout.decode()
        self.assertRegex(said, r"(?m)^Uid:\t1000\t1000\t1000\t1000$")
        self.assertRegex(said, r"(?m)^Gid:\t1000\t1000\t1000\t1000$")
        self.assertRegex(said, r"(?m)^CapPrm:\t0+$")
        r = hutch("exec", "-u", "root", sandbox, "--", "python3", "-c", """
import os
os.setxattr('/tmp/cat', 'security.capability', bytes.fromhex('0000000200000080000000000000000000000000'))""")
        self.assertNotEqual(r.returncode, 0)

    @as_root
    def test_control_they_do_on_the_host(self):
        with tempfile.TemporaryDirectory(dir="/run" if os.statvfs("/tmp").f_flag & os.ST_NOSUID else "/tmp") as tmp:
            os.chmod(tmp, 0o755)
            if os.statvfs(tmp).f_flag & os.ST_NOSUID:
                self.skipTest("no directory whose set-ID bits count")
            subprocess.run([sys.executable, "-c", self.COPY.format(f"{tmp}/cat")], check=True, stdout=subprocess.DEVNULL)
            out = subprocess.check_output([f"{tmp}/cat", "/proc/self/status"], user=12345, group=12345, extra_groups=[], text=True)
        self.assertRegex(out, r"(?m)^Uid:\t12345\t0\t")


class Names(SandboxCase):
    """Row 18. Invalid names are rejected as such, without a lookup."""

    WRONG = ["..", ".", "../../etc", "/etc", "a/b", "-x", ".hidden", "A" * 16, "a" * 300, "a" * 100000, "", " ", "a\nb", "a\tb",
             "\x1b]0;x\x07", "\u202etxt", "\uff41" * 16, "\u0661" * 16, "a%2fb", "a\\b", "*", "~", "a\u0000".replace("\0", "\x01")]

    def one_line(self, r, name):
        said = r.stderr.decode()
        self.assertNotEqual(r.returncode, 0, name)
        self.assertEqual((r.stdout, said.count("\n")), (b"", 1), said)
        self.assertNotRegex(said, "[\x00-\x09\x0b-\x1f\x7f\x80-\x9f\u202a-\u202e\u2066-\u2069]", name)
        self.assertLess(len(said), 600)
        return said

    def test_ids(self):
        for name in self.WRONG:
            for command in (["exec", name, "--", "true"], ["kill", name], ["rm", "-f", name], ["inspect", name], ["receipt", name]):
                if not name.startswith("-"):
                    with self.subTest(command=command[0], name=name[:40]):
                        self.assertRegex(self.one_line(hutch(*command), name), "is not the id of a sandbox")

    def test_images_and_agents(self):
        for name in self.WRONG:
            for option in ("--image", "--agent"):
                with self.subTest(option=option, name=name[:40]):
                    self.one_line(hutch("run", f"{option}={name}", "--", "true"), name)

    def test_control_names_that_are_right_are_looked_for(self):
        self.assertIn("no sandbox", self.one_line(hutch("inspect", "a" * 16), "id"))
        self.assertIn("no image", self.one_line(hutch("run", "--image=some", "--", "true"), "image"))


class State(SandboxCase):
    """Foreign objects among the sandboxes: hutch does not block on them, does not follow them,
    and handles the valid sandboxes."""

    def plant(self, name, make):
        make(RUN / "sandboxes" / name)
        self.addCleanup(subprocess.run, ["rm", "-rf", RUN / "sandboxes" / name], check=True)

    def test_things_that_are_no_sandboxes(self):
        with tempfile.TemporaryDirectory() as elsewhere:
            (Path(elsewhere) / "spec.json").write_text("{}")
            self.plant("a" * 16, lambda p: p.touch())
            self.plant("b" * 16, lambda p: p.symlink_to(elsewhere))
            self.plant("c" * 16, os.mkfifo)
            for i, name in enumerate(("spec.json", "lock", "end.json", "sock", "log")):
                self.plant(f"d{i}" * 8, lambda p, name=name: (p.mkdir(), os.mkfifo(p / name)))
                self.plant(f"e{i}" * 8, lambda p, name=name: (p.mkdir(), (p / name).symlink_to(f"{elsewhere}/spec.json")))
            self.plant("f" * 16, lambda p: (p / "sub").mkdir(parents=True))
            sandbox = self.create()
            self.assertEqual(self.sh(sandbox, "echo well"), "well\n")
            self.assertIn(sandbox, self.ps("-a"))
            for name in ("a" * 16, "b" * 16, "c" * 16, "f" * 16):
                self.assertNotEqual(hutch("rm", "-f", name).returncode, 0, name)
            self.assertEqual(os.listdir(elsewhere), ["spec.json"])
            self.assertEqual((Path(elsewhere) / "spec.json").read_text(), "{}")
