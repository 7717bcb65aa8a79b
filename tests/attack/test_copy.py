# SPDX-License-Identifier: Apache-2.0
"""
Attacks through `hutch cp` and `hutch commit`: archives that break out of other programs, copied
into a sandbox and out of one with a hostile agent; links planted in the middle of a copy; special
files. The control is Python's tarfile without its filter, which writes outside with the same
archives.
"""

import contextlib
import io
import os
import socket
import struct
import subprocess
import tarfile
import tempfile
import threading
from pathlib import Path

import wire
from sandbox import RUN, SharedCase, hutch, start
from waiting import LONG, eventually

# Newer versions filter by default.
TRUSTING = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
ENTRY = {"kind": wire.DIRECTORY, "size": 0, "mode": 0o755, "uid": 0, "gid": 0, "mtime_ns": 0}


def member(name, kind=tarfile.REGTYPE, target="", mode=0o644, data=b"evil"):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, target, mode
    info.size = len(data) if kind == tarfile.REGTYPE else 0
    return info, data


def archive(*members, form=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as t:
        for info, data in members:
            t.addfile(info, io.BytesIO(data))
    return out.getvalue()


def hostile(canary):
    """Returns each attack's archive and the expected message. The top directory is `d`."""
    up = os.path.relpath(canary, os.path.dirname(canary))
    top = member("d", tarfile.DIRTYPE, mode=0o755)
    return {
        "dots": (archive(top, member(f"d/../../{up}")), "'..'"),
        "dots in a link": (archive(top, member("d/h", tarfile.LNKTYPE, f"d/../../{up}")), "'..'"),
        "absolute": (archive(top, member(canary)), "absolute"),
        "through a link": (archive(top, member("d/l", tarfile.SYMTYPE, os.path.dirname(canary)), member(f"d/l/{up}")), "symbolic link"),
        "through two links": (archive(top, member("d/a", tarfile.SYMTYPE, ".."), member("d/b", tarfile.SYMTYPE, "a/.."), member(f"d/b/{up}")),
                              "symbolic link"),
        "a link as a directory": (archive(top, member("d/l", tarfile.SYMTYPE, os.path.dirname(canary)), member("d/l", tarfile.DIRTYPE, mode=0o777)),
                                  "symbolic link"),
        "hard link out": (archive(top, member("d/h", tarfile.LNKTYPE, canary)), "absolute"),
        "hard link through a link": (archive(top, member("d/l", tarfile.SYMTYPE, os.path.dirname(canary)),
                                             member("d/h", tarfile.LNKTYPE, f"d/l/{up}")), "missing file"),
        "device": (archive(top, member("d/n", tarfile.CHRTYPE)), "devices"),
        "FIFO": (archive(top, member("d/n", tarfile.FIFOTYPE)), "FIFOs"),
        "setuid": (archive(top, member("d/s", mode=0o4755)), "set-ID"),
        "setgid directory": (archive(top, member("d/s", tarfile.DIRTYPE, mode=0o2755)), "set-ID"),
        "sparse": (archive(top, member("d/s", tarfile.GNUTYPE_SPARSE)), "sparse"),
        "too deep": (archive(top, member("d/" + "x/" * 200 + "f")), "deep"),
        "long name": (archive(top, member("d/" + "x" * 300)), "too long"),
        "cut": (archive(top, member("d/f"))[:1100], "cut off"),
        "behind the end": (archive(top, member("d/f")) + b"x" * 512, "behind the end"),
    }


class Fake(threading.Thread):
    """A keeper with a hostile guest: it answers every OPEN with one archive."""

    def __init__(self, path, data, kind=wire.DIRECTORY, silent=False):
        super().__init__(daemon=True)
        self.data, self.kind, self.silent = data, kind, silent  # silent: sends nothing after the data
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(path)
        self.server.listen()
        self.start()

    def run(self):
        with contextlib.suppress(OSError), self.server.accept()[0] as s:
            def send(kind, channel=0, sub=0, payload=b""):
                s.sendall(wire.HEADER.pack(len(payload), channel, kind, sub, 0) + payload)

            def take():
                head = s.recv(12, socket.MSG_WAITALL)
                return s.recv(struct.unpack(">I", head[:4])[0], socket.MSG_WAITALL)

            take()
            send(wire.HELLO, payload=wire.encode(version=1, agent="fake"))
            take()
            send(wire.ACCEPT, 2, payload=wire.encode(path="/d", **dict(ENTRY, kind=self.kind)))
            for at in range(0, len(self.data), 65536):
                send(wire.DATA, 2, 0, self.data[at:at + 65536])
            if self.silent:
                s.recv(1)
            send(wire.EOF, 2)
            send(wire.CLOSE, 2, payload=wire.encode(code=0))
            s.recv(1)


class FakeCase(SharedCase):
    def setUp(self):
        super().setUp()
        self.dir = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.canary = self.dir / "canary"
        self.canary.write_text("safe")
        (self.dir / "in").mkdir()

    def unharmed(self):
        self.assertEqual(self.canary.read_text(), "safe")
        self.assertEqual(self.canary.stat().st_nlink, 1)
        self.assertEqual(self.canary.stat().st_mode & 0o7777, 0o644)
        self.assertEqual(sorted(os.listdir(self.dir)), ["canary", "in"])

    def from_fake(self, data, *command, kind=wire.DIRECTORY, code=None, silent=False):
        """Runs hutch while the sandbox answers with `data`."""
        real = RUN / "sandboxes" / self.sandbox / "sock"
        aside = real.with_name("sock.real")
        real.rename(aside)
        try:
            fake = Fake(str(real), data, kind, silent)
            r = hutch(*command)
            fake.server.close()
        finally:
            with contextlib.suppress(FileNotFoundError):
                real.unlink()
            aside.rename(real)
        if code is not None:
            self.assertEqual(r.returncode, code, r.stderr)
        return r


class CopyAttack(FakeCase):
    def out_of(self, data, *opts, **more):
        """Runs hutch cp from a sandbox that sends `data`."""
        return self.from_fake(data, "cp", *opts, f"{self.sandbox}:/d", str(self.dir / "in"), **more)

    def test_control_the_archives_do_harm(self):
        broken = set()
        for name, (data, _) in hostile(str(self.canary)).items():
            with contextlib.suppress(Exception):
                tarfile.open(fileobj=io.BytesIO(data)).extractall(self.dir / "in", **TRUSTING)
            if self.canary.read_text() != "safe" or self.canary.stat().st_nlink > 1:
                broken.add(name)
            subprocess.run(["rm", "-rf", self.dir / "in"], check=True)
            self.canary.unlink()
            self.canary.write_text("safe")
            (self.dir / "in").mkdir()
        self.assertLessEqual({"dots", "absolute", "through a link", "hard link out"}, broken)

    def test_out_of_a_hostile_sandbox(self):
        for name, (data, words) in hostile(str(self.canary)).items():
            with self.subTest(name):
                r = self.out_of(data)
                self.assertIn(words, r.stderr.decode())
                self.assertNotEqual(r.returncode, 0)
                self.unharmed()
                self.assertEqual(os.listdir(self.dir / "in"), [], "something is left of it")

    def test_control_a_good_archive_comes_out(self):
        self.out_of(archive(member("d", tarfile.DIRTYPE, mode=0o755), member("d/f")), code=0)
        self.assertEqual((self.dir / "in" / "d" / "f").read_text(), "evil")

    def test_onto_a_directory_that_is_there(self):
        """The directory holds a link that leads out; hutch does not follow it."""
        (self.dir / "in" / "d").mkdir()
        (self.dir / "in" / "d" / "l").symlink_to("../..")
        r = self.out_of(archive(member("d", tarfile.DIRTYPE, mode=0o755), member("d/l/canary")))
        self.assertIn("symbolic link", r.stderr.decode())
        self.unharmed()
        self.out_of(archive(member("d", tarfile.DIRTYPE, mode=0o777), member("d/l")), code=0)  # replaces the link
        self.assertFalse((self.dir / "in" / "d" / "l").is_symlink())
        self.unharmed()

    def test_two_tops(self):
        r = self.out_of(archive(member("d", tarfile.DIRTYPE, mode=0o755), member("e")))
        self.assertIn("outside of the requested path", r.stderr.decode())
        self.assertEqual(os.listdir(self.dir / "in"), [])

    def test_bombs_stop_at_the_limits(self):
        top = member("d", tarfile.DIRTYPE, mode=0o755)
        many = archive(top, *(member(f"d/{i}", data=b"") for i in range(200)))
        self.assertIn("more than 100 entries", self.out_of(many, "--max-entries", "100").stderr.decode())
        info = tarfile.TarInfo("d/huge")
        info.size = 1 << 40
        self.assertIn("larger than allowed", self.out_of(archive(top)[:512] + info.tobuf()).stderr.decode())
        self.assertEqual(os.listdir(self.dir / "in"), [])

    def test_names_do_not_reach_the_terminal(self):
        r = self.out_of(archive(member("d", tarfile.DIRTYPE, mode=0o755), member("d/\x1b]0;x\x07\u202e", tarfile.FIFOTYPE)))
        self.assertIn(r"\x1b]0;x\x07\u{202e}", r.stderr.decode())

    def test_into_a_sandbox(self):
        self.sh(self.sandbox, "mkdir -p /tmp/c/in && echo -n safe > /tmp/c/canary")
        for name, (data, words) in hostile("/tmp/c/canary").items():
            with self.subTest(name):
                r = hutch("cp", "-", f"{self.sandbox}:/tmp/c/in", input=data)
                self.assertIn(words, r.stderr.decode())
                self.assertNotEqual(r.returncode, 0)
                self.assertEqual(self.sh(self.sandbox, "cat /tmp/c/canary; stat -c ' %h %a' /tmp/c/canary; ls -A /tmp/c; rm -rf /tmp/c/in/*"),
                                 "safe 1 644\ncanary\nin\n")
        self.sh(self.sandbox, "rm -r /tmp/c")

    def test_a_parent_is_swapped_for_a_link(self):
        """A directory is swapped for a link and back in a loop while a thousand files are
        written below it. hutch never follows the link."""
        self.sh(self.sandbox, "mkdir -p /tmp/s/in/d/sub /tmp/s/out")
        swap = start("exec", self.sandbox, "--", "sh", "-c", "cd /tmp/s/in/d; ln -s ../../out l; while :; do mv sub away; mv -T l sub; mv -T sub l; mv away sub; done",
                     stderr=subprocess.DEVNULL)
        try:
            data = archive(*(member(f"d/sub/{i % 7}/{i}") for i in range(1000)))
            results = {hutch("cp", "-", f"{self.sandbox}:/tmp/s/in", input=data).returncode for _ in range(20)}
        finally:
            swap.terminate()
            swap.wait(LONG)
        eventually(lambda: self.commands_in(self.sandbox) == [], "the end of the loop", also=lambda: self.commands_in(self.sandbox))
        self.assertEqual(self.sh(self.sandbox, "ls -A /tmp/s/out"), "")
        self.assertTrue(results <= {0, 1, 125}, results)
        self.sh(self.sandbox, "cd /tmp/s; ln -s out followed; echo x >followed/f")
        self.assertEqual(self.sh(self.sandbox, "ls -A /tmp/s/out; rm -r /tmp/s"), "f\n", "control: who follows such a link is there")

    def test_what_is_no_file_does_not_come_out(self):
        self.sh(self.sandbox, "mkdir /tmp/n && cd /tmp/n && mkfifo p && ln -s /etc/shadow l")
        for path in ("/dev/zero", "/dev/full", "/tmp/n/p"):
            r = hutch("cp", f"{self.sandbox}:{path}", str(self.dir / "in"))
            self.assertIn("neither a file", r.stderr.decode())
        self.assertIn("denied", hutch("cp", f"{self.sandbox}:/proc/1/mem", str(self.dir / "in")).stderr.decode())
        hutch("cp", f"{self.sandbox}:/tmp/n/l", str(self.dir / "in"))
        self.assertEqual(os.listdir(self.dir / "in"), ["l"])
        self.assertEqual(os.readlink(self.dir / "in" / "l"), "/etc/shadow", "a link, and nothing of the host's file")
        self.ended(hutch("cp", f"{self.sandbox}:/etc/motd", str(self.dir / "in" / "motd")), 0)
        self.assertTrue((self.dir / "in" / "motd").is_file(), "control: a file comes out")
        self.sh(self.sandbox, "rm -r /tmp/n")

    def test_the_child_has_no_power(self):
        """The unpacking process has no capabilities, a syscall filter, no new privileges, three
        standard descriptors and those it writes."""
        self.sh(self.sandbox, "truncate -s 1T /tmp/sparse")
        p = start("cp", "--max-size", "2TiB", f"{self.sandbox}:/tmp/sparse", str(self.dir / "in"))

        def filtered():
            """Returns the status of the child once its filter is installed."""
            with contextlib.suppress(OSError, IndexError):
                child = Path(f"/proc/{p.pid}/task/{p.pid}/children").read_text().split()[0]
                status = dict(line.split(":\t", 1) for line in Path(f"/proc/{child}/status").read_text().splitlines() if ":\t" in line)
                return status if status["Seccomp"] == "2" else None
            return None

        try:
            status = eventually(filtered, "a child with a filter")
            self.assertEqual({status[k] for k in ("CapEff", "CapPrm", "CapInh", "CapAmb")}, {"0" * 16})
            self.assertEqual(status["NoNewPrivs"], "1")
        finally:
            p.terminate()
            p.wait(LONG)
        eventually(lambda: os.listdir(self.dir / "in") == [], "the end of the copy", also=lambda: os.listdir(self.dir / "in"))
        self.sh(self.sandbox, "rm /tmp/sparse")


def root_tree(*members):
    """Returns the archive that a sandbox sends for a commit."""
    return archive(member(".", tarfile.DIRTYPE, mode=0o755), member("etc", tarfile.DIRTYPE, mode=0o755), *members)


# Files that programs on the host run or obey where they find them: each would leave a mark.
POISON = {".git/hooks/post-checkout": "#!/bin/sh\n{0}", ".git/hooks/pre-commit": "#!/bin/sh\n{0}", ".git/config": "[core]\n\tfsmonitor = {0}\n", ".envrc": "{0}",
          ".profile": "{0}", ".bashrc": "{0}", "Makefile": "all:\n\t{0}\n", "host.yaml": "egress_proxy: http://127.0.0.1:1\n",
          "agents/default.yaml": "agent:\n  name: default\n  type: coding\negress:\n  domains: [evil.example]\n", "hutch": "#!/bin/sh\n{0}", "crun": "#!/bin/sh\n{0}",
          "hutch-keeper": "#!/bin/sh\n{0}", ".vscode/tasks.json": "[]", ".mcp.json": "{{}}"}


class Poison(SharedCase):
    """Row 144. Hutch copies out the requested files, and neither runs nor obeys any of them,
    also when started in that directory. docs/THREAT-MODEL.md covers other programs."""

    def test_what_comes_out_is_not_run(self):
        with tempfile.TemporaryDirectory() as top:
            mark, tree = Path(top) / "mark", Path(top) / "repository"
            for path, text in POISON.items():
                self.sh(self.sandbox, f"mkdir -p $(dirname /tmp/repository/{path}); cat >/tmp/repository/{path}; chmod 4755 /tmp/repository/{path}", opts=["-i"],
                        input=text.format(f"touch {mark}").encode())
            self.assertIn(f"{len(POISON)} without their set-ID bits", self.refused("cp", f"{self.sandbox}:/tmp/repository", top, code=1))
            self.assertEqual({str(p.relative_to(tree)) for p in tree.rglob("*") if p.is_file()}, set(POISON))
            self.assertEqual([p for p in tree.rglob("*") if p.stat().st_mode & 0o6000], [], "nothing has a set-ID bit")
            for command in (["ps"], ["exec", self.sandbox, "--", "true"], ["run", "--rm", "--", "true"], ["cp", f"{self.sandbox}:/etc/motd", "again"],
                            ["config", "compile", "default"], ["agents"]):
                r = hutch(*command, cwd=tree)
                self.assertEqual(r.returncode, 0, (command, r.stderr))
                self.assertNotIn(b"evil.example", r.stdout)
            self.assertFalse(mark.exists())
            subprocess.run(["sh", tree / ".git/hooks/post-checkout"], check=True)
            self.assertTrue(mark.exists(), "control: it does harm to who runs it")


class CommitAttack(FakeCase):
    """The same attacks on a commit: the process that reads the archive has no privileges, and
    hutch keeps no part of a rejected archive."""

    state = Path(os.environ.get("HUTCH_STATE_DIR", "/nonexistent")) / "images"

    def images(self):
        return sorted(os.listdir(self.state / "trees")), sorted(os.listdir(self.state / "names")), os.listdir(self.state / "tmp")

    def commit(self, data, **more):
        return self.from_fake(data, "commit", self.sandbox, "evil:x", **more)

    def hostile(self):
        canary = str(self.canary)
        up = os.path.relpath(canary, "/")
        link = member("l", tarfile.SYMTYPE, os.path.dirname(canary))
        owner = member("f")
        owner[0].uid = 65536
        return {
            "dots": (root_tree(member(f"../../../../../../../../{up}")), "'..'"),
            "through a link": (root_tree(link, member("l/canary")), "symbolic link"),
            "hard link out": (root_tree(member("h", tarfile.LNKTYPE, canary)), "not in the image"),
            "hard link through a link": (root_tree(link, member("h", tarfile.LNKTYPE, "l/canary")), "not in the image"),
            "dev is a link": (root_tree(member("dev", tarfile.SYMTYPE, "/dev")), "must be a directory"),
            "proc is a file": (root_tree(member("proc")), "must be a directory"),
            "owner too large": (root_tree(owner), "ids go up to"),
            "sparse": (root_tree(member("s", tarfile.GNUTYPE_SPARSE)), "sparse"),
            "too deep": (root_tree(member("x/" * 200 + "f")), "deep"),
            "cut": (root_tree(member("f"))[:1700], "cut off"),
            "behind the end": (root_tree(member("f")) + b"x" * 512, "behind the end"),
            "noise": (bytes(range(256)) * 64, "checksum"),
            "nothing": (b"", "cut off"),
        }

    def test_a_hostile_sandbox_becomes_no_image(self):
        before = self.images()
        for name, (data, words) in self.hostile().items():
            with self.subTest(name):
                r = self.commit(data)
                self.assertIn(words, r.stderr.decode())
                self.assertNotEqual(r.returncode, 0)
                self.unharmed()
                self.assertEqual(self.images(), before)

    def test_control_a_good_one_does(self):
        before = self.images()
        data = root_tree(member("absolute"), member("s", mode=0o4755), member("n", tarfile.CHRTYPE), member("p", tarfile.FIFOTYPE))
        self.commit(data, code=0)
        trees, names, tmp = self.images()
        self.assertEqual((names, tmp), (sorted([*before[1], "evil:x.json"]), []))
        root = self.state / "trees" / (set(trees) - set(before[0])).pop() / "root"
        self.assertEqual(sorted(os.listdir(root)), ["absolute", "dev", "etc", "proc", "run", "s", "sys"])
        self.assertEqual((root / "s").stat().st_mode & 0o7777, 0o755)
        self.assertEqual(hutch("image", "rm", "evil:x").returncode, 0)
        self.assertEqual(self.images(), before)

    def test_one_that_says_no_more(self):
        """hutch rejects the archive and does not wait for the rest, which never comes."""
        r = self.commit(root_tree(member("../x")), silent=True)
        self.assertIn("'..'", r.stderr.decode())
