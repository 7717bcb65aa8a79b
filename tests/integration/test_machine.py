# SPDX-License-Identifier: Apache-2.0
"""
The parts of a VM: kernels from packages, initrds, images as disks, empty disks. The package is in
HUTCH_TEST_KERNEL_DIR; otherwise apt-get downloads it.
"""

import concurrent.futures
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path

import machine
from image_support import ImageCase, archive, entry
from support import hutch_path

PARTS = os.environ.get("MACHINE_PARTS", "")
MIB = 1 << 20


def packages():
    given = os.environ.get("HUTCH_TEST_KERNEL_DIR")
    return ["--from", given] if given else []


def cpio(data):
    """Entries of all archives in `data`: name > (mode, bytes)."""
    out, at = {}, 0
    while at < len(data):
        if data[at:at + 1] == b"\0":
            at += 1
            continue
        assert data[at:at + 6] == b"070701", at
        fields = [int(data[at + 6 + 8 * i:at + 14 + 8 * i], 16) for i in range(13)]
        name = data[at + 110:at + 109 + fields[11]].decode()
        start = (at + 110 + fields[11] + 3) & ~3
        out[name] = (fields[1], data[start:start + fields[6]])
        at = (start + fields[6] + 3) & ~3
    return out


class Parts(ImageCase):
    def parts(self, *words, **more):
        return subprocess.run([PARTS, *map(str, words)], env=self.env, check=True, stdout=subprocess.PIPE, text=True, **more).stdout

    def parts_fail(self, *words):
        done = subprocess.run([PARTS, *map(str, words)], env=self.env, check=False, capture_output=True, text=True)
        self.assertEqual(done.returncode, 1, done)
        return done.stderr

    def blank(self, size):
        return Path(self.parts("blank", size).strip())

    def tree(self):
        self.import_ok(archive(entry("etc", tarfile.DIRTYPE), entry("etc/hello", data=b"hello", mtime=1234567890),
                               entry("home", tarfile.DIRTYPE), entry("home/user", tarfile.DIRTYPE, uid=1000, gid=1001),
                               entry("etc/last", data=b"x", uid=65534, gid=65534)))
        return self.root("x")


