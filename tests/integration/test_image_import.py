# SPDX-License-Identifier: Apache-2.0
"""Images from root tarballs: formats, rules, and archives that try to escape."""

import contextlib
import gzip
import io
import os
import resource
import subprocess
import tarfile
from pathlib import Path

from image_support import AS_ROOT, IDS, ImageCase, archive, entry, page_digest
from support import hutch_path
from waiting import eventually


class Tarballs(ImageCase):
    ORDINARY = (entry("etc", tarfile.DIRTYPE), entry("etc/a", data=b"alpha"), entry("bin", tarfile.DIRTYPE),
                entry("bin/b", data=b"beta", mode=0o755, uid=1000, gid=50),
                entry("bin/c", tarfile.SYMTYPE, linkname="/etc/a"), entry("bin/d", tarfile.LNKTYPE, linkname="bin/b"))

    def test_formats_and_compression_give_one_digest(self):
        digests = set()
        for i, form in enumerate((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)):
            digests.add(self.import_ok(archive(*self.ORDINARY, form=form), f"plain{i}")["sha256"])
        plain = self.write("p.tar", archive(*self.ORDINARY))
        for program, suffix in (("gzip", "gz"), ("zstd", "zst"), ("xz", "xz")):
            subprocess.run([program, "-qk", plain], check=True)
            digests.add(self.image("import", program, f"{plain}.{suffix}")["sha256"])
        self.assertEqual(len(digests), 1)
        self.assertEqual(len(self.trees()), 1)
        root = self.root("gzip")
        self.assertEqual(os.readlink(root / "bin/c"), "/etc/a")
        self.assertEqual((root / "bin/d").read_bytes(), b"beta")
        self.assertEqual((root / "bin/d").stat().st_ino, (root / "bin/b").stat().st_ino)
        first = self.inspect("gzip")["ids"]
        self.assertEqual((root / "bin/b").stat().st_uid, first["uid"] + 1000)
        self.assertEqual((root / "bin/b").stat().st_gid, first["gid"] + 50)
        if AS_ROOT:
            self.assertEqual(page_digest()(str(root), first["uid"], first["gid"]), digests.pop())

    def test_rm_keeps_what_has_another_name(self):
        data = archive(*self.ORDINARY)
        self.import_ok(data, "one")
        self.import_ok(data, "two")
        self.assertIn("other names", self.run_ok("image", "rm", "one", env=self.env))
        self.assertEqual((self.names(), len(self.trees())), (["two"], 1))
        self.assertIn("with its tree", self.run_ok("image", "rm", "two", env=self.env))
        self.nothing_left()
        self.run_fails(1, "image", "rm", "two", env=self.env)

    def test_long_names(self):
        deep = "/".join(["d" * 100] * 20)
        for i, form in enumerate((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)):
            self.import_ok(archive(entry(deep + "/f", data=b"x"), entry("l", tarfile.SYMTYPE, linkname=deep),
                                   form=form), f"long{i}")
            self.assertEqual((self.root(f"long{i}") / deep / "f").read_bytes(), b"x")
        self.assertEqual(len(self.trees()), 1)

    def test_rules_drop_and_count(self):
        data = archive(
            entry("dev", tarfile.DIRTYPE), entry("dev/null", tarfile.CHRTYPE, devmajor=1, devminor=3),
            entry("dev/console", tarfile.SYMTYPE, linkname="/proc/sysrq-trigger"),
            entry("bin", tarfile.DIRTYPE, mode=0o2755), entry("bin/su", data=b"x", mode=0o4755),
            entry("bin/wall", data=b"x", mode=0o2755), entry("disk", tarfile.BLKTYPE, devmajor=8),
            entry("pipe", tarfile.FIFOTYPE), entry("proc/kcore", data=b"x"),
            entry("ping", data=b"x", pax_headers={"SCHILY.xattr.security.capability": "\1\0\0\2"[:1] + "x"}))
        self.import_ok(data)
        rules = self.inspect("x")["rules"]
        self.assertEqual(rules, {"devices_dropped": 1, "fifos_dropped": 1, "setids_cleared": 3, "xattrs_dropped": 1,
                                 "covered_dropped": 3})
        root = self.root("x")
        self.assertEqual((root / "bin/su").stat().st_mode & 0o7777, 0o755)
        self.assertEqual((root / "bin").stat().st_mode & 0o7777, 0o755)
        self.assertEqual(os.listxattr(root / "ping"), [])
        self.assertEqual([list((root / d).iterdir()) for d in ("dev", "proc", "sys")], [[], [], []])
        self.assertFalse((root / "disk").exists() or (root / "pipe").exists())

    def test_leading_slash_and_dots_are_taken_off(self):
        self.import_ok(archive(entry("/etc/a", data=b"1"), entry("./etc//b", data=b"2"), entry("././/c", data=b"3")))
        root = self.root("x")
        self.assertEqual([(root / p).read_bytes() for p in ("etc/a", "etc/b", "c")], [b"1", b"2", b"3"])

    def test_the_attacks_are_real(self):
        """Positive control: a tar with its checks turned off does reach a file outside."""
        for i, attack in enumerate((
                [entry("../canary", data=b"dead")],
                [entry("l", tarfile.SYMTYPE, linkname=".."), entry("l/canary", data=b"dead")],
                [entry("h", tarfile.LNKTYPE, linkname="../canary"), entry("h", data=b"dead")])):
            inside = self.dir / f"victim{i}" / "inside"
            inside.mkdir(parents=True)
            canary = inside.parent / "canary"
            canary.write_text("alive")
            path = self.write(f"attack{i}.tar", archive(*attack))
            subprocess.run(["tar", "-P", "--overwrite", "-xf", path], cwd=inside, check=True)
            self.assertEqual(canary.read_text(), "dead")
            self.refused(archive(*attack), "'\\.\\.'|behind a symbolic link")

    def test_leads_out(self):
        inside = str(self.canary)[1:]
        for name in ("../canary", "a/../../canary", "..", "a/..", "../" * 20 + inside, "/../" + inside):
            self.refused(archive(entry(name, data=b"dead")), r"must not have '\.\.'")

    def test_write_through_a_symbolic_link(self):
        for target in (str(self.dir), "../../../..", "/", "etc", "."):
            self.refused(archive(entry("etc", tarfile.DIRTYPE), entry("link", tarfile.SYMTYPE, linkname=target),
                                 entry("link/canary", data=b"dead")), "behind a symbolic link")
        self.refused(archive(entry("a", tarfile.DIRTYPE), entry("a/l", tarfile.SYMTYPE, linkname=str(self.dir)),
                             entry("a/l/x/y", tarfile.DIRTYPE)), "behind a symbolic link")

    def test_a_link_is_replaced_not_followed(self):
        self.import_ok(archive(entry("f", tarfile.SYMTYPE, linkname=str(self.canary)), entry("f", data=b"dead")))
        self.assertEqual((self.root("x") / "f").read_bytes(), b"dead")
        self.assertEqual(self.canary.read_text(), "alive")
        self.import_ok(archive(entry("d", tarfile.SYMTYPE, linkname=str(self.dir)), entry("d", tarfile.DIRTYPE, mode=0o777),
                               entry("d/canary", data=b"dead")), "y")
        self.assertEqual(self.canary.read_text(), "alive")

    def test_hard_links_that_lead_out(self):
        for target in (str(self.canary), "/etc/passwd", "nowhere", "d"):
            self.refused(archive(entry("d", tarfile.DIRTYPE), entry("h", tarfile.LNKTYPE, linkname=target)),
                         "hard link to")
        self.refused(archive(entry("h", tarfile.LNKTYPE, linkname="../canary")), r"'\.\.'")
        self.refused(archive(entry("l", tarfile.SYMTYPE, linkname=str(self.dir)),
                             entry("h", tarfile.LNKTYPE, linkname="l/canary")), "hard link to a target that is not in the image")
        # A hard link to a symbolic link, not to its target: a later write must not reach the
        # canary.
        self.import_ok(archive(entry("l", tarfile.SYMTYPE, linkname=str(self.canary)),
                               entry("h", tarfile.LNKTYPE, linkname="l"), entry("h", data=b"dead")))
        self.assertEqual(self.canary.read_text(), "alive")

    def test_mount_points_that_are_no_directories(self):
        for name in ("dev", "proc", "sys", "run", "./proc", "/dev"):
            plain = name.strip("./")
            self.refused(archive(entry(name, tarfile.SYMTYPE, linkname="/tmp")), f"'/{plain}' must be a directory")
            self.refused(archive(entry(name, data=b"x")), f"'/{plain}' must be a directory")
        self.refused(archive(entry("a", data=b"x"), entry("dev", tarfile.LNKTYPE, linkname="a")), "must be a directory")
        self.refused(archive(entry("sys", tarfile.DIRTYPE), entry("sys", tarfile.SYMTYPE, linkname="x")),
                     "must be a directory")
        self.refused(archive(entry("dev", tarfile.CHRTYPE)), "must be a directory")

    def test_one_name_one_file(self):
        """The last entry of a name counts, whatever the earlier ones were."""
        self.import_ok(archive(entry("a", data=b"1"), entry("a", data=b"2"), entry("./a", data=b"3"), entry("d/x", data=b"x"),
                               entry("d", data=b"file now"), entry("e", data=b"y"), entry("e", tarfile.DIRTYPE)))
        root = self.root("x")
        self.assertEqual((root / "a").read_bytes(), b"3")
        self.assertEqual((root / "d").read_bytes(), b"file now")
        self.assertTrue((root / "e").is_dir())
        below = self.write("y.tar", archive(entry("f", data=b"x"), entry("f/g", data=b"y")))
        self.assertIn("not a directory", self.run_fails(1, "image", "import", "y", below, env=self.env))

    def test_odd_names(self):
        names = ["Makefile", "makefile", "a\nb", "\u202egnp.exe", "c\x1b[2Jd", "e\\f"]
        self.import_ok(archive(*(entry(n, data=n.encode()) for n in names)))
        root = self.root("x")
        for n in names:
            self.assertEqual((root / n).read_bytes(), n.encode())
        data = archive(entry("x" * 200, data=b"x")).replace(b"path=xx", b"path=x\0")
        self.assertIn(b"path=x\0", data)
        self.assertIn("NUL", self.run_fails(1, "image", "import", "y", self.write("y.tar", data), env=self.env))

    def test_sparse_and_huge(self):
        sparse = bytearray(archive(entry("s", data=b"x"), form=tarfile.GNU_FORMAT))
        sparse[156] = ord("S")
        self.refused(self.checksum(sparse), "sparse")
        self.refused(archive(entry("s", data=b"x", pax_headers={"GNU.sparse.major": "1"})), "sparse")
        info, _ = entry("h")
        info.size = 1 << 40
        self.refused(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024), "larger than 64 GiB")
        info.size = 1 << 50
        self.refused(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024), "size out of range")

    @staticmethod
    def checksum(data):
        data[148:156] = b" " * 8
        data[148:156] = b"%06o\0 " % sum(data[:512])
        return bytes(data)

    def test_owners_out_of_range(self):
        self.refused(archive(entry("a", uid=IDS)), "owner 65535:0")
        self.refused(archive(entry("a", gid=4294967294)), "ids go up to 65534")

    def test_too_deep_and_too_long(self):
        self.refused(archive(entry("/".join("d" * 129))), "more than 128 directories deep")
        self.refused(archive(entry("n" * 256)), "too long")
        self.refused(archive(entry("n/" * 2100 + "x")), "deep|bytes")

    def test_not_an_archive(self):
        for data, pattern in ((b"", "cut off"), (b"hello" * 200, "checksum|not a number"), (bytes(512), "cut off"),
                              (archive(*self.ORDINARY)[:1000], "cut off"),
                              (archive(*self.ORDINARY) + b"x" * 512, "behind the end")):
            self.refused(data, pattern)
        self.refused(gzip.compress(archive(*self.ORDINARY))[:-12], "corrupt|cut off", "tar.gz")
        self.refused(gzip.compress(b"x" * 2000), "checksum|number", "tar.gz")
        self.run_fails(1, "image", "import", "x", str(self.dir / "nothing"), env=self.env)
        self.run_fails(1, "image", "import", "x", "/dev/zero", env=self.env)

    def test_bomb(self):
        """1 GiB of zeros in a megabyte, in three formats: the limit on the compression ratio
        stops it."""
        info, _ = entry("zeros")
        info.size = 1 << 34
        head = info.tobuf(tarfile.GNU_FORMAT)
        bomb = self.dir / "bomb.tar.zst"
        with open(bomb, "wb") as out:
            z = subprocess.Popen(["zstd", "-qc"], stdin=subprocess.PIPE, stdout=out)
            z.stdin.write(head)
            for _ in range(64):
                z.stdin.write(bytes(1 << 20))
            z.stdin.close()
            z.wait()
        self.assertLess(bomb.stat().st_size, 64 << 10)
        said = self.run_fails(1, "image", "import", "x", str(bomb), env=self.env)
        self.assertIn("more than 1000 times its size", said)
        self.nothing_left()

    def test_a_hundred_thousand_entries(self):
        """An entry costs about the same in an archive with ten times as many. Measured in CPU
        time, which other load does not affect."""
        costs = []
        for n in (10_000, 100_000):
            data = io.BytesIO()
            with tarfile.open(fileobj=data, mode="w", format=tarfile.USTAR_FORMAT) as tar:
                for i in range(n):
                    tar.addfile(tarfile.TarInfo(f"d{i % 100}/f{i}"))
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            self.import_ok(data.getvalue())
            self.assertEqual(self.inspect("x")["files"], n)
            self.run_ok("image", "rm", "x", env=self.env)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            costs.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / n)
            self.nothing_left()
        self.assertLess(costs[1], 4 * costs[0])

    def seen_at_work(self, path):
        """Runs an import. Returns what was seen of its worker, or None if a busy host hid it."""
        seen = None
        with subprocess.Popen([hutch_path(), "image", "import", "x", path], env=self.env, stderr=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL) as p:
            while not seen and p.poll() is None:
                with contextlib.suppress(OSError):
                    for child in Path(f"/proc/{p.pid}/task/{p.pid}/children").read_text().split():
                        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{child}/status").read_text().splitlines())
                        # The worker confines itself step by step; it drops capabilities last, and
                        # keeps only four.
                        if status.get("NoNewPrivs") == "1" and int(status["CapEff"], 16) == 0b11011:
                            seen = (status, {n: os.readlink(f"/proc/{child}/ns/{n}") for n in ("user", "mnt", "net", "pid", "ipc", "uts")},
                                    {os.readlink(f"/proc/{child}/fd/{n}") for n in (0, 1)})
        return seen

    def test_who_unpacks_has_no_power(self):
        """Inspects the worker from outside while it runs: ids, capabilities, namespaces, file
        descriptors."""
        path = self.write("big.tar", archive(*(entry(f"f{i}", data=bytes(1 << 20)) for i in range(300))))
        seen, own, stdio = eventually(lambda: self.seen_at_work(path), "that the worker is seen confined")
        first = str(self.inspect("x")["ids"]["uid"])
        self.assertEqual(set(seen["Uid"].split()), {first})
        self.assertEqual(seen["Groups"].strip(), "")
        for which in ("CapPrm", "CapEff", "CapBnd"):
            self.assertEqual(int(seen[which], 16), 0b11011, which)  # chown, dac_override, fowner, fsetid
        self.assertEqual(stdio, {"/dev/null"})
        for name, link in own.items():
            self.assertNotEqual(link, os.readlink(f"/proc/self/ns/{name}"))

    def test_killed_while_it_unpacks(self):
        path = self.write("big.tar", archive(*(entry(f"f{i}", data=os.urandom(1 << 20)) for i in range(200))))
        for part in self.killed("image", "import", "x", path):
            for tree in self.trees():
                self.assertTrue((self.state / "images/trees" / tree / "meta.json").exists(), part)
        self.import_ok(archive(*self.ORDINARY), "after")
        self.assertEqual(self.leftovers(), [])
