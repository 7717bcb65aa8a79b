# SPDX-License-Identifier: Apache-2.0
"""Images: real builds with mmdebstrap, as root and as an ordinary user, and invalid image files."""

import json
import os
import pwd
import shutil
import stat
import subprocess
import unittest
from pathlib import Path

from image_support import AS_ROOT, IDS, ImageCase, page_digest
from support import environment, hutch, hutch_path

TINY = """image:
  name: tiny
  summary: busybox and nothing else
variant: extract
packages: [busybox-static]
files:
  /etc/motd: hello
  /usr/local/bin/hi: |
    #!/bin/busybox sh
    echo hi
env:
  GREETING: hello
"""


class Build(ImageCase):
    def setUp(self):
        super().setUp()
        if not shutil.which("mmdebstrap"):
            self.skipTest("mmdebstrap is not installed")
        self.spec = self.write("tiny.yaml", TINY)

    def test_twice_the_same(self):
        first = self.image("build", self.spec)
        self.assertFalse(first["up_to_date"])
        self.assertTrue(self.image("build", self.spec)["up_to_date"])
        again = self.image("build", "--force", self.spec)
        self.assertEqual((again["sha256"], again["up_to_date"]), (first["sha256"], False))
        self.assertEqual(self.trees(), [f"sha256-{first['sha256']}"])
        self.assertEqual(self.leftovers(), [])
        info = self.inspect("tiny")
        self.assertEqual(info["env"], {"GREETING": "hello"})
        self.assertEqual((info["user"], info["workdir"], info["ids"]["count"]), ("user", "/workspace", IDS))
        listed = self.run_ok("image", "ls", env=self.env)
        self.assertRegex(listed, r"^tiny +" + first["sha256"][:12] + r" .*busybox and nothing else\n$")
        self.check_tree(info)

    def check_tree(self, info):
        root = Path(info["root"])
        first = info["ids"]["uid"]
        self.assertNotEqual(first, 0)
        self.assertTrue((root / "bin/busybox").is_file())
        self.assertEqual((root / "etc/motd").read_text(), "hello")
        self.assertEqual((root / "usr/local/bin/hi").stat().st_mode & 0o7777, 0o755)
        self.assertEqual((root / "etc/resolv.conf").read_text(), "nameserver 127.0.0.1\n")
        self.assertEqual((root / "etc/machine-id").read_bytes(), b"")
        self.assertIn("user:x:1000:1000::/home/user:/bin/sh\n", (root / "etc/passwd").read_text())
        self.assertEqual((root / "workspace").stat().st_uid, first + 1000)
        self.assertEqual((root / "bin").stat().st_uid, first)
        for name in ("dev", "proc", "sys", "run"):
            self.assertTrue(stat.S_ISDIR((root / name).lstat().st_mode))
            self.assertEqual(list((root / name).iterdir()), [])
        if AS_ROOT:
            self.assertEqual(page_digest()(str(root), first, info["ids"]["gid"]), info["sha256"])

    def test_a_change_is_built(self):
        first = self.image("build", self.spec)
        self.write("tiny.yaml", TINY.replace("/etc/motd: hello", "/etc/motd: goodbye"))
        second = self.image("build", self.spec)
        self.assertNotEqual(first["sha256"], second["sha256"])
        self.assertFalse(second["up_to_date"])

    @unittest.skipUnless(AS_ROOT, "only root can make another user")
    def test_as_an_ordinary_user(self):
        mine = self.image("build", self.spec)["sha256"]
        user = f"hutch-test-{os.getpid()}"
        subprocess.run(["useradd", "-m", "-d", f"/tmp/{user}", user], check=True)
        self.addCleanup(subprocess.run, ["userdel", "-r", user], stderr=subprocess.DEVNULL, check=False)
        account = pwd.getpwnam(user)
        program = Path(account.pw_dir) / "hutch"
        shutil.copy(hutch_path(), program)
        spec = Path(account.pw_dir) / "tiny.yaml"
        spec.write_text(TINY)
        os.chmod(account.pw_dir, 0o700)
        for path in (program, spec):
            os.chown(path, account.pw_uid, account.pw_gid)
        more = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": [], "program": str(program),
                "cwd": account.pw_dir, "env": environment(HOME=account.pw_dir)}
        built = json.loads(self.run_ok("image", "build", "--json", str(spec), **more))
        self.assertEqual(built["sha256"], mine, "the same digest, whoever builds")
        tree = Path(account.pw_dir) / ".local/share/hutch/images/trees" / f"sha256-{mine}"
        self.assertEqual(tree.stat().st_uid, account.pw_uid)
        owner = (tree / "root").stat().st_uid
        self.assertNotIn(owner, (0, account.pw_uid))
        # hutch can remove a tree that this user cannot remove by hand.
        self.run_ok("image", "rm", "tiny", **more)
        self.assertEqual(os.listdir(tree.parent), [])
        self.assertEqual(os.listdir(tree.parent.parent / "tmp"), [])

    def test_a_package_that_does_not_exist(self):
        self.write("tiny.yaml", TINY.replace("busybox-static", "no-such-package-anywhere"))
        r = hutch("image", "build", self.spec, env=self.env)
        said = r.stderr.decode()
        self.assertEqual(r.returncode, 125, said)
        self.assertIn("hutch image build: mmdebstrap failed\n", said)
        self.assertIn("no-such-package-anywhere", said.split("mmdebstrap failed")[1])
        self.assertIn(f"{self.state}/images/logs/tiny.log", said)
        self.nothing_left()

    def test_progress_without_a_terminal(self):
        r = hutch("image", "build", self.spec, env=self.env)
        self.assertEqual(r.returncode, 0, r.stderr)
        lines = r.stderr.decode().splitlines()
        for phase in ("packages", "unpacking", "digest", "writing to disk"):
            self.assertIn(phase, lines)
        self.assertNotIn("\x1b", r.stderr.decode())

    def test_killed_while_it_works(self):
        """Killed at any moment: no partial image, no process, and the next build removes the
        leftovers."""
        for part in self.killed("image", "build", "--force", self.spec):
            for tree in self.trees():
                self.assertTrue((self.state / "images/trees" / tree / "meta.json").exists(), part)
        self.image("build", "--force", self.spec)
        self.assertEqual(self.leftovers(), [])
        self.assertEqual(len(self.trees()), 1)


