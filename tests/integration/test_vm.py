# SPDX-License-Identifier: Apache-2.0
"""
hutch-guest in a VM: one boot, saved before HELLO, and clones of it. One clone is put to sleep,
saved while it runs, and continued twice. test_guest_*.py tests the rest of the guest with the same
code.
"""

import hashlib
import os
import secrets
import socket
import subprocess
import time
import unittest

import vm
import wire
from waiting import eventually, quiet_for

PROGRAMS = ["sh", "cat", "ls", "id", "sleep", "head", "od", "hostname", "date", "ln", "chmod", "sha256sum", "stty"]
REFUSED = {"EPERM", "EACCES", "ENOENT", "EROFS", "ENOSYS", "ENODEV", "ENOSPC"}


def ready():
    return vm.kernel_path() and os.environ.get("HUTCH_GUEST") and os.environ.get("VM_PROBE") and not vm.tools_missing()


@unittest.skipUnless(ready(), "HUTCH_VM_KERNEL is not set, or QEMU or mkfs.erofs are not here")
class TestMachine(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.machines = []
        cls.parts = vm.Parts(os.environ["HUTCH_GUEST"], os.environ["VM_PROBE"], PROGRAMS)
        cls.addClassCleanup(cls.parts.done)
        cls.addClassCleanup(lambda: [m.kill() for m in cls.machines])
        cls.memory = f"{cls.parts.top}/memory"
        template = cls.machine("template", shared=True, memory=cls.memory)
        template.run()
        template.qmp.wait("VSERPORT_CHANGE", lambda data: data["open"])
        template.save(f"{cls.parts.top}/template.state")
        cls.drop(template)
        cls.a = cls.clone("a")
        cls.a.hello(hostname="one", machine="a" * 32, time=1_700_000_000_000_000_000, egress=True)

    @classmethod
    def machine(cls, name, of="blank", **more):
        m = vm.Machine(cls.parts, cls.parts.disk(name, of), **more)
        cls.machines.append(m)
        return m

    @classmethod
    def clone(cls, name):
        return cls.machine(name, memory=cls.memory, state=f"{cls.parts.top}/template.state").run()

    @classmethod
    def drop(cls, m):
        cls.machines.remove(m)
        m.kill()

    # ---- in a VM ----
    def run_(self, *argv, of=None, **more):
        ch = (of or self.a).link.open("exec", argv=list(argv), **more)
        ch.wait_closed(vm.BOOT)
        return ch

    def ok(self, script, of=None, **more):
        ch = self.run_("sh", "-c", script, of=of, **more)
        self.assertEqual((ch.closed, ch.exit and ch.exit.get("code"), ch.out(2)), ({"code": 0}, 0, b""), script)
        return ch.out().decode()

    # ---- identity ----
    def test_identity(self):
        self.assertEqual(self.ok("hostname; cat /etc/machine-id"), "one\n" + "a" * 32 + "\n")
        self.assertIn(int(self.ok("date +%s")) - 1_700_000_000, range(100_000))
        self.assertIn("nameserver 127.0.0.1", self.ok("cat /etc/resolv.conf"))
        self.assertEqual(self.ok("id -u; id -u", user="root"), "0\n0\n")
        self.assertEqual(self.ok("id -u"), "1000\n")

    def test_copies_differ(self):
        draw = "cat /proc/sys/kernel/random/boot_id; head -c 64 /dev/urandom | od -An -tx1; cat /proc/self/maps | head -1"
        b, c = self.clone("b"), self.clone("c")
        for m in (b, c):
            m.hello(time=1_700_000_000_000_000_000)
        one, two = self.ok(draw, of=b), self.ok(draw, of=c)
        self.assertEqual([x for x in zip(one.splitlines(), two.splitlines()) if x[0] == x[1]], [], (one, two))
        self.assertFalse(set(one.split()[:1]) & set(two.split()[:1]))
        # Clones do not see each other's writes, and a VM ends with its channel.
        self.ok("echo b > /work/mine", of=b)
        self.assertEqual(self.run_("cat", "/work/mine", of=c).exit["code"], 1)
        for m in (b, c):
            m.link.sock.shutdown(socket.SHUT_RDWR)
            self.assertEqual(m.ended(), 0)
            self.drop(m)

    def test_what_users_see(self):
        self.assertEqual(self.ok("ls /dev").split(), "fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero".split())
        self.assertEqual(self.ok("ls -A /sys"), "")
        names = set(self.ok("ls -A /").split())
        self.assertFalse(names & {"init", "lower", "space", "cgroup", "new"}, names)
        mounts = {line.split()[1]: line.split()[3].split(",") for line in self.ok("cat /proc/mounts").splitlines()}
        for point in ("/proc/sys", "/proc/irq", "/proc/bus", "/sys"):
            self.assertIn("ro", mounts[point])
        for point, options in mounts.items():
            self.assertIn("nosuid", options, point)
            self.assertTrue("nodev" in options or point == "/dev" or point == "/dev/pts" or point.startswith("/proc/"), (point, options))
        status = self.ok("cat /proc/self/status", user="root")
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertIn(f"{name}:\t0000000000000000", status)
        self.assertIn("NoNewPrivs:\t1", status)
        self.assertIn("Seccomp:\t2", status)
        self.assertEqual(self.ok("cat /proc/self/cgroup"), "0::/users\n")

    def test_what_root_may_not(self):
        ch = self.run_("/bin/probe", user="root")
        lines = dict(line.split() for line in ch.out().decode().splitlines())
        may = {k: lines.pop(k) for k in list(lines) if k.startswith("may-")}
        self.assertGreater(len(lines), 30)
        self.assertEqual({k: v for k, v in lines.items() if v not in REFUSED}, {})
        self.assertEqual(set(may.values()), {"yes"}, may)
        self.assertEqual(self.ok("echo still here"), "still here\n")

    def test_the_kernel_is_locked(self):
        """Only existing settings: a kernel without modules has none of theirs."""
        want = {"kernel/modprobe": "", "kernel/modules_disabled": "1", "kernel/kexec_load_disabled": "1", "kernel/sysrq": "0",
                "kernel/dmesg_restrict": "1", "kernel/usermodehelper/bset": "0\t0", "kernel/panic_on_oops": "1", "user/max_user_namespaces": "0"}
        script = 'cd /proc/sys; for n in %s; do [ ! -e $n ] || { echo "$n=$(cat $n)"; }; done' % " ".join(want)
        have = dict(line.split("=", 1) for line in self.ok(script, user="root").splitlines())
        self.assertEqual(have, {k: v for k, v in want.items() if k in have})
        self.assertIn("kernel/dmesg_restrict", have)

    @unittest.skipUnless(os.geteuid() == 0, "root alone may do all that")
    def test_probe_can_succeed(self):
        out = subprocess.run(["unshare", "--mount", "--uts", "--pid", "--fork", os.environ["VM_PROBE"], "control"], check=True,
                             capture_output=True, text=True).stdout
        self.assertEqual(dict(line.split() for line in out.splitlines()),
                         dict.fromkeys(["mount", "hostname", "namespaces", "user-namespace", "chroot", "socket-filter"], "yes"))

    def test_processes_are_counted(self):
        loop = "(i=0; while [ $i -lt 100 ]; do sleep 1000 >/dev/null 2>&1 & i=$((i+1)); done; echo all); echo done; read x"
        ch = self.a.link.open("exec", argv=["sh", "-c", loop], stdin=True)
        self.addCleanup(ch.close)
        self.assertNotIn(b"all", ch.wait_data(b"done", timeout=vm.BOOT))
        # The command that could not fork has ended and made room for another.
        room = self.a.link.open("exec", argv=["sleep", "1000"])
        self.addCleanup(room.close)
        self.assertIsNotNone(room.wait_accepted(vm.BOOT))
        refused = self.run_("sleep", "0")
        self.assertEqual(refused.closed["code"], wire.TOO_MANY, refused.closed)
        for c in (ch, room):
            c.close()
            c.wait_closed(vm.BOOT)
        eventually(lambda: self.run_("sh", "-c", "echo yes").out() == b"yes\n", "room for more")

    # ---- operations ----
    def test_streams(self):
        data = secrets.token_bytes(1_500_000)
        ch = self.a.link.open("exec", argv=["cat"], stdin=True)
        self.assertIsNotNone(ch.wait_accepted(vm.BOOT))
        ch.send(data)
        ch.eof()
        ch.wait_closed(vm.BOOT)
        self.assertEqual(hashlib.sha256(ch.out()).digest(), hashlib.sha256(data).digest())

    def test_terminal(self):
        ch = self.a.link.open("exec", argv=["sh", "-c", "stty size; read x; echo got $x"], columns=90, rows=30)
        ch.wait_data(b"30 90", timeout=vm.BOOT)
        ch.send(b"word\n")
        ch.wait_data(b"got word", timeout=vm.BOOT)
        ch.wait_closed(vm.BOOT)

    def test_files_and_watches(self):
        watch = self.a.link.open("watch", path="/work")
        self.assertIsNotNone(watch.wait_accepted(vm.BOOT))
        data = secrets.token_bytes(300_000)
        ch = self.a.link.open("write", path="/work/file")
        self.assertIsNotNone(ch.wait_accepted(vm.BOOT))
        ch.send(data)
        ch.eof()
        self.assertEqual(ch.wait_closed(vm.BOOT), 0)
        watch.wait_msg(lambda k, f: k == wire.EVENT and f["path"] == b"file", "an event", vm.BOOT)
        watch.close()
        ch = self.a.link.open("read", path="/work/file")
        self.assertEqual(ch.wait_closed(vm.BOOT), 0)
        self.assertEqual(ch.out(0), data)

    def test_network_is_loopback(self):
        lines = self.ok("cat /proc/net/dev").splitlines()
        self.assertEqual([line.split(":")[0].strip() for line in lines[2:]], ["lo"])
        # If the interface were down, the code would differ: see PROTOCOL.md, port.
        self.assertEqual(self.a.link.open("port", port=9).wait_closed(vm.BOOT), wire.NOT_FOUND)

    # ---- sleep ----
    def test_sleep_and_wake(self):
        ch = self.a.link.open("exec", argv=["sh", "-c", "while :; do read x < /proc/uptime; echo ${x%% *}; sleep 0.05; done"])
        ch.wait_data(b"\n", timeout=vm.BOOT)
        self.a.link.sleep(vm.BOOT)
        had = len(ch.out())
        quiet_for(1, lambda: len(ch.out()) != had, "output of one that sleeps")
        self.a.link.wake(seed=secrets.token_bytes(32), time=1_800_000_000_000_000_000)
        self.a.link.wait(lambda: len(ch.out()) > had + 20, "more", vm.BOOT)
        self.assertGreaterEqual(int(self.ok("date +%s")), 1_800_000_000)
        ch.close()
        ch.wait_closed(vm.BOOT)
        times = [float(x) for x in ch.out().split()]
        # Nothing was written during the sleep, and nothing waited in the pipe.
        self.assertGreater(max(b - a for a, b in zip(times, times[1:])), 0.9)
        self.a.link.sleep(vm.BOOT)
        self.a.link.wake(time=1_700_000_000_000_000_000)

    def test_saved_as_it_runs(self):
        m = self.clone("runs")
        m.hello(hostname="first", machine="1" * 32)
        # Damage that root does to its own /dev and /etc must not affect the clones.
        self.ok("cd /dev; ln -sf /nowhere urandom; chmod 0 /etc", of=m, user="root")
        counting = m.link.open("exec", argv=["sh", "-c", "echo kept > /work/kept; i=0; while :; do i=$((i+1)); echo $i; done"])
        draws = m.link.open("exec", argv=["sh", "-c", "read go; head -c 32 /dev/random | od -An -tx1; exit 7"], stdin=True)
        counting.wait_data(b"\n100\n", timeout=vm.BOOT)
        draws.wait_accepted(vm.BOOT)
        m.link.sleep(vm.BOOT)
        m.save(f"{self.parts.top}/runs.state")
        seen = counting.out()
        results = []
        for name in ("second", "third"):
            copy = self.machine(name, of="runs", state=f"{self.parts.top}/runs.state").run()
            copy.hello(hostname=name, machine=name[0].encode().hex() * 16)
            results.append(self.continued(copy, name, seen, counting.accepted["pid"], draws.accepted["pid"]))
            self.drop(copy)
        self.assertNotEqual(*results)
        # The first VM is unaffected and continues.
        m.qmp("cont")
        m.link.wake(seed=secrets.token_bytes(32), time=time.time_ns())
        m.link.wait(lambda: len(counting.out()) > len(seen) + 1000, "more", vm.BOOT)
        self.assertNotIn(self.drawn(draws), results)
        self.drop(m)

    # ---- CA ----
    def test_ca(self):
        """Copies of a sleeping VM get other CAs; one has locked its /etc."""
        cas = [f"-----BEGIN CERTIFICATE-----\n{x}\n-----END CERTIFICATE-----\n" for x in ("Q0E=", "T3RoZXI=")]
        bundle = "/etc/ssl/certs/ca-certificates.crt"
        m = self.clone("trusts")
        m.hello(read=["/bin", "/usr", "/lib", "/lib64", "/work"], ca=cas[0])
        block = "# Hutch sandbox CA begin\n{}# Hutch sandbox CA end\n"
        read = f"cat /etc/hutch/ca.pem {bundle} /etc/hutch/bundle.pem"
        self.assertEqual(self.ok(read, of=m), cas[0] + 2 * block.format(cas[0]))
        self.assertNotEqual(self.ok("ls -ln /etc/hutch/ca.pem", of=m).find("-rw-r--r-- 1 0 0"), -1)
        m.link.sleep(vm.BOOT)
        m.save(f"{self.parts.top}/trusts.state")
        copy = self.machine("trusts-too", of="trusts", state=f"{self.parts.top}/trusts.state").run()
        copy.hello(ca=cas[1])
        self.assertEqual(self.ok(read, of=copy), cas[1] + 2 * block.format(cas[1]))
        # Its users have damaged the directory: it continues with the old CA.
        self.ok("chmod 0 /etc/hutch", of=copy, user="root")
        copy.link.sleep(vm.BOOT)
        copy.link.hello_again(vm.BOOT, seed=secrets.token_bytes(wire.SEED), read=["/"], write=["/"], execute=["/"], ca=cas[0])
        self.assertEqual(self.ok(f"cat {bundle}", of=copy), block.format(cas[0]))
        for x in (m, copy):
            self.drop(x)

    def drawn(self, ch):
        ch.send(b"go\n")
        ch.wait_closed(vm.BOOT)
        self.assertEqual(ch.exit["code"], 7)
        return ch.out()

    def continued(self, copy, name, seen, counting, draws):
        """The first random bytes of a copy; without a new seed they would repeat. Its commands
        still run."""
        ch = copy.link.open("adopt", pid=draws)
        self.assertIsNotNone(ch.wait_accepted(vm.BOOT))
        drawn = self.drawn(ch)
        ch = copy.link.open("adopt", pid=counting)
        self.assertEqual(ch.wait_accepted(vm.BOOT), {"pid": counting})
        copy.link.wait(lambda: len(ch.out()) > 100_000, "more", vm.BOOT)
        numbers = [int(x) for x in (seen + ch.out()).split(b"\n")[:-1]]
        self.assertEqual(numbers, list(range(1, len(numbers) + 1)))
        self.assertEqual(self.ok("hostname; cat /work/kept", of=copy, user="1000"), f"{name}\nkept\n")
        return drawn
