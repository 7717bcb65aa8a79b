# SPDX-License-Identifier: Apache-2.0
"""
A VM under the attacker's control from its first instruction: wild.c is /init of its initrd, in
place of hutch-guest, on a kernel that obeys it. In every case hutch reports the result, the sandbox
ends in time, the keeper stays small, nothing is left behind, and data that VMs share (the image's
disk, the memory of a template) is unchanged.

In mode `obey` it behaves until a client names an attack. Those VMs are clones of one template,
which is the positive control as well: the harness works with an agent that answers. Run with
HUTCH_TEST_LEVEL=microvm.
"""

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from sandbox import RUN, SandboxCase, create, hutch, log_of
from test_raider import BROKE, SMALL, cpu, keeper_of, peak

STATE = Path(os.environ.get("HUTCH_STATE_DIR", "/nonexistent")) / "machine"
OPTIONS = ("--memory", "128MiB", "--disk", "64MiB")
GONE = "ended before it answered"


def digests(*patterns):
    """Returns digests of the data that VMs share."""
    files = {path for pattern in patterns for path in STATE.parent.glob(pattern)}
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


class Hostile(SandboxCase):
    @contextlib.contextmanager
    def wild(self, mode, templates="off"):
        """Runs hutch with another agent."""
        was = os.environ["HUTCH_GUEST"]
        with tempfile.TemporaryDirectory(dir=Path(os.environ["WILD"]).parent if os.geteuid() == 0 else None) as lib:
            os.chmod(lib, 0o755)
            guest = Path(lib) / "hutch-guest"
            guest.write_bytes(Path(os.environ["WILD"]).read_bytes() + b"\0" + mode.encode())
            guest.chmod(0o755)
            for name in ("hutch-keeper", "hutch-ram.so"):
                os.symlink(os.environ[name.upper().replace("-", "_").replace(".", "_")], Path(lib) / name)
            os.environ.update(HUTCH_GUEST=str(guest), HUTCH_LIBEXEC_DIR=lib, HUTCH_TEMPLATES=templates)
            try:
                yield
                self.nothing_is_left()
            finally:
                os.environ["HUTCH_GUEST"] = was
                del os.environ["HUTCH_LIBEXEC_DIR"], os.environ["HUTCH_TEMPLATES"]

    @contextlib.contextmanager
    def sandbox(self):
        """A clone in mode `obey`."""
        with self.wild("obey", templates="on"):
            sandbox = create(*OPTIONS)
            try:
                yield sandbox
            finally:
                hutch("rm", "-f", sandbox)

    def small(self, keeper):
        self.assertLess(peak(keeper), SMALL)

    def still_ended(self, sandbox):
        """The VM does not answer, but can be killed."""
        self.ended(hutch("kill", sandbox), 0)
        self.gone(sandbox, "killed")

    # ---- the control ----
    def test_one_that_behaves(self):
        with self.sandbox() as sandbox:
            self.assertEqual(self.exec_(sandbox, "well").stdout, b"well\n")
            self.small(keeper_of(sandbox))

    # ---- before HELLO ----
    def test_instead_of_a_hello(self):
        for mode, said in {"garbage": BROKE, "leave": GONE, "panic": GONE}.items():
            with self.subTest(mode=mode), self.wild(mode):
                self.assertRegex(self.refused("run", "--rm", *OPTIONS, "--", "true"), said)

    def test_instead_of_a_template(self):
        """The VM ends before it can be saved: no template is made, and nothing is left behind."""
        before = {path.name for path in (STATE / "snapshots").glob("*")}
        with self.wild("dead", templates="on"):
            self.assertIn("the VM has stopped by itself", self.refused("run", "--rm", *OPTIONS, "--", "true"))
        self.assertEqual({path.name for path in (STATE / "snapshots").glob("*")}, before)

    # ---- instead of an answer ----
    def test_garbage(self):
        with self.sandbox() as sandbox:
            self.assertRegex(self.refused("exec", sandbox, "--", "garbage"), BROKE)
            self.gone(sandbox, "protocol")
            self.assertIn("the guest broke the protocol", log_of(sandbox))

    def test_floods_the_port(self):
        """Endless PINGs. The keeper reads them as fast as it can and uses no memory for them;
        the command has its time limit."""
        with self.sandbox() as sandbox:
            keeper = keeper_of(sandbox)
            r = hutch("exec", "--timeout", "2s", sandbox, "--", "flood")
            self.assertIn(r.returncode, (124, 125), r.stderr)
            if r.returncode == 124:
                self.small(keeper)
                self.still_ended(sandbox)
            else:
                self.assertIn(BROKE, r.stderr.decode())
                self.gone(sandbox, "protocol")

    def test_does_not_answer(self):
        """Silent, without interrupts, or busy with its console: none of these costs the keeper
        CPU time."""
        for mode in ("mute", "spin", "console"):
            with self.subTest(mode=mode), self.sandbox() as sandbox:
                keeper = keeper_of(sandbox)
                self.assertIn("time limit", self.refused("exec", "--timeout", "2s", sandbox, "--", mode, code=124))
                self.small(keeper)
                self.assertLess(cpu(keeper), 1)
                self.assertLess((RUN / "sandboxes" / sandbox / "log").stat().st_size, 4096)
                self.still_ended(sandbox)

    def test_ends(self):
        for mode in ("leave", "off", "panic"):
            with self.subTest(mode=mode), self.sandbox() as sandbox:
                self.assertIn("ended", self.refused("exec", sandbox, "--", mode))
                self.gone(sandbox, "guest-ended")

    # ---- shared data ----
    def test_disks(self):
        """As root of the VM's kernel. Control: its own disk is writable; the image's digest is
        unchanged."""
        with self.sandbox() as sandbox:
            before = digests("images/trees/*/*.erofs", "machine/disks/*")
            self.assertTrue(any("erofs" in path for path in before) and len(before) > 1, before)
            image, own = self.exec_(sandbox, "disks").stdout.decode().splitlines()
        self.assertRegex(image, "^/dev/vda: open [^,]*, unlock [^,]*, read ok, write E(BADF|IO|ROFS|PERM), discard E(BADF|IO|ROFS|PERM)$")
        self.assertEqual(own, "/dev/vdb: open ok, unlock ok, read ok, write ok, discard ok")
        self.assertEqual(digests("images/trees/*/*.erofs", "machine/disks/*"), before)

    def test_devices(self):
        """Without the VM's kernel, which would not try: wild.c talks to the disks directly. 0 is
        success, 1 an error; control: its own disk."""
        with self.sandbox() as sandbox:
            before = digests("images/trees/*/*.erofs", "machine/disks/*")
            said = self.exec_(sandbox, "devices").stdout.decode().splitlines()
            self.assertEqual(sorted(said), ["image: read 0, write 1", "own: read 0, write 0"])
            self.assertEqual(digests("images/trees/*/*.erofs", "machine/disks/*"), before)

    def test_memory(self):
        """A clone overwrites its memory; the next clone finds the template's contents."""
        with self.sandbox() as first:
            before = digests("machine/snapshots/*/memory")
            self.assertGreater(len(before), 0)
            self.assertEqual([self.exec_(first, "memory").stdout for _ in range(2)], [b"clean, wrote\n", b"DIRTY, wrote\n"])
        with self.sandbox() as second:
            self.assertEqual(self.exec_(second, "memory").stdout, b"clean, wrote\n")
            self.assertEqual(digests("machine/snapshots/*/memory"), before)

    def test_does_not_fall_asleep(self):
        """A snapshot request fails within its deadline, makes no snapshot, and ends the sandbox."""
        with self.sandbox() as sandbox:
            before = set(os.listdir(STATE / "snapshots"))
            self.assertIn("did not stop the VM's programs in time: no snapshot was made, and the sandbox", self.refused("snapshot", "create", sandbox))
            self.gone(sandbox, "protocol")
            self.assertEqual(set(os.listdir(STATE / "snapshots")), before)