class Specs(ImageCase):
    def wrong(self, text, pattern):
        said = self.run_fails(1, "image", "build", self.write("x.yaml", text), env=self.env)
        self.assertRegex(said, pattern)

    def test_wrong_files(self):
        head = "image:\n  name: x\n"
        self.wrong(head + "sute: bookworm\n", r"x.yaml:3:1: error: sute: unknown key; .*did you mean 'suite'\?")
        self.wrong(head + "variant: huge\n", r"variant: 'huge' is not one of: extract, essential, apt, minbase, important")
        self.wrong(head + "presets: [pyton-dev]\n", r"presets\[0\]: .*did you mean 'python-dev'\?")
        self.wrong(head + "packages: [-rf]\n", r"packages\[0\]")
        self.wrong(head + "files:\n  etc/x: text\n", r"files.etc/x: expected an absolute path")
        self.wrong(head + "files:\n  /dev/x: text\n", r"covered by a mount")
        self.wrong(head + "files:\n  /a: b\n  //a: c\n", r"written twice")
        self.wrong(head + "mirrors: [--hook-dir=/x]\n", r"neither a URL nor")
        self.wrong(head + "variant: extract\ninstall_scripts: ['true']\n", r"nothing is run")
        self.wrong("suite: bookworm\n", r"agent: missing")
        self.nothing_made()

    def nothing_made(self):
        self.assertEqual(list(self.state.iterdir()), [])

    def test_unknown_name(self):
        self.assertIn("did you mean 'base'?", self.run_fails(1, "image", "build", "bsae", env=self.env))
        self.assertIn("did you mean 'devops'?", self.run_fails(1, "image", "build", "devosp", env=self.env))

    def test_a_name_that_is_image_and_agent(self):
        self.write("images/locked.yaml", "image:\n  name: locked\n")
        said = self.run_fails(1, "image", "build", "-I", str(self.dir), "locked", env=self.env)
        self.assertIn("is an image", said)

    def test_names(self):
        for name in ("..", "a/b", "A", "-x", "x" * 64, "", "a.b", "a b", "_x", ":", ":t", "a:", "a:b:c", "a:..", "a:.b", "a:-b", "a:b/c",
                     "a:" + "x" * 64, "a:b c", "a/b:c", "..:a", "a:\n"):
            said = self.run_fails(2, "image", "import", "--", name, "/dev/null", env=self.env)
            self.assertIn("is not a name", said)
            self.assertEqual(hutch("image", "rm", "--", name, env=self.env).returncode, 1)
            self.assertEqual(hutch("image", "inspect", "--", name, env=self.env).returncode, 1)
        self.assertEqual(self.names(), [])

    def test_a_store_that_others_can_write_to(self):
        self.assertEqual(self.image("ls"), [])
        self.nothing_made()  # looking makes no store
        self.refused(b"", "cut off")
        (self.state / "images/trees").chmod(0o777)
        self.assertIn("others can write", self.run_fails(125, "image", "ls", env=self.env))
        (self.state / "images/trees").chmod(0o700)
        (self.state / "images/names").rmdir()
        (self.state / "images/names").symlink_to(self.dir)
        self.assertIn("cannot open 'names'", self.run_fails(125, "image", "ls", env=self.env))