class Kernels(Parts):
    """One kernel for all tests: unpacking it takes seconds."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.place = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.place)
        env = dict(os.environ, HUTCH_STATE_DIR=cls.place, HUTCH_AUDIT_DIR=f"{cls.place}/audit", HOME=cls.place)
        cls.made = subprocess.run([hutch_path(), "image", "kernel", *packages()], env=env, check=False, capture_output=True, text=True)

    def setUp(self):
        super().setUp()
        self.assertEqual(self.made.returncode, 0, self.made)
        self.env["HUTCH_STATE_DIR"] = self.place
        self.state = Path(self.place)
        self.guest = self.write("guest", b"\x7fELF" + os.urandom(3000))

    def find(self):
        name, kernel, initrd, digest = self.parts("kernel", self.guest).split()
        self.assertEqual(name, "cloud")
        return Path(kernel), Path(initrd), digest

    def test_up_to_date(self):
        before = sorted(p.stat().st_ino for p in self.state.glob("machine/kernels/*/*"))
        done = self.image("kernel", *packages())
        self.assertEqual((done["name"], done["up_to_date"]), ("cloud", True))
        self.assertRegex(done["package"], r"^linux-image-[0-9].*-cloud-amd64$")
        self.assertEqual(before, sorted(p.stat().st_ino for p in self.state.glob("machine/kernels/*/*")))
        self.assertEqual(len(before), 3, "kernel, base, modules of isolation.nested")
        self.assertIn("unpacking the kernel\n", self.made.stderr)

    def test_kernel_is_unpacked(self):
        kernel, _, _ = self.find()
        with open(kernel, "rb") as f:
            self.assertEqual(f.read(5), b"\x7fELF\x02")
        self.assertEqual(kernel.stat().st_mode & 0o777, 0o444)
        self.assertEqual([p.name for p in (self.state / "machine/tmp").iterdir() if p.is_dir()], [])

    def test_initrd_has_the_agent_and_modules(self):
        _, initrd, _ = self.find()
        entries = cpio(initrd.read_bytes())
        self.assertEqual(entries["init"], (0o100755, Path(self.guest).read_bytes()))
        self.assertEqual(entries["dev/console"][0], 0o020600)
        listed = entries["lib/modules-list"][1].decode().split()
        self.assertEqual({name for name in entries if name.endswith(".ko")}, {path[1:] for path in listed})
        order = [Path(path).stem for path in listed]
        for first, then in (("nf_tables", "nft_tproxy"), ("nfnetlink", "nf_tables")):
            self.assertLess(order.index(first), order.index(then))
        self.assertLess({"erofs", "overlay"}, set(order))

    def test_another_agent_has_another_initrd(self):
        _, first, digest = self.find()
        inode = first.stat().st_ino
        self.assertEqual(self.find()[1:], (first, digest))
        self.assertEqual(first.stat().st_ino, inode)
        old = Path(self.guest).read_bytes()
        Path(self.guest).write_bytes(old + b"!")
        _, second, other = self.find()
        self.assertNotEqual((first, digest), (second, other))
        self.assertEqual(cpio(second.read_bytes())["init"][1], old + b"!")
        # Making a new one deletes those that have been unused for long.
        os.utime(first, (1, 1))
        Path(self.guest).write_bytes(old + b"?")
        self.find()
        self.assertFalse(first.exists())
        self.assertTrue(second.exists())

    def test_boots(self):
        self.guest = os.environ["MACHINE_INIT"]
        kernel, initrd, _ = self.find()
        self.env["HUTCH_STATE_DIR"] = str(self.dir / "state")
        self.state = self.dir / "state"
        root = self.parts("root", self.tree()).strip()
        disk = self.write("disk", self.blank(64 * MIB).read_bytes())
        said, _ = machine.boot(str(kernel), str(initrd), [(root, "on"), (disk, "off")])
        self.assertIn("end", said)
        self.assertEqual({name for name, number in said.items() if number != 0}, set())

    def clean(self):
        self.env["HUTCH_STATE_DIR"] = str(self.dir / "state")
        self.state = self.dir / "state"
        super().clean()


class NoKernel(Parts):
    def test_advice(self):
        self.assertIn("hutch image kernel", self.parts_fail("kernel", self.canary))

    def test_a_small_one_needs_tools(self):
        """Hutch names missing ones before it looks for the package."""
        hidden = 'mount -t tmpfs none /usr/include && exec "$@"'
        r = subprocess.run(["unshare", "-rm", "sh", "-c", hidden, "sh", hutch_path(), "image", "kernel", "--small", "--from", str(self.dir)],
                           env=self.env, check=False, capture_output=True, text=True)
        self.assertEqual(r.returncode, 1)
        self.assertRegex(r.stderr, "cannot build a kernel without .*stdio.h.*libelf.h.*: apt-get install .*libc6-dev .*libelf-dev")

    def test_what_is_in_the_directory(self):
        place = self.dir / "packages"
        place.mkdir()
        said = self.run_fails(1, "image", "kernel", "--from", str(place), env=self.env)
        self.assertIn("no package linux-image-VERSION-cloud-amd64 in", said)
        (place / "linux-image-cloud-amd64_1_amd64.deb").write_text("only depends on it")
        self.assertIn("no package", self.run_fails(1, "image", "kernel", "--from", str(place), env=self.env))
        (place / "linux-image-6.1.0-1-cloud-amd64_1_amd64.deb").write_text("garbage")
        said = self.run_fails(1, "image", "kernel", "--from", str(place), env=self.env)
        self.assertIn("is not a package", said)
        (place / "linux-image-6.1.0-2-cloud-amd64_1_amd64.deb").write_text("garbage")
        self.assertIn("more than one package", self.run_fails(1, "image", "kernel", "--from", str(place), env=self.env))
        self.assertEqual(list((self.state / "machine").glob("kernels/*")), [])

    def test_a_package_with_something_else_in_it(self):
        tree, place = self.dir / "tree", self.dir / "packages"
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "boot").mkdir()
        place.mkdir()
        (tree / "boot/vmlinuz-6.1.0-1-cloud-amd64").write_bytes(os.urandom(9000))
        (tree / "DEBIAN/control").write_text("Package: linux-image-6.1.0-1-cloud-amd64\nVersion: 1\nArchitecture: amd64\n"
                                             "Maintainer: nobody <a@example.org>\nDescription: x\n")
        deb = str(place / "linux-image-6.1.0-1-cloud-amd64_1_amd64.deb")
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", str(tree), deb], check=True, stdout=subprocess.DEVNULL)
        said = self.run_fails(1, "image", "kernel", "--from", str(place), env=self.env)
        self.assertIn("not a bzImage", said)
        self.assertEqual(list((self.state / "machine").glob("kernels/*")), [])
        self.assertEqual([p.name for p in (self.state / "machine/tmp").iterdir() if p.is_dir()], [])
        self.assertIn("hutch image kernel", self.parts_fail("kernel", self.canary))

    @unittest.skipUnless(os.environ.get("HUTCH_TEST_KERNEL_DIR"), "needs the package at hand")
    def test_killed_on_the_way(self):
        """The kernel is complete or absent."""
        kernels = self.state / "machine/kernels"
        for part in self.killed("image", "kernel", *packages(), at=(0.1, 0.4), before=lambda: shutil.rmtree(self.state / "machine")):
            for place in kernels.glob("*/"):
                self.assertEqual(len(list(place.iterdir())), 3, part)
        there = any(kernels.glob("*.json"))
        self.assertEqual(self.image("kernel", *packages())["up_to_date"], there)
        self.assertEqual([p.name for p in (self.state / "machine/tmp").iterdir() if p.is_dir()], [])


class Disks(Parts):
    def test_blank(self):
        blank = self.blank(100 * MIB + 77)
        self.assertEqual(blank.stat().st_size, 100 * MIB)
        self.assertLess(blank.stat().st_blocks * 512, MIB)
        subprocess.run(["e2fsck", "-fn", blank], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        inode = blank.stat().st_ino
        self.assertEqual(self.blank(100 * MIB).stat().st_ino, inode)
        facts = subprocess.run(["dumpe2fs", blank], check=True, capture_output=True, text=True).stdout
        self.assertNotIn("has_journal", facts)
        self.assertRegex(facts, r"Reserved block count: *0\n")
        # Otherwise the guest's kernel would zero the inode tables itself.
        groups = [line for line in facts.splitlines() if re.match(r"Group \d+:", line)]
        self.assertTrue(groups and all("ITABLE_ZEROED" in line for line in groups), groups)

    def test_many_ask_for_one(self):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertEqual(len(set(pool.map(self.blank, [64 * MIB] * 8))), 1)
        self.assertEqual(len(list(self.state.glob("machine/disks/*"))), 1)

    def test_sizes(self):
        for size in (0, MIB - 1, 1 << 60):
            self.assertIn("1 MiB", self.parts_fail("blank", size))

    def test_copy(self):
        blank = self.blank(64 * MIB)
        before = blank.read_bytes()
        with subprocess.Popen([PARTS, "disk", str(blank)], env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as p:
            _, size, used, links, path = p.stdout.readline().split()
            self.assertEqual((int(size), int(links)), (64 * MIB, 0))
            self.assertLess(int(used), MIB)
            with open(path, "r+b", buffering=0) as copy:
                self.assertEqual(copy.read(), before)
                copy.seek(0)
                copy.write(b"changed")
            p.stdin.write("\n")
        self.assertEqual(blank.read_bytes(), before)
        self.assertEqual([p.name for p in blank.parent.iterdir()], [blank.name])


class Roots(Parts):
    def fact(self, disk, path):
        return subprocess.run(["dump.erofs", f"--path={path}", disk], check=True, capture_output=True, text=True).stdout

    def test_owners_and_times(self):
        disk = self.parts("root", self.tree()).strip()
        self.assertRegex(self.fact(disk, "/home/user"), r"Uid: 1000 *Gid: 1001")
        self.assertRegex(self.fact(disk, "/etc/last"), r"Uid: 65534 *Gid: 65534")
        self.assertRegex(self.fact(disk, "/etc/hello"), r"Uid: 0 *Gid: 0")
        self.assertIn("2009-02-13 23:31:30", self.fact(disk, "/etc/hello"))
        subprocess.run(["fsck.erofs", disk], check=True, capture_output=True)
        self.assertEqual(Path(disk).stat().st_mode & 0o777, 0o444)

    def test_again_and_with_others(self):
        tree = self.tree()
        disk = Path(self.parts("root", tree).strip())
        data, inode = disk.read_bytes(), disk.stat().st_ino
        self.assertEqual(Path(self.parts("root", tree).strip()).stat().st_ino, inode)
        disk.unlink()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            self.assertEqual(set(pool.map(lambda _: self.parts("root", tree).strip(), range(4))), {str(disk)})
        self.assertEqual(disk.read_bytes(), data)
        self.assertEqual(self.leftovers(), [])

    def test_goes_with_the_image(self):
        self.parts("root", self.tree())
        self.run_ok("image", "rm", "x", env=self.env)
        self.assertEqual((self.trees(), self.leftovers()), ([], []))
        self.assertIn("cannot open", self.parts_fail("root", self.state / "images/trees/sha256-0/root"))


if __name__ == "__main__":
    unittest.main()
