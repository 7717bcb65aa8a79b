# SPDX-License-Identifier: Apache-2.0
"""The shipped units under a real systemd, PID 1 of its own namespaces (systemd-box.sh): a
confined hutchd, and sandboxes that are units. HUTCHD, HUTCH, HUTCH_KEEPER, HUTCH_GUEST are the
programs, HUTCH_TEST_IMAGE the root directory."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

from waiting import LONG, eventually

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
IMAGE = os.environ.get("HUTCH_TEST_IMAGE", "")
SLOW = 900  # seconds, for a first VM on a busy host without KVM
AS_HUTCH = ["setpriv", "--reuid", "hutch", "--regid", "hutch", "--clear-groups", "env", "HUTCH_RUN_DIR=/run/hutch", "HOME=/var/lib/hutch",
            "HUTCH_STATE_DIR=/var/lib/hutch", "HUTCH_AUDIT_DIR=/var/lib/hutch/audit", "/usr/bin/hutch"]
INSTALL = """set -e
mkdir -p /usr/libexec/hutch /etc/hutch
cp /mnt/hutch /mnt/hutchd /usr/bin/
cp /mnt/hutch-keeper /mnt/hutch-guest /mnt/hutch-preparer /mnt/hutch-ram.so /mnt/hutch-tap /mnt/hutch-filter /mnt/hutch-token /usr/libexec/hutch/
systemd-sysusers /mnt/sysusers.d/hutch.conf
usermod --add-subuids 1000000-1065535 --add-subgids 1000000-1065535 hutch
systemd-tmpfiles --create /mnt/tmpfiles.d/hutch.conf
echo 'HUTCHD_OPTIONS=--listen 127.0.0.1:8080' >/etc/hutch/hutchd.env
mkdir -p /etc/hutch/agents
cat >/etc/hutch/agents/small-vm.yaml <<'EOF'
agent: {name: small-vm, type: test}
extends: e2b-microvm
resources: {memory: 256MiB, disk: 64MiB}
EOF
sed 's/small-vm/other-vm/; s/256MiB/288MiB/' /etc/hutch/agents/small-vm.yaml >/etc/hutch/agents/other-vm.yaml
cat >/etc/hutch/agents/teller.yaml <<'EOF'
agent: {name: teller, type: test}
extends: e2b
egress: {domains: [api.secret.test, login.secret.test]}
secrets: {TELLER_TOKEN: {hosts: [api.secret.test]}, ISSUED_TOKEN: {hosts: [login.secret.test], optional: true}}
EOF
cp /mnt/world.pem /etc/hutch/world.pem
printf 'disk_overcommit: true\negress_proxy: http://127.0.0.1:3129\ntap_roots: /etc/hutch/world.pem\n' >/etc/hutch/host.yaml
chmod -R a+rX /etc/hutch
ip link set lo up
systemctl daemon-reload
"""


@unittest.skipUnless(os.geteuid() == 0 and Path("/lib/systemd/systemd").exists(), "needs root and systemd")
@unittest.skipUnless(IMAGE and os.path.exists(IMAGE), "needs HUTCH_TEST_IMAGE")
class Systemd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = Path(tempfile.mkdtemp(prefix="hutch-systemd-"))
        cls.addClassCleanup(shutil.rmtree, cls.dir, ignore_errors=True)
        give = cls.dir / "give"
        give.mkdir()
        for name in ("HUTCH", "HUTCHD", "HUTCH_KEEPER", "HUTCH_GUEST", "HUTCH_PREPARER", "HUTCH_RAM_SO", "HUTCH_TAP", "HUTCH_FILTER", "HUTCH_TOKEN"):
            shutil.copy(os.environ[name], give)
        (give / "kernel").mkdir()
        for package in Path(os.environ["HUTCH_TEST_KERNEL_DIR"]).glob("*.deb"):
            shutil.copy(package, give / "kernel")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=secret world", "-addext",
                        "subjectAltName=DNS:api.secret.test,DNS:login.secret.test,IP:127.0.0.1", "-keyout", give / "world.key", "-out", give / "world.pem"],
                       check=True, capture_output=True)
        shutil.copy(HERE / "secret_world.py", give)
        for name in ("systemd", "sysusers.d", "tmpfiles.d"):
            shutil.copytree(ROOT / "dist" / name, give / name)
        with open(cls.dir / "log", "wb") as log:
            cls.outer = subprocess.Popen(
                ["bash", HERE / "systemd-box.sh", cls.dir, os.path.abspath(IMAGE)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        cls.addClassCleanup(cls.end)
        eventually(cls.up, "a systemd that runs", also=lambda: (cls.dir / "log").read_text()[-2000:])
        cls.must("bash", "-c", INSTALL)
        for name in ("base", "small-vm", "other-vm"):  # the image of an agent has its name
            cls.must(*AS_HUTCH, "image", "import", name, "/image.tar")
        cls.must(*AS_HUTCH, "image", "kernel", "--from", "/mnt/kernel")
        cls.must("systemctl", "start", "hutchd.socket", "hutch-starter.socket", "hutch-preparer.socket", "hutchd.service")
        cls.key = cls.must(*AS_HUTCH, "key", "create", "--agent", "e2b,small-vm,other-vm").strip()

    @classmethod
    def up(cls):
        if cls.outer.poll() is not None:
            raise RuntimeError("no systemd: " + (cls.dir / "log").read_text()[-2000:])
        return cls.inside("systemctl", "is-system-running").stdout.strip() in ("running", "degraded")

    @classmethod
    def first(cls):
        """systemd: the one child of unshare."""
        return Path(f"/proc/{cls.outer.pid}/task/{cls.outer.pid}/children").read_text().split()

    @classmethod
    def end(cls):
        for pid in cls.first() if cls.outer.poll() is None else []:
            os.kill(int(pid), signal.SIGKILL)
        cls.outer.wait(LONG)
        top = Path("/sys/fs/cgroup/unified")
        eventually(lambda: cls.remove((top if top.is_dir() else top.parent) / cls.dir.name), "the end of its control groups")

    @classmethod
    def remove(cls, group):
        """Whether the group with all groups below it is gone; killed processes may still be in
        one."""
        with contextlib.suppress(OSError):
            for below in sorted((p for p in group.rglob("*") if p.is_dir()), key=lambda p: -len(p.parts)):
                below.rmdir()
            group.rmdir()
        return not group.exists()

    @classmethod
    def inside(cls, *command, seconds=LONG):
        pids = cls.first()
        if not pids:
            return subprocess.CompletedProcess(command, 1, "", "")
        return subprocess.run(["nsenter", "-t", pids[0], "-m", "-p", "-C", "-i", "-u", "-n", "-r", "-w", *command], text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False)

    @classmethod
    def must(cls, *command, seconds=LONG):
        r = cls.inside(*command, seconds=seconds)
        if r.returncode != 0:
            journal = cls.inside("journalctl", "--no-pager", "-o", "cat", "-n", "30").stdout
            raise AssertionError(f"{command}: {r.stdout}{r.stderr}{(cls.dir / 'log').read_text()[-2000:]}{journal}")
        return r.stdout

    def ask(self, method, path, body=None, key=None):
        data = ["-H", "Content-Type: application/json", "-d", json.dumps(body)] if body is not None else []
        return self.must("curl", "-sS", "--fail-with-body", "-m", str(SLOW), "-X", method, "-H", f"X-API-KEY: {key or self.key}", *data, "http://127.0.0.1:8080" + path,
                         seconds=SLOW + LONG)

    def create(self, template="base", key=None):
        box = json.loads(self.ask("POST", "/sandboxes", {"templateID": template, "timeout": 3600}, key))["sandboxID"]
        self.addCleanup(self.inside, *AS_HUTCH, "kill", box)
        return box

    def units(self):
        return [line.split()[0] for line in
                self.must("systemctl", "list-units", "--plain", "--no-legend", "--no-pager", "hutch-starter@*").splitlines()]

    def pids(self, unit):
        group = self.must("systemctl", "show", "--value", "-p", "ControlGroup", unit).strip()
        return self.must("bash", "-c", f"find '/sys/fs/cgroup{group}' -name cgroup.procs -exec cat {{}} +").split()

    @contextlib.contextmanager
    def drop_in(self, line):
        """Runs hutchd with another line in its unit."""
        place = "/run/systemd/system/hutchd.service.d"
        self.must("bash", "-c", f"mkdir -p {place}; printf '[Service]\\n{line}\\n' >{place}/x.conf; systemctl daemon-reload; systemctl restart hutchd.service")
        try:
            yield
        finally:
            self.must("bash", "-c", f"rm -r {place}; systemctl daemon-reload; systemctl restart hutchd.service")

    def show(self, name):
        return self.must("systemctl", "show", "--value", "-p", name, "hutchd.service").strip()

    def test_it_is_ready_and_locked_down(self):
        self.assertEqual(self.show("ActiveState"), "active")
        status = self.must("cat", f"/proc/{self.show('MainPID')}/status")
        self.assertRegex(status, r"NoNewPrivs:\s1\n")
        self.assertRegex(status, r"Seccomp:\s2\n")
        self.assertRegex(status, r"CapBnd:\s0+\n")

    def test_a_sandbox_is_a_unit_and_outlives_hutchd(self):
        before = set(self.units())  # those of other tests may still end
        box = self.create()
        (unit,) = set(self.units()) - before
        self.assertEqual(self.must(*AS_HUTCH, "exec", box, "--", "echo", "1"), "1\n")
        self.must("systemctl", "restart", "hutchd.service")
        self.assertEqual(self.must(*AS_HUTCH, "exec", box, "--", "echo", "2"), "2\n")
        restarts, pid = int(self.show("NRestarts")), self.show("MainPID")
        self.must("systemctl", "kill", "-s", "KILL", "hutchd.service")
        eventually(lambda: self.show("ActiveState") == "active" and self.show("MainPID") not in ("0", pid), "another hutchd")
        self.assertEqual(int(self.show("NRestarts")), restarts + 1)
        self.assertEqual(self.must(*AS_HUTCH, "exec", box, "--", "echo", "3"), "3\n")
        self.assertIn(box, self.ask("GET", "/v2/sandboxes"))
        self.must(*AS_HUTCH, "kill", box)
        eventually(lambda: unit not in self.units(), "the end of its unit", also=self.units)

    def secret(self, *args, text=""):
        return self.must("bash", "-c", 'printf %s "$0" | "$@"', text, *AS_HUTCH, "secret", *args)

    def sent(self, box, host):
        """The status of a request of the sandbox, and the credentials that arrived."""
        before = len(self.arrived())
        program = f"import urllib.request as u\ntry:\n  print(u.urlopen('https://{host}/', timeout={LONG}).status)\nexcept OSError as e:\n  print(e)\n"
        said = self.must(*AS_HUTCH, "exec", box, "--", "python3", "-c", program).strip()
        return said, [line.removeprefix("Authorization: ") for r in self.arrived()[before:] for line in r["head"] if line.startswith("Authorization: ")]

    def arrived(self):
        return [json.loads(line) for line in self.inside("cat", "/tmp/arrived").stdout.splitlines()]

    def test_secrets(self):
        """The store, hutch-tap and hutch-token in a sandbox's unit; a rotation reaches it."""
        world = subprocess.Popen(["nsenter", "-t", self.first()[0], "-m", "-p", "-C", "-i", "-u", "-n", "-r", "-w", "python3", "/mnt/secret_world.py",
                                  "/mnt/world.pem", "/mnt/world.key", "/tmp/arrived"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.addCleanup(lambda: (world.kill(), world.wait(), world.stdout.close()))
        self.assertEqual(world.stdout.readline(), b"ready\n")
        key = self.must(*AS_HUTCH, "key", "create", "--agent", "teller").strip()
        with self.assertRaisesRegex(AssertionError, "error: 500"):
            self.create(key=key)
        self.secret("set", "TELLER_TOKEN", text="the-first-value-0")
        self.must("bash", "-c", "printf 'token_url: https://127.0.0.1:3130/token\\nclient_id: me\\nclient_secret: not-for-sandboxes\\n' >/tmp/client.yaml; chmod a+r /tmp/client.yaml")
        self.assertIn("refreshed", self.secret("set", "ISSUED_TOKEN", "--oauth", "/tmp/client.yaml"))
        before = set(self.units())
        box = self.create(key=key)
        (unit,) = set(self.units()) - before
        self.assertEqual(self.sent(box, "api.secret.test"), ("200", ["Bearer the-first-value-0"]))
        self.assertEqual(self.sent(box, "login.secret.test"), ("200", ["Bearer issued-token-1"]))
        (tap,) = [pid for pid in self.pids(unit) if self.inside("cat", f"/proc/{pid}/comm").stdout.strip() == "hutch-tap"]
        status = self.must("cat", f"/proc/{tap}/status")
        for line in (r"NoNewPrivs:\s1\n", r"Seccomp:\s2\n", r"CapBnd:\s0+\n", r"CapEff:\s0+\n"):
            self.assertRegex(status, line)
        self.secret("rotate", "TELLER_TOKEN", text="the-second-value-1")
        eventually(lambda: self.sent(box, "api.secret.test") == ("200", ["Bearer the-second-value-1"]), "the new value")
        self.secret("refresh", "--force", "ISSUED_TOKEN")
        eventually(lambda: self.sent(box, "login.secret.test") == ("200", ["Bearer issued-token-2"]), "the new token")
        self.must("systemctl", "restart", "hutchd.service")
        self.assertEqual(self.sent(box, "api.secret.test"), ("200", ["Bearer the-second-value-1"]))
        self.secret("rm", "TELLER_TOKEN")
        said, credentials = eventually(lambda: (s := self.sent(box, "api.secret.test"))[0] != "200" and s, "the end of the value")
        self.assertEqual(credentials, [], said)
        self.must(*AS_HUTCH, "kill", box)
        eventually(lambda: unit not in self.units(), "the end of its unit", also=self.units)
        self.assertFalse(Path(f"/proc/{self.first()[0]}/root/proc/{tap}").exists())
        for value in ("the-first-value", "the-second-value", "issued-token", "not-for-sandboxes"):
            self.assertEqual(self.inside("grep", "-rl", value, "/var/lib/hutch", "/run/hutch").stdout, "")

    def test_a_vm(self):
        """The first one needs a kernel's parts, a disk made of the image and a template, the second
        one is a clone; pause and resume."""
        before = set(self.units())
        boxes = [self.create("small-vm") for _ in range(2)]
        units = set(self.units()) - before
        self.assertEqual(len(units), 2)
        eventually(lambda: self.must("systemctl", "list-units", "--plain", "--no-legend", "--no-pager", "hutch-preparer@*") == "", "the end of the preparers")
        for box in boxes:
            receipt = json.loads(self.must(*AS_HUTCH, "receipt", "--json", box))
            self.assertEqual(receipt["level"], "microvm")
            self.assertRegex(receipt["facts"]["start"], "^template ")
            self.assertNotEqual(self.must(*AS_HUTCH, "exec", box, "--", "uname", "-r").strip(), os.uname().release)
        # Without `must`: a helper may have ended meanwhile.
        names = {self.inside("cat", f"/proc/{pid}/comm").stdout.strip() for unit in units for pid in self.pids(unit)}
        self.assertLessEqual({"hutch-keeper", "qemu-system-x86"}, names)
        self.must(*AS_HUTCH, "exec", boxes[0], "--", "sh", "-c", "echo kept >/tmp/file")
        self.ask("POST", f"/sandboxes/{boxes[0]}/pause", {})
        eventually(lambda: len(set(self.units()) - before) == 1, "the end of its unit", also=self.units)
        self.ask("POST", f"/sandboxes/{boxes[0]}/connect", {"timeout": 500})
        self.assertEqual(self.must(*AS_HUTCH, "exec", boxes[0], "--", "cat", "/tmp/file"), "kept\n")

    def test_hutchd_itself_could_not_prepare_a_vm(self):
        """The positive control: without the preparer, the first VM of a size fails."""
        with self.drop_in("UnsetEnvironment=HUTCH_PREPARER"), self.assertRaisesRegex(AssertionError, "error: 500"):
            self.create("other-vm")
        self.create("other-vm")

    def test_what_a_killed_warden_leaves_ends_with_its_unit(self):
        before = set(self.units())
        box = self.create()
        (unit,) = set(self.units()) - before
        group = "/sys/fs/cgroup" + self.must("systemctl", "show", "--value", "-p", "ControlGroup", unit).strip()
        self.must("systemctl", "kill", "--kill-who=main", "-s", "KILL", unit)
        eventually(lambda: self.inside("test", "-d", group).returncode != 0, "the end of its group")
        self.assertNotEqual(self.inside(*AS_HUTCH, "exec", box, "--", "true").returncode, 0)

    def test_hutchd_itself_could_not_start_one(self):
        """The positive control: the unit's restrictions hold. Without the starter, a sandbox
        does not start."""
        with self.drop_in("UnsetEnvironment=HUTCH_STARTER"), self.assertRaises(AssertionError):
            self.create()
        self.create()


if __name__ == "__main__":
    unittest.main()
