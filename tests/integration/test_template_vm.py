# SPDX-License-Identifier: Apache-2.0
"""
VM templates with a real QEMU and kernel, without sandboxes: 'bench-machine' makes, opens and clones
them. PID 1 of the VM echoes its input. HUTCH_VM_KERNEL and HUTCH_VM_INITRD as in vm.py.
"""

import json
import os
import random
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import vm
from support import hutch
from waiting import eventually, until_clock

MIB = 128
PATIENCE = 600


def left_processes(top):
    """Other processes that have a file of this test open or in their arguments."""
    found = []
    for p in Path("/proc").glob("[0-9]*"):
        try:
            text = (p / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
            links = [os.readlink(f) for f in (p / "fd").iterdir()]
        except OSError:
            continue
        if int(p.name) != os.getpid() and (str(top) in text or any(str(top) in x for x in links)):
            found.append((int(p.name), text))
    return found


@unittest.skipUnless(os.geteuid() == 0, "needs root")
@unittest.skipUnless(vm.kernel_path(), "HUTCH_VM_KERNEL names no kernel")
@unittest.skipIf(vm.tools_missing(), f"not installed: {vm.tools_missing()}")
class Templates(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.top = tempfile.TemporaryDirectory(prefix="hutch-test-")
        cls.dir = Path(cls.top.name)
        vm.make_initrd(os.environ["BENCH_MACHINE_INIT"], os.environ.get("HUTCH_VM_INITRD"), cls.dir / "initrd")
        vm.make_disk(cls.dir / "blank")
        (cls.dir / "tree").mkdir()
        subprocess.run(["mkfs.erofs", cls.dir / "root", cls.dir / "tree"], check=True, capture_output=True)
        cls.machine = [os.path.abspath(vm.kernel_path()), *(str(cls.dir / n) for n in ("initrd", "root", "blank")), str(MIB)]
        cls.env = {"PATH": os.environ["PATH"], "HUTCH_RUN_DIR": str(cls.dir / "run"), "HUTCH_STATE_DIR": str(cls.dir / "state"),
                   "HUTCH_AUDIT_DIR": str(cls.dir / "audit"), "HUTCH_LIBEXEC_DIR": os.environ["HUTCH_RAM_DIR"], "HOME": "/nonexistent"}
        cls.path = cls.template()[0]

    @classmethod
    def tearDownClass(cls):
        cls.gc()
        cls.top.cleanup()

    @classmethod
    def start(cls, *args):
        return subprocess.Popen([os.environ["BENCH_MACHINE"], *map(str, args)], env=cls.env, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    @classmethod
    def run_one(cls, *args):
        p = cls.start(*args)
        out, said = p.communicate(timeout=PATIENCE)
        return p.returncode, out, said

    @classmethod
    def template(cls):
        """The template's path, and whether it was built."""
        code, out, said = cls.run_one("template", *cls.machine)
        if code:
            raise AssertionError(said)
        return out.split()[0], "preparing a template" in said

    @classmethod
    def gc(cls):
        done = hutch("gc", "--json", env=cls.env)
        if done.returncode:
            raise AssertionError(done.stderr.decode())
        return json.loads(done.stdout)

    def clones(self, n, how="jail"):
        code, out, said = self.run_one("clones", self.path, *self.machine, n, how)
        self.assertEqual((code, len(out.splitlines())), (0, n), said)

    def snapshots(self):
        return sorted(p.name for p in (self.dir / "state/machine/snapshots").iterdir() if not p.name.startswith("."))

    def setUp(self):
        self.assertEqual(self.template()[0], self.path)

    def test_made_once(self):
        self.assertEqual(self.template(), (self.path, False))
        self.assertEqual(hutch("snapshot", "ls", "--json", env=self.env).returncode, 0)
        self.assertEqual(self.snapshots(), [os.path.basename(self.path)])
        self.assertEqual(list((self.dir / "run/sandboxes").iterdir()), [])

    def test_clones_answer(self):
        self.clones(3)
        self.clones(1, "bare")

    def test_two_makers_make_one(self):
        self.assertEqual(hutch("snapshot", "rm", os.path.basename(self.path), env=self.env).returncode, 0)
        both = [self.start("template", *self.machine) for _ in range(3)]
        said = [p.communicate(timeout=PATIENCE) for p in both]
        self.assertEqual([p.returncode for p in both], [0, 0, 0], said)
        self.assertEqual(sum("preparing" in err for _, err in said), 1)
        self.clones(1)

    def test_damaged_is_made_anew(self):
        for name, at in (("state", 5000), ("memory", 0x100000), ("meta.json", 30)):
            with self.subTest(name):
                file = Path(self.path, name)
                file.chmod(0o600)
                with open(file, "r+b") as f:
                    f.seek(at)
                    byte = f.read(1)[0]
                    f.seek(at)
                    f.write(bytes([byte ^ 1]))
                code, _, said = self.run_one("open", self.path)
                self.assertEqual(code, 1)
                self.assertIn("damaged", said)
                self.assertEqual(self.template(), (self.path, True))
                self.clones(1)

    def test_in_use(self):
        p = self.start("clones", self.path, *self.machine, 40, "bare")
        eventually(lambda: left_qemu(p.pid), "a clone")
        p.send_signal(signal.SIGSTOP)  # it holds the template meanwhile
        done = hutch("snapshot", "rm", os.path.basename(self.path), env=self.env)
        p.kill()
        p.communicate()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"in use", done.stderr)
        self.assertTrue(Path(self.path, "meta.json").exists())

    def test_killed_makers_leave_nothing(self):
        pick = random.Random(7)
        hutch("snapshot", "rm", os.path.basename(self.path), env=self.env)
        began = time.monotonic()
        self.template()
        took = time.monotonic() - began
        for _ in range(int(os.environ.get("HUTCH_KILLS", "4"))):
            hutch("snapshot", "rm", os.path.basename(self.path), env=self.env)
            p = self.start("template", *self.machine)
            until_clock(time.monotonic() + pick.random() * took)
            p.send_signal(signal.SIGKILL)
            p.communicate()
            eventually(lambda: not any("qemu" in text for _, text in left_processes(self.dir)), "the end of QEMU")
            self.gc()
            self.assertEqual(self.gc(), {"dead": [], "ended": [], "groups": [], "ids": 0, "images": [], "ledgers": [], "snapshots": []})
            self.assertEqual(left_processes(self.dir), [])
            if Path(self.path).exists():
                self.assertEqual(self.run_one("open", self.path)[0], 0)
        self.template()
        self.clones(1)


def left_qemu(parent):
    try:
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        return any(b"qemu" in Path(f"/proc/{c}/cmdline").read_bytes() for c in children)
    except OSError:
        return False


if __name__ == "__main__":
    unittest.main()
