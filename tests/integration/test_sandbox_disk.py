# SPDX-License-Identifier: Apache-2.0
"""
A container's disk: for root an ext4 file system on a loop device, with its size as a hard limit; in
memory for ordinary users, and for sandboxes that request it.
"""

import json
import os
import re
import signal
import subprocess
import tempfile
import unittest

from hutchd import BoxCase
from sandbox import FILL, LONG, LOOSE, ROOT, STATE, SandboxCase, agent, as_root, as_user, children_of, eventually, host_yaml, hutch, loops, start, warden_of

MIB = 1 << 20
KEPT = 1 << 30  # the room that reservations leave on a small file system
FILES = """
import errno, os
n = 0
try:
    while True:
        os.close(os.open(f'/tmp/{n}', os.O_CREAT | os.O_WRONLY))
        n += 1
except OSError as e:
    print(errno.errorcode[e.errno], os.statvfs('/').f_ffree)
"""
SIZE = "import os; s = os.statvfs('/'); print(s.f_blocks * s.f_frsize, (s.f_blocks - s.f_bfree) * s.f_frsize, s.f_bavail * s.f_frsize)"


class DiskCase(SandboxCase):
    def df(self, sandbox):
        """Bytes: total, used, available."""
        return tuple(int(x) for x in self.python(sandbox, SIZE).split())

    def write(self, sandbox, path, n):
        error, wrote = self.python(sandbox, FILL, path, str(n)).split()
        return error, int(wrote)

    def row(self, sandbox):
        return next(x for x in self.json("receipt", "--json", sandbox)["layers"] if x["name"] == "disk-quota")


