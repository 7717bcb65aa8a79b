# SPDX-License-Identifier: Apache-2.0
"""`hutch cp` and `hutch watch`: trees in and out of a sandbox, byte for byte, and the state
after failures."""

import contextlib
import hashlib
import io
import json
import os
import signal
import stat
import subprocess
import tarfile
import tempfile
from pathlib import Path

from sandbox import LONG, SharedCase, SandboxCase, eventually, hutch, start

MANY = 20 << 20
# A name for every byte except NUL and slash, and one name with all of them.
NAMES = [bytes([c]) + b"name" for c in range(1, 256) if c != ord("/")]
NAMES.append(bytes(c for c in range(1, 256) if c != ord("/")))


def listing(top):
    """Everything below a directory by name: type, mode, time, contents or target."""
    found = {}
    for where, dirs, files in os.walk(os.fsencode(top)):
        for name in [b"."] + [d for d in dirs if os.path.islink(os.path.join(where, d))] + files:
            path = os.path.normpath(os.path.join(where, name))
            st = os.lstat(path)
            if stat.S_ISLNK(st.st_mode):
                what = os.readlink(path)
            else:
                what = hashlib.sha256(Path(os.fsdecode(path)).read_bytes()).hexdigest() if stat.S_ISREG(st.st_mode) else ""
            found[os.path.relpath(path, os.fsencode(top))] = (stat.S_IFMT(st.st_mode), stat.S_IMODE(st.st_mode), int(st.st_mtime), what)
    return found


class CopyCase(SharedCase):
    def setUp(self):
        super().setUp()
        self.dir = Path(tempfile.mkdtemp())
        self.addCleanup(self.remove)
        self.inside = "/tmp/" + os.path.basename(self.dir)
        self.sh(self.sandbox, f"mkdir {self.inside}")

    def remove(self):
        subprocess.run(["chmod", "-R", "u+rwX", self.dir], check=True)
        subprocess.run(["rm", "-r", self.dir], check=True)
        self.sh(self.sandbox, f"chmod -R u+rwX {self.inside}; rm -r {self.inside}")
        # A killed worker is listed until it has been reaped.
        eventually(lambda: self.commands_in(self.sandbox) == [], "the end of all commands")

    def box(self, path=""):
        return f"{self.sandbox}:{self.inside}{path}"

    def cp(self, *args, code=0, **more):
        return self.ended(hutch("cp", *map(str, args), **more), code)

    def said(self, *args, code=1, **more):
        r = self.cp(*args, code=code, **more)
        self.assertRegex(r.stderr.decode(), r"\Ahutch cp: .*\n\Z")
        self.assertNotIn("\x1b", r.stderr.decode())
        return r.stderr.decode()

    def names(self, where="."):
        return sorted(os.listdir(self.dir / where))

    def tree(self):
        top = self.dir / "tree"
        (top / "empty").mkdir(parents=True)
        (top / "sub" / "deep").mkdir(parents=True)
        (top / "sub" / "deep" / "file").write_bytes(os.urandom(300_000))
        (top / "none").touch()
        (top / "run").write_text("#!/bin/sh\n")
        (top / "run").chmod(0o711)
        (top / "secret").write_text("x")
        (top / "secret").chmod(0o400)
        (top / "link").symlink_to("sub/deep/file")
        (top / "nowhere").symlink_to("/does/not/exist/" + "n" * 200)
        (top / ("long" * 60)).mkdir()
        (top / ("long" * 60) / ("name" * 60)).write_text("far")
        (top / "bytes").mkdir()
        for name in NAMES:
            with open(os.fsencode(top / "bytes") + b"/" + name, "wb") as f:
                f.write(name)
        (top / "locked").mkdir()
        (top / "locked" / "in").write_text("in")
        (top / "locked").chmod(0o555)
        for path in [top / "none", top / "sub" / "deep", top / "sub", top]:
            os.utime(path, (1_600_000_000, 1_500_000_000))
        return top


