# SPDX-License-Identifier: Apache-2.0
"""File operations and watches in a sandbox."""

import os
import tempfile
import time
import unittest

import wire
from guest import GuestCase, ROOT, UID
from waiting import eventually


def tmpfs_keeps_attributes():
    """Since Linux 6.6."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as f:
        try:
            os.setxattr(f.name, "user.hutch", b"")
        except OSError:
            return False
    return True


class TestFiles(GuestCase):
    def test_write_and_read(self):
        path, data = f"{self.dir}/f", os.urandom(5_000_000)
        before = time.time()
        entry = self.write(path, data)
        self.assertEqual((entry["size"], entry["kind"], entry["mode"]), (len(data), wire.FILE, 0o644))
        self.assertEqual(entry["path"].decode(), path)
        self.assertTrue(before - 1 < entry["mtime_ns"] / 1e9 < time.time() + 1, entry["mtime_ns"])
        self.assertEqual(self.op("read", path).accepted["size"], len(data))
        for more, want in (({}, data), ({"offset": 4_999_990}, data[-10:]), ({"offset": 9_000_000}, b""),
                           ({"offset": 100, "length": 70000}, data[100:70100]), ({"length": 0}, b"")):
            self.assertEqual(self.read(path, **more), want, more)

    def test_empty_file(self):
        self.assertEqual(self.write(f"{self.dir}/empty", b"")["size"], 0)
        self.assertEqual(self.read(f"{self.dir}/empty"), b"")

    def test_files_without_a_size(self):
        self.assertIn(b"MemTotal", self.read("/proc/meminfo"))

    def test_modes(self):
        self.assertEqual(self.write(f"{self.dir}/f", b"1", mode=0o600)["mode"], 0o600)
        self.assertEqual(self.write(f"{self.dir}/f", b"22")["mode"], 0o600)
        self.assertEqual(self.write(f"{self.dir}/f", b"3", mode=0o755)["mode"], 0o755)
        self.assertEqual(self.op("mkdir", f"{self.dir}/d", mode=0o770).accepted["mode"], 0o770)
        self.assertEqual(self.op("mkdir", f"{self.dir}/e").accepted["mode"], 0o755)

    def test_write_is_atomic(self):
        self.write(f"{self.dir}/f", b"old")
        ch = self.link.open("write", path=f"{self.dir}/f")
        ch.wait_accepted()
        ch.send(b"new" * 100000)
        self.assertEqual(self.read(f"{self.dir}/f"), b"old")
        ch.close()  # without EOF
        ch.wait_closed()
        eventually(lambda: self.ok(f"ls -A {self.dir}") == "f\nhome\n", "the end of the temporary file")
        self.assertEqual(self.read(f"{self.dir}/f"), b"old")

    def test_a_reader_keeps_the_old_file(self):
        self.write(f"{self.dir}/f", b"a" * 3_000_000)
        ch = self.link.open("read", path=f"{self.dir}/f", give_credit=False)
        self.link.wait(lambda: ch.streams[0].total == wire.CREDIT_START, "credit to be used up")
        self.write(f"{self.dir}/f", b"b" * 3_000_000)
        ch.give_credit = True
        ch.credit(wire.CREDIT_START, 0)
        ch.wait_closed()
        self.assertEqual(ch.out(0), b"a" * 3_000_000)

    def test_parents(self):
        self.assertEqual(self.code("write", f"{self.dir}/x/y/z", b"1"), wire.NOT_FOUND)
        self.write(f"{self.dir}/x/y/z", b"1", parents=True)
        self.assertEqual(self.op("stat", f"{self.dir}/x/y").accepted["mode"], 0o755)
        self.assertEqual(self.code("write", f"{self.dir}/x/y/z/w", b"1", parents=True), wire.NOT_DIRECTORY)

    def test_stat(self):
        self.ok(f"cd {self.dir}; ln -s /etc/passwd link; mkfifo fifo; mkdir dir")
        for name, kind in (("link", wire.SYMLINK), ("fifo", wire.OTHER), ("dir", wire.DIRECTORY)):
            self.assertEqual(self.op("stat", f"{self.dir}/{name}").accepted["kind"], kind)
        self.assertEqual(self.op("stat", f"{self.dir}/link").accepted["target"], b"/etc/passwd")
        self.assertEqual(self.op("stat", "/dev/null").accepted["kind"], wire.OTHER)
        self.assertEqual(self.code("stat", f"{self.dir}/none"), wire.NOT_FOUND)
        self.assertEqual(self.code("stat", "/etc/passwd/x"), wire.NOT_DIRECTORY)

    def test_owners(self):
        uid = 0 if not ROOT else UID
        name = "root" if not ROOT else "user"
        entry = self.write("f", b"")
        self.assertEqual((entry["uid"], entry["owner"], entry["gid"], entry["group"]), (uid, name, uid, name))
        entry = self.op("stat", "/proc/self/exe" if not ROOT else "/").accepted
        self.assertEqual((entry["owner"], entry["group"]), ("root", "root"))
        ch = self.op("list", self.dir, depth=1)
        self.assertEqual([(e["owner"], e["group"]) for e in ch.entries()], [(name, name)])
        ch = self.link.open("watch", path=self.guest.home)
        ch.wait_accepted()
        self.write("g", b"")
        self.assertEqual(ch.wait_msg(lambda k, f: f["path"] == b"g")["owner"], name)
        ch.close()
        if ROOT:
            self.op("mkdir", f"{self.dir}/open", mode=0o777)
            # By number: a group with a name, a name that is not UTF-8, numbers without a name.
            for who, want in ((f"{UID + 1}:{UID + 7}", ("other", "team")), (f"{UID + 9}:{UID + 9}", (f"{UID + 9}", f"{UID + 9}")),
                              ("4000000000:0", ("4000000000", "root")), (f"1:{UID}", ("daemon", "user"))):
                entry = self.write(f"{self.dir}/open/{who}", b"", user=who)
                self.assertEqual((entry["owner"], entry["group"]), want)
            found = self.op("list", f"{self.dir}/open", depth=1).entries()
            self.assertEqual({e["owner"] for e in found}, {"other", f"{UID + 9}", "4000000000", "daemon"})

    def test_owners_where_the_user_may_not_read_who_they_are(self):
        self.restart(read=["/usr", "/lib", "/bin"], write=["/tmp"], execute=["/usr"])
        self.assertEqual(self.code("read", "/etc/passwd"), wire.PERMISSION)
        self.assertEqual(self.write(f"{self.dir}/f", b"")["owner"], "user" if ROOT else "root")

    @unittest.skipUnless(tmpfs_keeps_attributes(), "this kernel's tmpfs keeps no attributes of users")
    def test_metadata(self):
        def meta(entry):
            return sorted(entry.get("meta", []))

        path = f"{self.dir}/f"
        entry = self.write(path, b"1", meta=["a=1", "long-key-9=" + "v" * 1024, b"z=\xff=\n", "empty="], mode=0o400)
        want = sorted([b"a=1", b"empty=", b"long-key-9=" + b"v" * 1024, b"z=\xff=\n"])
        self.assertEqual(meta(entry), want)
        self.ok(f"ln -s f {self.dir}/l")
        self.assertEqual(meta(self.op("stat", path).accepted), want)
        self.assertEqual(meta(self.op("read", path).accepted), want)
        listed = {e["path"]: meta(e) for e in self.op("list", self.dir, depth=1, follow=True).entries()}
        self.assertEqual(listed, {b"f": want, b"home": [], b"l": want})
        self.assertEqual(meta(self.op("stat", f"{self.dir}/l").accepted), [])
        self.assertEqual(self.python(f"import os\nprint(os.getxattr('{path}', 'user.e2b.a'))"), "b'1'\n")
        # Attributes that other programs have set are listed if the protocol can express them.
        self.write(path := f"{self.dir}/g", b"2", meta=["b=2"])
        self.python(f"""import os