class Agree(BoxCase, DiskCase):
    def figures(self, sandbox):
        usage = self.inspect(sandbox)["usage"]
        metrics = json.loads(self.ask("GET", "/metrics")[1])
        return (usage["disk_total"], usage["disk"]), (metrics["disk_total"], metrics["disk_used"])

    def test_everybody_says_the_same(self):
        limits = self.inspect(self.box)["limits"]
        self.inside("head -c 5000000 /dev/zero >/tmp/five")
        total, used, _ = self.df(self.box)
        self.assertEqual(self.figures(self.box), ((total, used), (total, used)))
        self.assertEqual(total, limits["disk"] if ROOT else min(limits["disk"], limits["memory"] // 4 * 3))
        self.assertGreaterEqual(used, 5000000)
        seen = self.row(self.box)["seen"]
        self.assertEqual(int(re.match(r"(\d+) bytes, ", seen)[1]), total)
        self.assertIn("on a disk" if ROOT else "in memory: a tmpfs, which counts as memory", seen)


@as_root
class Cap(DiskCase):
    def test_of_what_can_be_written(self):
        other = self.create("--disk", "64MiB")
        sandbox = self.create("--disk", "64MiB")
        total, _, free = self.df(sandbox)
        self.assertEqual(total, 64 * MIB)
        self.assertGreater(free, total * 9 // 10 - 2 * MIB)
        # Nine tenths, all, more, and some of it again.
        self.assertEqual(self.write(sandbox, "/tmp/most", free * 9 // 10 // MIB * MIB)[0], "no")
        error, n = self.write(sandbox, "/tmp/rest", total)
        self.assertEqual(error, "ENOSPC")
        self.assertLessEqual(n, total - free * 9 // 10)
        self.assertLess(self.df(sandbox)[2], 2 * MIB)
        self.assertEqual(self.write(other, "/tmp/x", 32 * MIB)[0], "no", "another one's disk is not full")
        self.sh(sandbox, "rm /tmp/most")
        self.assertEqual(self.write(sandbox, "/tmp/again", 32 * MIB)[0], "no")
        self.ended(hutch("kill", sandbox), 0)

    def test_of_files(self):
        sandbox = self.create("--disk", "16MiB")
        self.assertEqual(self.python(sandbox, FILES).split()[0], "ENOSPC")

    def test_more_disk_than_memory(self):
        sandbox = self.create("--memory", "128MiB", "--disk", "1GiB")
        self.assertEqual(self.write(sandbox, "/tmp/big", 800 * MIB)[0], "no")
        found = self.inspect(sandbox)
        self.assertEqual(found["met"]["memory"]["killed"], 0)
        # The page cache does not count as the sandbox's memory.
        self.assertLess(found["usage"]["memory"], 64 * MIB)
        self.assertGreater(found["usage"]["memory_cache"], 0)

    def test_what_was_written_is_read(self):
        sandbox = self.create("--memory", "64MiB", "--disk", "512MiB")
        self.assertEqual(self.write(sandbox, "/tmp/x", 200 * MIB)[0], "no")
        before = self.sh(sandbox, "sha256sum /tmp/x")
        self.write(sandbox, "/tmp/y", 200 * MIB)
        self.assertEqual(self.sh(sandbox, "sha256sum /tmp/x"), before)

    def test_the_smallest_and_a_huge_one(self):
        for size, least in (("1MiB", 512 << 10), ("3TiB", 2 << 40)):
            with self.subTest(size=size):
                sandbox = self.create("--disk", size)
                self.assertGreater(self.df(sandbox)[2], least)
                self.assertEqual(self.sh(sandbox, "echo x >/tmp/x; cat /tmp/x"), "x\n")


@as_root
class Device(DiskCase):
    def test_is_not_inside(self):
        sandbox = self.create()
        self.assertEqual(len(loops()), 1, "the control: there is one")
        self.assertIn("loop", " ".join(os.listdir("/proc/fs/ext4")), "the control: the kernel tells what each disk has")
        inside = self.sh(sandbox, "ls -R /dev /sys /proc/fs 2>&1; cat /proc/partitions /proc/diskstats /proc/self/mountinfo", opts=["-u", "root"])
        self.assertNotIn("loop", inside)
        for number in (0, 1):
            call = f"import os, stat; os.mknod('/tmp/loop', 0o600 | stat.S_IFBLK, os.makedev(7, {number}))"
            self.assertIn(b"PermissionError", self.exec_(sandbox, "python3", "-c", call, code=1, opts=["-u", "root"]).stderr)
        self.assertIn("overlay", self.sh(sandbox, "cat /proc/mounts"))

    def test_one_for_each_of_many(self):
        made = [self.create("--disk", "32MiB") for _ in range(10)]  # a kernel starts with eight loop devices
        self.assertEqual(len(loops()), len(made))
        for i, sandbox in enumerate(made):
            self.sh(sandbox, f"echo {i} >/tmp/mine")
        for i, sandbox in enumerate(made):
            self.assertEqual(self.sh(sandbox, "cat /tmp/mine"), f"{i}\n")
        self.ended(hutch("kill", *made), 0)
        eventually(lambda: not loops(), "the end of the devices", also=loops)

    def test_goes_with_each_part(self):
        for part in ("warden", "hutch-keeper", "hutch-guest"):
            with self.subTest(part=part):
                sandbox = self.create()
                self.write(sandbox, "/tmp/x", 32 * MIB)
                warden = warden_of(sandbox)
                [pid] = [warden] if part == "warden" else children_of(warden, part)
                os.kill(pid, signal.SIGKILL)
                eventually(lambda: not loops(), "the end of the device", also=loops)

    def test_goes_with_a_start_that_is_cut_off(self):
        for what in ("hutch", "warden"):
            with self.subTest(what=what):
                p = start("create", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                eventually(loops, "a device", pause_max=0.001)
                if what == "warden":
                    for sandbox in self.ps("-a"):
                        os.kill(warden_of(sandbox), signal.SIGKILL)
                p.kill()
                p.wait(LONG)
                for sandbox in self.ps("-a"):
                    hutch("rm", "-f", sandbox)
                eventually(lambda: not loops(), "the end of the device", also=loops)


class SmallHost(DiskCase):
    """Disks are stored on a file system that the test mounts."""

    def setUp(self):
        super().setUp()
        self.enterContext(host_yaml("disk_overcommit: false\n"))

    def keep_on(self, *mount):
        home = STATE / "machine"
        home.mkdir(mode=0o700, exist_ok=True)
        subprocess.run(["mount", *mount, home], check=True)
        self.addCleanup(subprocess.run, ["umount", home], check=True)
        os.chmod(home, 0o700)
        return home

    def small(self, size):
        image = tempfile.NamedTemporaryFile(dir=STATE)
        self.addCleanup(image.close)
        image.truncate(size)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", image.name], check=True)
        return self.keep_on("-o", "loop", image.name)

    @staticmethod
    def used(home):
        st = os.statvfs(home)
        return (st.f_blocks - st.f_bfree) * st.f_frsize

    @staticmethod
    def free(home):
        st = os.statvfs(home)
        return st.f_bavail * st.f_frsize

    def leave(self, home, n):
        """Takes all room but n bytes, until the file "filler" is removed."""
        with open(home / "filler", "ab", buffering=0) as f:
            for _ in range(1000):
                if self.free(home) == n:
                    return
                size, more = os.fstat(f.fileno()).st_size, self.free(home) - n
                try:
                    os.posix_fallocate(f.fileno(), size, more) if more > 0 else os.truncate(f.fileno(), size + more)
                except OSError:
                    f.write(bytes(4096))
        self.fail(f"{self.free(home)} bytes are free, not {n}")

    @as_root
    def test_freed_bytes_go_back_to_the_host(self):
        home = self.small(400 * MIB)
        with host_yaml("disk_overcommit: true\n"):
            sandbox = self.create("--disk", "1GiB")
        before = self.used(home)
        self.assertEqual(self.write(sandbox, "/tmp/x", 200 * MIB)[0], "no")
        self.assertGreater(self.used(home) - before, 190 * MIB)
        self.sh(sandbox, "rm /tmp/x")
        eventually(lambda: self.used(home) - before < 8 * MIB, "room", also=lambda: self.used(home) - before)
        self.assertEqual(self.write(sandbox, "/tmp/x", 200 * MIB)[0], "no")
        self.ended(hutch("kill", sandbox), 0)
        eventually(lambda: self.used(home) - before < 8 * MIB, "room", also=lambda: self.used(home) - before)

    @as_root
    def test_a_full_host(self):
        home = self.small(3 * KEPT)
        other = self.create("--disk", "16MiB")
        with host_yaml("disk_overcommit: true\n"):
            sandbox = self.create("--disk", "1GiB")
        self.leave(home, 24 * MIB)
        self.assertIn(self.write(sandbox, "/tmp/x", 200 * MIB)[0], ("EIO", "ENOSPC", "EROFS"))
        eventually(lambda: self.inspect(sandbox)["met"]["disk"]["lost"], "the lost writes")
        lost = "writes to its disk were lost: the host's disk was full, or failed"
        self.assertIn(lost, self.ended(hutch("inspect", sandbox), 0).stdout.decode())
        reasons = {row["id"]: row["reason"] for row in self.json("ps", "--json")}
        self.assertEqual((reasons[sandbox], reasons[other]), (lost, None))
        self.assertEqual(self.sh(other, "echo alive"), "alive\n")
        self.assertEqual(self.write(other, "/tmp/y", 4 * MIB)[0], "no", "its space is reserved")
        self.assertEqual(self.write(other, "/tmp/y", 4 * MIB)[0], "no", "and stays so")
        self.ended(hutch("kill", sandbox), 0)
        self.assertTrue(self.inspect(sandbox)["end"]["disk_lost"])
        said = [json.loads(line)["payload"] for line in hutch("audit", "show", "--json", "-s", sandbox).stdout.splitlines()]
        self.assertEqual([x["limit"] for x in said if "lost" in x.get("limit", "")], ["disk-lost"])
        (home / "filler").unlink()
        eventually(lambda: self.used(home) < 24 * MIB, "room", also=lambda: self.used(home))
        self.assertEqual(self.write(other, "/tmp/x", 8 * MIB)[0], "no")
        self.assertFalse(self.inspect(other)["met"]["disk"]["lost"])

    @as_root
    def test_reserved_space(self):
        home = self.small(3 * KEPT)
        self.run_("true", opts=["--disk", "64MiB"])  # makes the empty disk
        eventually(lambda: not loops(), "the end of the device", also=loops)
        self.leave(home, KEPT + 96 * MIB)
        before = self.used(home)
        sandbox = self.create("--disk", "64MiB")
        self.assertGreater(self.used(home) - before, 63 * MIB)
        said = self.refused("create", "--disk", "64MiB")
        self.assertRegex(said, "no room for a disk of 64 MiB in .*/machine/disks: 10[0-9]{2} MiB are free, and 1024 MiB must stay free; "
                               "free [0-9]+ MiB more, use a smaller --disk, or set disk_overcommit")
        self.leave(home, 0)
        used = self.used(home)
        for _ in range(3):
            self.assertEqual(self.write(sandbox, "/tmp/x", 40 * MIB)[0], "no")
            self.sh(sandbox, "rm /tmp/x; fallocate -l 20M /tmp/y; printf x | dd of=/tmp/y bs=1 seek=100000 conv=notrunc,fsync status=none; rm /tmp/y")
        self.assertEqual(self.used(home), used, "nothing is freed, and nothing more is used")
        (home / "filler").unlink()

    def edge(self):
        """A file system, and the free bytes with which a disk of 64 MiB just fits."""
        home = self.small(3 * KEPT)
        self.run_("true", opts=["--disk", "64MiB"])  # makes the empty disk
        eventually(lambda: not loops(), "the end of the device", also=loops)
        return home, KEPT + 64 * MIB

    @as_root
    def test_the_last_room_that_is_given(self):
        home, enough = self.edge()
        self.leave(home, enough)
        self.ended(hutch("kill", self.create("--disk", "64MiB")), 0)
        eventually(lambda: self.free(home) == enough, "room", also=lambda: self.free(home))
        self.leave(home, enough - MIB)
        self.assertIn("MiB are free, and 1024 MiB must stay free; free 1 MiB more", self.refused("create", "--disk", "64MiB"))
        eventually(lambda: self.free(home) == enough - MIB, "room", also=lambda: self.free(home))

    @as_root
    def test_starts_at_once_share_the_last_room(self):
        home, enough = self.edge()
        self.leave(home, enough + 32 * MIB)
        starts = [start("create", "--disk", "64MiB", stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
        ends = [(p.communicate(timeout=LONG), p.returncode) for p in starts]
        self.assertLessEqual([code for _, code in ends].count(0), 1, ends)
        for (_, said), code in ends:
            self.assertTrue(code == 0 or b"no room for a disk of 64 MiB" in said, said)
        self.assertGreaterEqual(self.free(home), KEPT)
        self.ended(hutch("rm", "-f", *self.ps()), 0) if self.ps() else None
        eventually(lambda: self.free(home) == enough + 32 * MIB, "room", also=lambda: self.free(home))
        self.create("--disk", "64MiB")

    @as_root
    def test_a_host_without_a_disk(self):
        self.keep_on("-t", "tmpfs", "-o", "size=64m", "tmpfs")
        said = self.refused("run", "--rm", "--", "true")
        self.assertIn("on a tmpfs", said)
        self.assertIn("--scratch memory", said)
        self.run_("true", opts=["--scratch", "memory"])


@as_root
class Closed(DiskCase):
    """A missing host feature is reported, and never replaced by memory."""

    def without(self, path, *args):
        """Runs hutch with that file of the host hidden."""
        script = 'mount --bind /dev/null "$(realpath "$0")" && exec "$@"'
        return subprocess.run(["unshare", "--mount", "sh", "-c", script, path, os.environ["HUTCH"], *args], capture_output=True,
                              timeout=LONG, check=False)

    def test_without_loop_devices(self):
        said = self.ended(self.without("/dev/loop-control", "run", "--rm", "--", "true"), 125).stderr.decode()
        self.assertIn("loop device", said)
        self.assertIn("--scratch memory", said)
        self.ended(self.without("/dev/loop-control", "run", "--rm", "--scratch", "memory", "--", "true"), 0)

    def test_without_mkfs(self):
        opts = ("--rm", "--disk", "77MiB", "--", "true")
        said = self.ended(self.without("/usr/sbin/mkfs.ext4", "run", *opts), 125).stderr.decode()
        self.assertIn("mkfs.ext4", said)
        self.ended(hutch("run", *opts), 0)


class Speed(DiskCase):
    """Limits of disk I/O, by control groups."""

    SYNC = ("import os, time; f = os.open('/tmp/x', os.O_CREAT | os.O_WRONLY); b = time.monotonic()\n"
            "for _ in range(8): os.write(f, bytes(1 << 20)); os.fsync(f)\n"
            "print(time.monotonic() - b)")
    SMALL = ("import os, time; f = os.open('/tmp/y', os.O_CREAT | os.O_WRONLY); b = time.monotonic()\n"
             "for i in range(60): os.pwrite(f, b'x' * 4096, i * 8192); os.fsync(f)\n"
             "print(time.monotonic() - b)")

    def limited(self, key, value):
        return ("--agent", agent(f"slow-{key.replace('_', '-')}", f"extends: default\nresources: {{{key}: {value}}}\n"))

    def compare(self, key, value, script, least):
        slow, control = self.create(*self.limited(key, value)), self.create()
        self.assertGreater(float(self.python(slow, script)), least)
        self.assertNotIn("/s", self.row(control)["seen"])
        return self.row(slow)

    @as_root
    def test_bytes(self):
        row = self.compare("disk_bandwidth", "2MiB", self.SYNC, 3)  # 8 MiB at 2 MiB/s
        self.assertTrue(row["enforced"], row)
        self.assertRegex(row["seen"], "an ext4 of its own; 2097152 bytes/s by (io.max|blkio, write-back excepted .cgroup v1.)$")

    @as_root
    def test_operations(self):
        row = self.compare("disk_ops", "20", self.SMALL, 2)  # 60 writes and more at 20/s
        self.assertTrue(row["enforced"], row)
        self.assertIn("; 20 operations/s by ", row["seen"])

    @unittest.skipUnless(os.path.ismount("/sys/fs/cgroup/blkio"), "no cgroup v1 to take the controller from")
    @as_root
    def test_without_a_controller(self):
        def run(*opts):
            script = "umount /sys/fs/cgroup/blkio && exec \"$@\""
            args = ("run", "--rm", *opts, *self.limited("disk_ops", "20"), "--", "true")
            return subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", os.environ["HUTCH"], *args], capture_output=True, timeout=LONG, check=False)

        said = self.ended(run(), 125).stderr.decode()
        self.assertIn("resources.disk_bandwidth and disk_ops cannot be enforced on this host (", said)
        self.assertIn("io controller", said)
        self.assertIn("use --level microvm, or --best-effort", said)
        self.ended(run("--best-effort"), 0)

    def test_in_memory_there_is_nothing_to_limit(self):
        sandbox = self.create(*LOOSE, "--scratch", "memory", *self.limited("disk_bandwidth", "2MiB"))
        self.assertIn("in memory", self.row(sandbox)["seen"])


class InMemory(DiskCase):
    def check(self, sandbox):
        self.assertEqual(self.df(sandbox)[0], 192 * MIB)
        seen = self.row(sandbox)
        self.assertTrue(seen["enforced"], seen)
        self.assertEqual(seen["seen"], f"{192 * MIB} bytes, 49152 inodes, in memory: a tmpfs, which counts as memory")
        self.assertEqual(loops(), [])

    def test_where_it_is_asked_for(self):
        self.check(self.create(*LOOSE, "--scratch", "memory", "--memory", "256MiB"))

    @as_root
    def test_counts_as_memory(self):
        sandbox = self.create("--scratch", "memory", "--memory", "256MiB")
        self.sh(sandbox, "head -c 100000000 /dev/zero >/tmp/x")
        self.assertGreater(self.inspect(sandbox)["usage"]["memory"], 100000000)

    @as_user
    def test_of_an_ordinary_user(self):
        self.check(self.create(*LOOSE, "--memory", "256MiB"))

    @as_user
    def test_no_disk_for_an_ordinary_user(self):
        said = self.refused("run", "--scratch", "disk", "--", "true")
        self.assertIn("--scratch disk is not available on this host: only root can mount a disk", said)

    def test_more_than_memory_can_hold_is_refused(self):
        kind = ("--scratch", "memory") if ROOT else ()
        said = self.refused("run", *kind, "--disk", "2GiB", "--", "true")
        self.assertIn("--disk 2GiB cannot be enforced on this host", said)
        self.assertIn("768MiB at most (three quarters of --memory)", said)
        self.assertIn("--best-effort", said)
        self.assertEqual(self.df(self.create(*kind, "--best-effort", "--disk", "2GiB"))[0], 768 * MIB)
        self.assertEqual(self.df(self.create(*kind, "--disk", "100MiB"))[0], 100 * MIB)

    def test_a_policy_says_so(self):
        said = self.json("config", "compile", "default")
        self.assertEqual(said["resources"]["scratch"], "disk")

    def test_not_for_machines(self):
        said = self.refused("run", "--level", "microvm", "--scratch", "memory", "--", "true")
        self.assertIn("resources.scratch: memory is for containers", said)