class Copies(CopyCase):
    def test_a_tree_goes_in_and_comes_out_as_it_was(self):
        top = self.tree()
        said = json.loads(self.cp("--json", top, self.box()).stdout)
        want = listing(top)
        self.assertEqual((said["entries"], said["left_out"]), (len(want), None))
        self.cp(self.box("/tree"), self.dir / "back")
        self.assertEqual(listing(self.dir / "back"), want)
        self.assertEqual({os.lstat(p).st_uid for p in (self.dir / "back").rglob("*")}, {os.getuid()})
        self.assertEqual(self.names(), ["back", "tree"])
        self.assertEqual(self.sh(self.sandbox, f"stat -c %U {self.inside}/tree/none {self.inside}/tree").split(), ["user", "user"])

    def test_where_it_goes(self):
        for way in ("in", "out"):
            with self.subTest(way=way):
                here = self.dir if way == "in" else Path(tempfile.mkdtemp(dir=self.dir))
                if way == "in":
                    (here / "f").write_text("f")
                    (here / "d").mkdir()
                    (here / "d" / "x").write_text("x")
                    src, dst = str(here), self.box()
                else:
                    src, dst = self.box(), str(here)
                self.cp(f"{src}/f", f"{dst}/new")  # file to a name
                self.cp(f"{src}/f", f"{dst}/new")  # over a file
                self.cp(f"{src}/f", dst if way == "out" else f"{dst}/")  # into a directory
                self.cp(f"{src}/d", f"{dst}/e")  # directory to a name
                self.cp(f"{src}/d", f"{dst}/e")  # into a directory
                self.cp(f"{src}/d/.", f"{dst}/g")  # contents to a name
                self.cp(f"{src}/d/.", f"{dst}/e")  # contents into a directory
                self.cp(f"{src}/d/", f"{dst}/")
                want = ["./d", "./d/x", "./e", "./e/d", "./e/d/x", "./e/x", "./f", "./g", "./g/x", "./new"]
                if way == "in":
                    found = self.sh(self.sandbox, f"cd {self.inside} && find . -mindepth 1").split()
                else:
                    found = ["./" + str(p.relative_to(here)) for p in here.rglob("*")]
                self.assertEqual(sorted(found), want)

    def test_what_cannot_be_is_said(self):
        (self.dir / "f").write_text("f")
        (self.dir / "d").mkdir()
        self.sh(self.sandbox, f"cd {self.inside} && echo f > f && mkdir d d/f")
        here = self.dir
        for args, words, code in (((here / "no", self.box()), "No such file", 1), ((self.box("/no"), here), "No such file", 125),
                                  ((here / "f", self.box("/no/f")), "No such file", 125), ((self.box("/f"), here / "no" / "f"), "No such file", 1),
                                  ((here / "f", self.box("/new/")), "not a directory", 125), ((self.box("/f"), f"{here}/new/"), "not a directory", 125),
                                  ((here / "d", self.box("/f")), "not a directory", 125), ((self.box("/d"), here / "f"), "Not a directory", 125),
                                  ((here / "f", self.box("/d")), "a directory of that name", 125), ((self.box("/f"), "/proc"), "cannot write", 1)):
            with self.subTest(args=args):
                self.assertIn(words, self.said(*args, code=code))
        self.assertIn("the name of the user is not valid UTF-8", self.said("-u", "\udc9b", self.box("/f"), here, code=1))
        (here / "d" / "f").mkdir()
        self.assertIn("cannot replace the directory", self.said(self.box("/f"), here / "d", code=125))
        self.assertEqual(self.names(), ["d", "f"])

    def test_usage(self):
        for args in (("a", "b"), (self.box(), self.box()), ("a", f"{self.sandbox}:relative"), ("--max-size", "12", self.box(), "x"),
                     ("--max-entries", "x", self.box(), "x")):
            self.cp(*args, code=2)

    def test_large_files_are_the_same(self):
        data = hashlib.shake_256(b"copy").digest(MANY) + b"odd"
        (self.dir / "large").write_bytes(data)
        self.cp(self.dir / "large", self.box("/large"))
        self.assertEqual(self.sh(self.sandbox, f"sha256sum < {self.inside}/large").split()[0], hashlib.sha256(data).hexdigest())
        self.cp(self.box("/large"), self.dir / "back")
        self.assertTrue((self.dir / "back").read_bytes() == data, "other bytes")

    def test_archives_on_stdin_and_stdout(self):
        top = self.tree()
        packed = subprocess.run(["tar", "c", "-C", self.dir, "tree"], check=True, stdout=subprocess.PIPE).stdout
        self.cp("-", self.box(), input=packed)
        r = self.cp(self.box("/tree"), "-")
        (self.dir / "out").mkdir()
        subprocess.run(["tar", "xp", "-C", self.dir / "out"], input=r.stdout, check=True)
        self.assertEqual(listing(self.dir / "out" / "tree"), listing(top))

    def test_what_is_no_file_is_left_out_and_told(self):
        self.sh(self.sandbox, f"cd {self.inside} && mkdir d && echo x > d/f && mkfifo d/p && chmod 4755 d/f && mkdir -m 0 d/closed")
        r = self.cp("--json", self.box("/d"), self.dir, code=1)
        told = json.loads(r.stdout)["left_out"]
        self.assertIn("1 left out (sockets, FIFOs, devices)", told)
        self.assertIn("1 without their set-ID bits", told)
        self.assertIn("1 could not be read ('d/closed': Permission denied)", told)
        self.assertEqual(self.names("d"), ["f"])
        self.assertIn("neither a file", self.said(self.box("/d/p"), self.dir, code=125))
        os.mkfifo(self.dir / "d" / "p")
        self.assertIn("1 left out", self.said(self.dir / "d", self.box("/e")))
        self.assertEqual(self.sh(self.sandbox, f"ls {self.inside}/e"), "f\n")

    def test_hostile_names_are_escaped(self):
        self.python(self.sandbox, f"import os; os.mkdir('{self.inside}/d'); os.mkfifo('{self.inside}/d/x'); "
                    f"os.mkdir(b'{self.inside}/d/\\x1b]0;evil\\x07', 0)")
        self.assertIn(r"\x1b]0;evil\x07", self.said(self.box("/d"), self.dir))

    def test_limits(self):
        self.sh(self.sandbox, f"cd {self.inside} && mkdir d && touch d/1 d/2 d/3 && truncate -s 1T sparse")
        self.assertIn("more than 3 entries", self.said("--max-entries", "3", self.box("/d"), self.dir, code=125))
        self.assertIn("larger than allowed", self.said(self.box("/sparse"), self.dir))
        self.assertEqual(self.names(), [])
        self.cp("--max-entries", "4", self.box("/d"), self.dir)

    def test_users(self):
        (self.dir / "f").write_text("f")
        self.cp("-u", "root", self.dir / "f", f"{self.sandbox}:/root/f")
        self.assertEqual(self.sh(self.sandbox, "stat -c %u /root/f", opts=["-u", "root"]), "0\n")
        self.assertIn("denied", self.said(self.dir / "f", f"{self.sandbox}:/root/f", code=125))
        self.assertIn("denied", self.said(f"{self.sandbox}:/root/f", self.dir, code=125))
        self.sh(self.sandbox, "rm /root/f", opts=["-u", "root"])

    def test_many_files(self):
        count = 3000
        self.python(self.sandbox, f"import os\nos.mkdir('{self.inside}/d')\nfor i in range({count}): open(f'{self.inside}/d/{{i}}', 'w').write(str(i))")
        self.cp(self.box("/d"), self.dir)
        self.assertEqual({p.name: p.read_text() for p in (self.dir / "d").iterdir()}, {str(i): str(i) for i in range(count)})
        self.cp(self.dir / "d", self.box("/e"))
        self.sh(self.sandbox, f"diff -r {self.inside}/d {self.inside}/e")