for name, value in (("e2b.theirs", b"3"), ("e2b.Upper", b"4"), ("e2b.nul", bytes(1)), ("e2b.", b"5"), ("e2bx", b"6"), ("other", b"7"),
                    ("e2b.long", b"8" * 1025), ("e2b." + "k" * 65, b"9")):
    os.setxattr({path!r}, "user." + name, value)""")
        self.assertEqual(meta(self.op("stat", path).accepted), [b"b=2", b"theirs=3"])
        # A replaced file loses its attributes.
        self.assertEqual(meta(self.write(path, b"3", meta=["c=3"])), [b"c=3"])
        self.assertEqual(meta(self.write(path, b"4")), [])
        self.assertEqual(self.python(f"import os\nprint(os.listxattr({path!r}))"), "[]\n")
        # The maximum, and more than that set by another program.
        most = [f"{'k' * 62}{i:02}=".encode() + b"v" * 1024 for i in range(32)]
        self.assertEqual(meta(self.write(path, b"5", meta=most)), most)
        self.python(f"import os\nfor i in range(20): os.setxattr({path!r}, f'user.e2b.more-{{i}}', b'')")
        self.assertEqual(len(meta(self.op("stat", path).accepted)), 32)
        # Through a link, the attributes are those of the file.
        self.ok(f"ln -s g {self.dir}/gl")
        self.assertEqual(meta(self.write(f"{self.dir}/gl", b"6", meta=["d=4"])), [b"d=4"])
        self.assertEqual(meta(self.op("stat", path).accepted), [b"d=4"])

    def test_metadata_that_cannot_be_kept(self):
        plain = self.guest.plain
        ch = self.op("write", f"{plain}/f", b"1", meta=["a=1"])
        self.assertEqual(ch.closed["code"], wire.UNSUPPORTED, ch.closed)
        self.assertIn(f"{plain}/f", ch.closed["text"])
        self.assertEqual(self.names(plain), [])
        self.assertNotIn("meta", self.write(f"{plain}/f", b"1"))
        self.assertNotIn("meta", self.op("stat", f"{plain}/f").accepted)
        ch = self.op("write", f"{self.dir}/f", b"1", meta=["a=1", "a=2"])
        self.assertEqual(ch.closed["code"], wire.INVALID if tmpfs_keeps_attributes() else wire.UNSUPPORTED, ch.closed)
        self.assertEqual(self.names(self.dir), ["home"])

    def test_metadata_that_is_none(self):
        for meta in (["a"], ["=1"], ["A=1"], ["a_b=1"], ["a=" + "v" * 1025], ["k" * 65 + "=1"], [b"a=\0"], [f"k{i}=" for i in range(33)]):
            self.restart()
            self.link.open("write", path=f"{self.dir}/f", meta=meta)
            self.link.wait_ended()

    def test_paths(self):
        for path in ("~root", "~root/x", "~~", b"~\xff", "x" * 4096, "/" + "x" * 4095, "/" + "x" * 300):
            self.assertEqual(self.code("stat", path), wire.INVALID, path)
            self.assertEqual(self.code("move", "/tmp", target=path), wire.INVALID, path)
        self.assertEqual(self.code("stat", b"\xff"), wire.NOT_FOUND)
        self.assertEqual(self.code("stat", "/" + "x/" * 2047), wire.NOT_FOUND)
        odd = self.dir.encode() + b"/\xff\x01\n"
        self.write(odd, b"odd")
        self.assertEqual(self.read(odd), b"odd")
        self.assertEqual(self.code("stat", odd + b"\xff"), wire.NOT_FOUND)

    def test_paths_at_home(self):
        home = self.guest.home
        for path, want in (("", ""), ("~", ""), ("~/", "/"), (".", "/.")):
            self.assertEqual(self.op("stat", path).accepted["path"].decode(), home + want, path)
        self.assertEqual(self.write("a/f", b"1", parents=True)["path"].decode(), f"{home}/a/f")
        self.assertEqual(self.read(f"{home}/a/f"), b"1")
        self.assertEqual(self.write("~/a/g", b"22")["path"].decode(), f"{home}/a/g")
        self.assertEqual(self.read("./a/g"), b"22")
        self.assertEqual(self.write("a/~x", b"3")["path"].decode(), f"{home}/a/~x")
        self.assertEqual(self.op("mkdir", "d").accepted["path"].decode(), f"{home}/d")
        self.assertEqual(self.op("move", "a/f", target="~/d/f").accepted["path"].decode(), f"{home}/d/f")
        self.assertEqual(self.code("remove", "a"), 0)
        self.assertEqual(sorted(self.names("")), ["d"])
        self.assertEqual(self.names("d"), ["f"])
        self.assertEqual(self.op("pack", "d").accepted["path"].decode(), f"{home}/d")
        ch = self.link.open("watch", path="d")
        ch.wait_accepted()
        self.write("d/new", b"")
        self.assertTrue(ch.wait_msg(lambda k, f: f["path"] == b"new"))
        ch.close()
        ch.wait_closed()

    def test_paths_of_users_without_a_home(self):
        user = str(UID + 2) if ROOT else None
        if user:
            self.assertEqual(self.op("stat", "x/..", user=user).closed["code"], wire.NOT_FOUND)
            self.assertEqual(self.op("stat", "", user=user).accepted["path"], b"/tmp")
            self.assertEqual(self.op("stat", "~/..", user=user).accepted["path"], b"/tmp/..")

    def test_symbolic_links(self):
        self.ok(f"cd {self.dir}; echo 1 > file; ln -s file link; ln -s nowhere dangling; ln -s loop loop")
        self.assertEqual(self.read(f"{self.dir}/link"), b"1\n")
        self.write(f"{self.dir}/link", b"2")
        self.assertEqual(self.read(f"{self.dir}/file"), b"2")
        self.assertEqual(self.op("stat", f"{self.dir}/link").accepted["kind"], wire.SYMLINK)
        self.write(f"{self.dir}/dangling", b"3")
        self.assertEqual(self.read(f"{self.dir}/nowhere"), b"3")
        self.assertEqual(self.code("read", f"{self.dir}/loop"), wire.INVALID)
        self.assertEqual(self.code("write", f"{self.dir}/loop", b""), wire.INVALID)
        self.ok(f"cd {self.dir}; mkdir d; ln -s d dl")
        self.write(f"{self.dir}/dl/x", b"4")
        self.assertEqual(self.read(f"{self.dir}/d/x"), b"4")
        self.assertEqual(self.code("remove", f"{self.dir}/dl"), 0)
        self.assertEqual(self.read(f"{self.dir}/d/x"), b"4")

    def test_links_that_are_followed(self):
        top = os.path.realpath(self.dir)
        self.ok(f"cd {self.dir}; mkdir d; echo hello > d/f; chmod 640 d/f; chmod 750 d; mkfifo p; ln -s d dl; ln -s dl/f fl; "
                "ln -s fl chain; ln -s nowhere broken; ln -s loop loop; ln -s p pl; mkdir secret; echo 1 > secret/f; "
                "ln -s secret/f sl; chmod 0 secret")
        want = {"fl": (wire.FILE, 0o640, 6, f"{top}/d/f"), "chain": (wire.FILE, 0o640, 6, f"{top}/d/f"),
                "dl": (wire.DIRECTORY, 0o750, None, f"{top}/d"), "pl": (wire.OTHER, 0o644, 0, f"{top}/p"),
                "broken": (wire.SYMLINK, 0o777, 7, "nowhere"), "loop": (wire.SYMLINK, 0o777, 4, "loop"),
                "p": (wire.OTHER, 0o644, 0, None), "d/f": (wire.FILE, 0o640, 6, None), "d": (wire.DIRECTORY, 0o750, None, None)}
        want["sl"] = (wire.SYMLINK, 0o777, 8, "secret/f")  # not theirs to enter

        def seen(e, w):
            target = e.get("target")
            return e["kind"], e["mode"], e["size"] if w[2] is not None else None, target.decode() if target else None

        listed = {e["path"].decode(): e for e in self.op("list", self.dir, depth=2, follow=True).entries()}
        for name, w in want.items():
            entry = self.op("stat", f"{self.dir}/{name}", follow=True).accepted
            self.assertEqual((seen(entry, w), entry["path"].decode()), (w, f"{self.dir}/{name}"), name)
            self.assertEqual(seen(listed[name], w), w, name)
            plain = self.op("stat", f"{self.dir}/{name}").accepted
            self.assertEqual(plain["kind"], wire.SYMLINK if w[3] else w[0], name)
            self.assertEqual({k: plain[k] for k in ("uid", "mtime_ns")}, {k: entry[k] for k in ("uid", "mtime_ns")})
        self.assertNotIn("dl/f", listed)  # listed, not followed
        self.assertEqual(self.op("stat", f"{self.dir}/fl").accepted["target"], b"dl/f")

    def test_only_regular_files(self):
        self.ok(f"cd {self.dir}; mkfifo fifo; mkdir dir")
        self.python(f"import os, socket\nos.chdir('{self.dir}')\nsocket.socket(socket.AF_UNIX).bind('sock')")
        for path, code in ((f"{self.dir}/fifo", wire.INVALID), (f"{self.dir}/sock", wire.INVALID),
                           ("/dev/zero", wire.INVALID), ("/dev/tty", wire.INVALID),
                           (f"{self.dir}/dir", wire.IS_DIRECTORY), ("/proc/self/fd", wire.IS_DIRECTORY)):
            self.assertEqual(self.code("read", path), code, path)
            self.assertEqual(self.code("write", path, b"x"), code, path)
        self.assertEqual(self.code("write", f"{self.dir}/new/", b"x"), wire.IS_DIRECTORY)

    def test_no_space(self):
        small = self.guest.small
        ch = self.op("write", f"{small}/f", os.urandom(2_000_000))
        self.assertEqual(ch.closed["code"], wire.NO_SPACE, ch.closed)
        self.assertEqual(self.names(small), [])
        self.write(f"{small}/f", b"fits")

    def test_mkdir(self):
        self.assertEqual(self.op("mkdir", f"{self.dir}/d").accepted["kind"], wire.DIRECTORY)
        self.assertEqual(self.code("mkdir", f"{self.dir}/d"), wire.EXISTS)
        self.assertEqual(self.code("mkdir", f"{self.dir}/d", parents=True), 0)
        self.assertEqual(self.code("mkdir", f"{self.dir}/a/b/c"), wire.NOT_FOUND)
        self.assertEqual(self.code("mkdir", f"{self.dir}/a/b/c/", parents=True), 0)
        self.write(f"{self.dir}/f", b"")
        self.assertEqual(self.code("mkdir", f"{self.dir}/f", parents=True), wire.EXISTS)
        self.assertEqual(self.code("mkdir", f"{self.dir}/f/x", parents=True), wire.NOT_DIRECTORY)

    def test_move(self):
        self.write(f"{self.dir}/a", b"1")
        entry = self.op("move", f"{self.dir}/a", target=f"{self.dir}/b").accepted
        self.assertEqual((entry["path"].decode(), entry["size"]), (f"{self.dir}/b", 1))
        self.assertEqual(self.code("stat", f"{self.dir}/a"), wire.NOT_FOUND)
        self.write(f"{self.dir}/c", b"22")
        self.assertEqual(self.code("move", f"{self.dir}/b", target=f"{self.dir}/c"), 0)
        self.assertEqual(self.read(f"{self.dir}/c"), b"1")
        self.ok(f"mkdir -p {self.dir}/full/x")
        for path, target, code in (("c", f"{self.dir}/full", wire.IS_DIRECTORY), ("c", "none/x", wire.NOT_FOUND),
                                   ("none", f"{self.dir}/x", wire.NOT_FOUND), ("c", f"{self.guest.small}/x", wire.UNSUPPORTED),
                                   ("full", f"{self.dir}/full/x/y", wire.INVALID)):
            self.assertEqual(self.code("move", f"{self.dir}/{path}", target=target), code, (path, target))

    def test_move_makes_directories(self):
        self.write(f"{self.dir}/a", b"1")
        target = f"{self.dir}/x/y/z"
        self.assertEqual(self.code("move", f"{self.dir}/none", target=target, parents=True), wire.NOT_FOUND)
        self.assertEqual(self.code("move", f"{self.dir}/a", target=target), wire.NOT_FOUND)
        self.assertEqual(sorted(self.names(self.dir, 9)), ["a", "home"])
        self.assertEqual(self.op("move", f"{self.dir}/a", target=target, parents=True).accepted["path"].decode(), target)
        self.assertEqual(self.op("stat", f"{self.dir}/x/y").accepted["mode"], 0o755)
        self.assertEqual(self.read(target), b"1")
        self.assertEqual(self.code("move", target, target="~/p/q", parents=True), 0)
        self.assertEqual(self.read("p/q"), b"1")
        ch = self.op("move", f"{self.dir}/x", target="p/q/r/s", parents=True)
        self.assertEqual(ch.closed["code"], wire.NOT_DIRECTORY)
        self.assertIn("p/q/r/s", ch.closed["text"])

    def names(self, path, depth=1):
        ch = self.op("list", path, depth=depth)
        self.assertEqual(ch.closed["code"], 0, ch.closed)
        return [e["path"].decode() for e in ch.entries()]

    def test_list(self):
        top = f"{self.dir}/l"
        self.ok(f"cd {self.dir}; mkdir -p l/a/b/c; echo 1 > l/f; echo 2 > l/a/g; ln -s / l/a/root; mkfifo l/a/b/p")
        self.assertEqual(sorted(self.names(top)), ["a", "f"])
        self.assertEqual(sorted(self.names(top, 2)), ["a", "a/b", "a/g", "a/root", "f"])
        deep = self.names(top, 64)
        self.assertEqual(sorted(deep), ["a", "a/b", "a/b/c", "a/b/p", "a/g", "a/root", "f"])
        for name in deep:  # a directory comes before its entries
            parent = os.path.dirname(name)
            self.assertTrue(parent == "" or deep.index(parent) < deep.index(name))
        entries = {e["path"]: e for e in self.op("list", top, depth=2).entries()}
        self.assertEqual(entries[b"a/root"]["target"], b"/")
        self.ok(f"ln -s l {self.dir}/ll; mkdir {self.dir}/empty")
        self.assertEqual(sorted(self.names(f"{self.dir}/ll")), ["a", "f"])
        self.assertEqual(self.names(f"{self.dir}/empty"), [])
        for path, depth, code in ((f"{top}/f", 1, wire.NOT_DIRECTORY), (f"{top}/none", 1, wire.NOT_FOUND), (top, 0, wire.INVALID)):
            self.assertEqual(self.code("list", path, depth=depth), code)

    def test_huge_directory(self):
        n, huge = 30000, f"{self.dir}/huge"
        self.python(f"import os\nos.mkdir('{huge}')\nfor i in range({n}): open(f'{huge}/{{i}}', 'w').close()")
        self.assertEqual(sorted(map(int, self.names(huge))), list(range(n)))
        self.assertEqual(self.op("remove", huge).closed, {"code": 0})

    def test_a_list_that_nobody_wants_any_more(self):
        ch = self.link.open("list", path="/", depth=64)
        ch.wait_accepted()
        ch.close()
        ch.wait_closed()
        self.alone()

    def test_remove(self):
        self.ok(f"cd {self.dir}; mkdir -p outside r/a/b; echo 1 > outside/keep; echo 2 > r/a/f; ln -s ../outside r/link; mkfifo r/a/b/p")
        self.assertEqual(self.code("remove", f"{self.dir}/r/"), 0)
        self.assertEqual(self.code("stat", f"{self.dir}/r"), wire.NOT_FOUND)
        self.assertEqual(self.read(f"{self.dir}/outside/keep"), b"1\n")
        self.assertEqual(self.code("remove", f"{self.dir}/r"), wire.NOT_FOUND)
        self.assertEqual(self.code("remove", "/"), wire.INVALID)
        self.assertEqual(self.code("remove", "///"), wire.INVALID)
        self.assertEqual(self.code("remove", f"{self.dir}/outside/keep"), 0)

    def test_remove_a_deep_tree(self):
        deep = f"{self.dir}/deep"
        self.python(f"import os\nos.mkdir('{deep}')\nos.chdir('{deep}')\n"
                    "for i in range(3000):\n  os.mkdir('d'); open('f', 'w').close(); os.chdir('d')")
        self.assertEqual(self.op("remove", deep).closed, {"code": 0})
        self.assertEqual(self.code("stat", deep), wire.NOT_FOUND)

    def test_list_a_deep_tree(self):
        self.python(f"import os\nos.mkdir('{self.dir}/deep')\nos.chdir('{self.dir}/deep')\n"
                    "for i in range(70):\n  os.mkdir('d' * 200); os.chdir('d' * 200)")
        self.assertEqual(len(self.names(f"{self.dir}/deep", 64)), 4096 // 201)

    def test_many_operations_at_once(self):
        all_ = [self.link.open("write", path=f"{self.dir}/m{i}") for i in range(100)]
        for i, ch in enumerate(all_):
            self.assertIsNotNone(ch.wait_accepted())
            ch.send(str(i))
            ch.eof()
        for ch in all_:
            self.assertEqual(ch.wait_closed(), 0)
        for i in range(0, 100, 7):
            self.assertEqual(self.read(f"{self.dir}/m{i}"), str(i).encode())


class TestWatch(GuestCase):
    def watch(self, path=None, **more):
        ch = self.link.open("watch", path=path or self.dir, **more)
        self.assertIsNotNone(ch.wait_accepted(), ch.closed)
        return ch

    def saw(self, ch, event, path):
        got = ch.wait_msg(lambda k, f: (f["event"], f["path"]) == (event, path.encode()), f"event {event} of {path}")
        self.assertIsNotNone(got, ch.closed)
        return got

    def test_events(self):
        ch = self.watch()
        self.ok(f"cd {self.dir}; echo 1 > f; chmod 600 f; mv f g; rm g")
        for event, path in ((wire.CREATED, "f"), (wire.WRITTEN, "f"), (wire.ATTRIBUTES, "f"), (wire.RENAMED, "f"),
                            (wire.CREATED, "g"), (wire.REMOVED, "g")):
            self.saw(ch, event, path)
        ch.close()
        self.assertEqual(ch.wait_closed(), 0)
        self.alone()

    def test_our_own_writes(self):
        ch = self.watch()
        self.write(f"{self.dir}/f", b"1")
        self.saw(ch, wire.WRITTEN, "f")
        self.assertEqual([(f["event"], f["path"]) for _, f in ch.msgs], [(wire.CREATED, b"f"), (wire.WRITTEN, b"f")])
        self.write(f"{self.dir}/f", b"2")
        self.write(f"{self.dir}/end", b"2")
        self.saw(ch, wire.WRITTEN, "end")
        self.assertEqual([f["event"] for _, f in ch.msgs if f["path"] == b"f"], [wire.CREATED, wire.WRITTEN, wire.WRITTEN])
        self.assertEqual([f["path"] for _, f in ch.msgs if b"hutch" in f["path"]], [])

    def test_not_recursive(self):
        self.ok(f"mkdir {self.dir}/d")
        ch = self.watch()
        self.ok(f"cd {self.dir}; echo 1 > d/f; echo 1 > end")
        self.saw(ch, wire.WRITTEN, "end")
        self.assertNotIn(b"d/f", [f["path"] for _, f in ch.msgs])

    def test_recursive(self):
        self.ok(f"mkdir -p {self.dir}/a/b")
        ch = self.watch(recursive=True)
        self.ok(f"cd {self.dir}; echo 1 > a/b/f")
        self.assertEqual(self.saw(ch, wire.WRITTEN, "a/b/f")["kind"], wire.FILE)
        self.ok(f"cd {self.dir}; mkdir -p new/x/y; echo 1 > new/x/y/z")
        self.saw(ch, wire.CREATED, "new/x/y/z")
        self.ok(f"cd {self.dir}; echo 2 > new/x/y/later")
        self.saw(ch, wire.CREATED, "new/x/y/later")
        self.ok(f"cd {self.dir}; mv new old")
        self.saw(ch, wire.RENAMED, "new")
        self.saw(ch, wire.CREATED, "old/x/y/z")
        self.ok(f"cd {self.dir}; echo 3 > old/x/y/moved; rm -r old")
        self.saw(ch, wire.CREATED, "old/x/y/moved")
        self.saw(ch, wire.REMOVED, "old")

    def test_the_directory_goes(self):
        for how in ("rmdir @/d", "mv @/d @/e"):
            self.ok(f"mkdir {self.dir}/d")
            ch = self.watch(f"{self.dir}/d", recursive=True)
            self.ok(how.replace("@", self.dir))
            self.assertEqual(ch.wait_closed(), wire.GONE)

    def test_what_cannot_be_watched(self):
        self.write(f"{self.dir}/f", b"")
        self.assertEqual(self.code("watch", f"{self.dir}/f"), wire.NOT_DIRECTORY)
        self.assertEqual(self.code("watch", f"{self.dir}/none"), wire.NOT_FOUND)

    def test_a_flood_is_reported_as_lost_or_complete(self):
        ch = self.watch(recursive=True)
        n = 3000
        self.python(f"import os\nfor i in range({n}):\n"
                    f"  os.mkdir(f'{self.dir}/d{{i}}'); open(f'{self.dir}/d{{i}}/f', 'w').close()")
        self.ok(f"touch {self.dir}/end")
        ch.wait_msg(lambda k, f: f["event"] == wire.LOST or f["path"] == b"end", "the end", 60)
        if not any(f["event"] == wire.LOST for _, f in ch.msgs):
            seen = {f["path"] for _, f in ch.msgs if f["event"] == wire.CREATED}
            self.assertEqual({f"d{i}/f".encode() for i in range(n)} - seen, set())