def half_an_archive():
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as t:
        info = tarfile.TarInfo("half")
        info.size = 1 << 20
        t.addfile(info, io.BytesIO(bytes(1 << 20)))
    return data.getvalue()[: 1 << 19]


class Interrupted(CopyCase):
    def fifo_source(self):
        """Starts a copy into the sandbox that stops halfway: its archive comes from a pipe."""
        p = start("cp", "-", self.box(), stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(p.stderr.close)
        p.stdin.write(half_an_archive())
        p.stdin.flush()
        eventually(lambda: ".hutch-new-" in self.sh(self.sandbox, f"ls -A {self.inside}"), "the beginning of the file")
        return p

    def test_an_interrupted_copy_in_leaves_nothing(self):
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with self.subTest(sig=sig):
                p = self.fifo_source()
                p.send_signal(sig)
                p.stdin.close()
                self.assertEqual(p.wait(LONG), -sig)
                eventually(lambda: self.sh(self.sandbox, f"ls -A {self.inside}") == "", "the end of what was begun")

    def test_an_archive_that_ends_too_early_is_refused(self):
        p = self.fifo_source()
        p.stdin.close()
        self.assertEqual(p.wait(LONG), 125)
        self.assertIn("cut off", p.stderr.read().decode())
        eventually(lambda: self.sh(self.sandbox, f"ls -A {self.inside}") == "", "the end of what was begun")

    def test_an_interrupted_copy_out_leaves_nothing(self):
        self.sh(self.sandbox, f"truncate -s 1T {self.inside}/sparse")
        for sig in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(sig=sig):
                p = start("cp", "--max-size", "2TiB", self.box("/sparse"), str(self.dir / "f"))
                eventually(lambda: list(self.dir.glob(".hutch-cp-*/.hutch-new-*")), "the beginning of the file")
                p.send_signal(sig)
                self.assertEqual(p.wait(LONG), -sig)
                self.assertEqual(self.names(), [])

    def test_a_reader_that_goes_ends_it(self):
        self.sh(self.sandbox, f"truncate -s 1T {self.inside}/sparse")
        p = start("cp", self.box("/sparse"), "-", stdout=subprocess.PIPE)
        self.assertEqual(len(p.stdout.read(1000)), 1000)
        p.stdout.close()
        self.assertNotEqual(p.wait(LONG), 0)


class Dying(SandboxCase):
    def test_the_end_of_a_sandbox_ends_a_copy(self):
        with tempfile.TemporaryDirectory() as here:
            for way in ("in", "out"):
                with self.subTest(way=way):
                    sandbox = self.create()
                    self.sh(sandbox, "truncate -s 1T /tmp/sparse")
                    args = ("-", f"{sandbox}:/tmp") if way == "in" else ("--max-size", "2TiB", f"{sandbox}:/tmp/sparse", f"{here}/f")
                    p = start("cp", *args, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
                    if way == "in":
                        p.stdin.write(half_an_archive())
                        p.stdin.flush()
                        eventually(lambda s=sandbox: ".hutch-new-" in self.sh(s, "ls -A /tmp"), "a beginning")
                    else:
                        eventually(lambda: os.listdir(here), "a beginning")
                    hutch("kill", sandbox)
                    self.assertEqual(p.wait(LONG), 125)
                    self.assertIn("ended", p.stderr.read().decode())
                    p.stdin.close()
                    p.stderr.close()
                    self.assertEqual(os.listdir(here), [])
                    self.assertIn(f"sandbox {sandbox} ended at 20", hutch("cp", f"{sandbox}:/etc/hostname", here).stderr.decode())


class Watch(CopyCase):
    @contextlib.contextmanager
    def watching(self, *opts):
        p = start("watch", *opts, self.box(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        # The only sign that the watch works is its output.
        os.set_blocking(p.stdout.fileno(), False)
        seen = b""

        def first():
            nonlocal seen
            self.sh(self.sandbox, f"touch {self.inside}/ready")
            seen += p.stdout.read() or b""
            return b"ready" in seen

        eventually(first, "the first event")
        os.set_blocking(p.stdout.fileno(), True)
        try:
            yield p
        finally:
            p.kill()
            p.wait(LONG)
            p.stdout.close()
            p.stderr.close()

    def lines(self, p, last):
        found = []
        while not found or last not in found[-1]:
            found.append(p.stdout.readline().decode())
            self.assertTrue(found[-1].endswith("\n"), found)
        return found

    def test_events_are_printed_until_ctrl_c(self):
        with self.watching() as p:
            self.python(self.sandbox, f"open(b'{self.inside}/\\x1b[31m', 'w'); import os; os.rename('{self.inside}/ready', '{self.inside}/r2'); "
                        f"os.remove('{self.inside}/r2')")
            found = self.lines(p, "removed     r2")
            self.assertIn("created     \\x1b[31m\n", found)
            self.assertIn("renamed     ready\n", found)
            p.send_signal(signal.SIGINT)
            self.assertEqual(p.wait(LONG), -signal.SIGINT)

    def test_below_and_as_json(self):
        with self.watching("-r", "--json") as p:
            self.sh(self.sandbox, f"mkdir -p {self.inside}/a/b && echo x > {self.inside}/a/b/last")
            found = [json.loads(line) for line in self.lines(p, "last")]
            self.assertIn({"event": "created", "path": "a"}, found)

    def test_what_a_copy_puts_in_place_is_seen_once_it_is_there(self):
        (self.dir / "f").write_text("f")
        with self.watching() as p:
            self.cp(self.dir / "f", self.box("/copied"))
            found = self.lines(p, "written     copied")
            self.assertIn("created     copied\n", found)
            self.assertNotIn(".hutch", "".join(found))

    def test_the_directory_goes(self):
        with self.watching() as p:
            self.sh(self.sandbox, f"rm -r {self.inside}")
            self.assertEqual(p.wait(LONG), 125)
            self.assertIn("gone", p.stderr.read().decode())
            self.sh(self.sandbox, f"mkdir {self.inside}")

    def test_wrong(self):
        for args in ((self.dir,), (f"{self.sandbox}:x",)):
            self.assertEqual(hutch("watch", *map(str, args)).returncode, 2)
        r = hutch("watch", f"{self.sandbox}:/no")
        self.assertEqual((r.returncode, r.stderr), (125, b"hutch watch: cannot watch '/no': No such file or directory\n"))
        r = hutch("watch", "-u", "\udc9b", f"{self.sandbox}:/")
        self.assertIn(b"the name of the user is not valid UTF-8\n", self.ended(r, 1).stderr)
