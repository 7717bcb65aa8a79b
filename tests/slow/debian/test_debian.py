# SPDX-License-Identifier: Apache-2.0
"""
Tests Hutch on a real Debian with systemd, only control groups v2, and AppArmor: run as root in the
guest of debian-guest.sh, which exists only for this test. The first part uses an unprivileged
service user in services with Delegate=yes, the second the shipped units. The order matters: the
tests of the profile unload it and load it again.
"""

import http.client
import json
import os
import pwd
import re
import socket
import subprocess
import unittest
from pathlib import Path

from waiting import LONG, equals

PAYLOAD = Path("/payload")
PROFILE = Path("/etc/apparmor.d/hutch-sandbox")
PATIENCE = LONG
REQUIRED = ("user-namespace", "pid-namespace", "no-network-device", "seccomp", "no-capabilities", "no-new-privileges", "read-only-root",
            "landlock", "apparmor", "cgroup-cpu", "cgroup-memory", "cgroup-pids", "disk-quota")
IDS = {"worker": 200000, "hutch": 1000000}  # first subordinate id of each user
# An act that no other layer stops: reads the host's interrupt counts.
ACT = "hutch exec $id -- head -n 1 /proc/softirqs 2>&1 || :"
AGENT = """agent: {name: %s, type: example}
egress: {domains: [allowed.example:443]}
resources: {memory: 64MiB, pids: 32, cpus: 0.5, disk: 16MiB, timeout: 60s}
isolation: {require: [%s]}
"""


def run(*command, timeout=PATIENCE, **more):
    return subprocess.run([str(a) for a in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=timeout, check=False, **more)


def must(*command, **more):
    r = run(*command, **more)
    if r.returncode != 0:
        raise AssertionError(f"{command}: {r.returncode}\n{r.stdout}{r.stderr}")
    return r.stdout


def environment(user):
    state = "/var/lib/" + user
    return {"HUTCH_RUN_DIR": "/run/" + user, "HUTCH_STATE_DIR": state, "HUTCH_AUDIT_DIR": state + "/audit",
            "HUTCH_CONFIG_PATH": "/etc/hutch", "HOME": state}


def service(script, user="worker"):
    """Runs a shell script as the main process of a systemd service with an ordinary user."""
    env = [f"--setenv={k}={v}" for k, v in environment(user).items()]
    return run("systemd-run", "--quiet", "--wait", "--pipe", "--collect", f"--uid={user}", "-p", "Delegate=yes", *env, "sh", "-c", script)


def install():
    for name, to in (("hutch", "/usr/bin"), ("hutchd", "/usr/bin"), ("hutch-keeper", "/usr/libexec/hutch"), ("hutch-guest", "/usr/libexec/hutch"),
                     ("hutch-preparer", "/usr/libexec/hutch"), ("hutch-ram.so", "/usr/libexec/hutch")):
        must("install", "-D", PAYLOAD / "programs" / name, f"{to}/{name}")
    for path in (PAYLOAD / "dist/systemd").iterdir():
        must("install", "-m644", path, "/etc/systemd/system/")
    must("install", "-m644", PAYLOAD / "dist/apparmor/hutch-sandbox", PROFILE)
    must("systemd-sysusers", PAYLOAD / "dist/sysusers.d/hutch.conf")
    must("systemd-tmpfiles", "--create", PAYLOAD / "dist/tmpfiles.d/hutch.conf")
    must("useradd", "--system", "--home-dir", "/var/lib/worker", "worker")
    for user, first in IDS.items():
        span = f"{first}-{first + 65535}"
        must("usermod", "--add-subuids", span, "--add-subgids", span, user)
    for path in ("/run/worker", "/var/lib/worker"):
        must("install", "-d", "-m700", "-oworker", "-gworker", path)
    agents = Path("/etc/hutch/agents")
    agents.mkdir(parents=True)
    (agents.parent / "host.yaml").write_text("disk_overcommit: true\n")  # the guest's disk is small
    (agents / "all.yaml").write_text(AGENT % ("all", ", ".join(REQUIRED)))
    (agents / "vm.yaml").write_text("agent: {name: vm, type: example}\nextends: e2b-microvm\nresources: {memory: 96MiB, disk: 16MiB, cpus: 1}\n")
    (agents / "some.yaml").write_text(AGENT % ("some", "seccomp, cgroup-cpu, cgroup-memory, cgroup-pids"))


def load(*options):
    must("apparmor_parser", *(options or ["-r"]), PROFILE)


def has_module(name):
    return re.search(rf"(?m)^{name} ", Path("/proc/modules").read_text()) is not None


def left_behind():
    """Returns leftovers of sandboxes: their processes and those around them, groups, mounts,
    state."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            comm = (entry / "comm").read_text().strip()
            uid = int(re.search(r"(?m)^Uid:\t(\d+)", (entry / "status").read_text())[1])
        except OSError:
            continue
        if comm in ("hutch", "hutch-keeper", "hutch-guest", "hutch-preparer", "crun", "qemu-system-x86") or any(n <= uid < n + 65536 for n in IDS.values()):
            found.append(f"process {entry.name} {comm}")
    found += [f"group {p.parent}" for p in Path("/sys/fs/cgroup").rglob("hutch/*/cgroup.procs")]
    found += ["mount " + line for line in Path("/proc/self/mountinfo").read_text().splitlines()
              if re.search(r" /(run|var/lib)/(hutch|worker)/", line)]
    for user in IDS:
        found += [f"state {p}" for p in Path(f"/run/{user}").glob("sandboxes/*/spec.json")]
    return found


class Guest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.addCleanup(self.check_ledger)

    def check_ledger(self):
        equals(left_behind, [], "what is left")

    def box(self, script, options="--agent some", code=0):
        """Runs a script with $id, a sandbox, in a service. Returns its output and what `inspect`
        and `receipt` report about the sandbox."""
        r = service(f"""set -u
id=$(hutch create {options}) || exit
( {script}
); code=$?
hutch receipt --json "$id" >/tmp/worker.receipt
hutch kill "$id" >/dev/null
hutch inspect --json "$id" >/tmp/worker.inspect
hutch rm "$id" >/dev/null
exit $code""")
        self.assertEqual(r.returncode, code, r.stdout + r.stderr)
        rows = {row["name"]: row for row in json.loads(Path("/tmp/worker.receipt").read_text())["layers"]}
        return r.stdout, json.loads(Path("/tmp/worker.inspect").read_text()), rows

    def doctor(self, row):
        r = service("hutch doctor --json")
        return next(c for c in json.loads(r.stdout)["checks"] if c["id"] == row)


class Test1Host(Guest):
    """The properties that this guest exists for."""

    def test_it_is_what_it_should_be(self):
        self.assertEqual(Path("/sys/module/apparmor/parameters/enabled").read_text(), "Y\n")
        self.assertRegex(Path("/proc/mounts").read_text(), r"cgroup2 /sys/fs/cgroup cgroup2")
        self.assertNotIn(" cgroup cgroup ", Path("/proc/mounts").read_text())
        self.assertEqual(Path("/proc/1/comm").read_text(), "systemd\n")
        self.assertNotEqual(pwd.getpwnam("worker").pw_uid, 0)

    def test_the_ledger_has_what_lives(self):
        """The control for the check at the end of every test."""
        command = ["systemd-run", "--quiet", "--wait", "--pipe", "--collect", "--uid=worker", "-p", "Delegate=yes",
                   *(f"--setenv={k}={v}" for k, v in environment("worker").items()), "hutch", "run", "--agent", "some", "--rm", "-i", "--", "cat"]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as p:
            equals(lambda: {line.split()[0] for line in left_behind()}, {"process", "group", "state"}, "the ledger")
            p.communicate(timeout=LONG)
        self.assertEqual(p.returncode, 0)

    def test_doctor(self):
        self.assertEqual(self.doctor("cgroup.mode")["value"], "v2")


class Test2WithoutProfile(Guest):
    """A host with AppArmor on which the profile is not loaded."""

    def test_it_is_not_claimed(self):
        row = self.doctor("sec.apparmor")
        self.assertEqual((row["state"], row["value"]), ("warn", "hutch-sandbox is not loaded"))
        self.assertIn("apparmor_parser -r", row["advice"])

    def test_a_policy_that_requires_it_is_refused(self):
        r = service("hutch run --agent all -- true")
        self.assertEqual(r.returncode, 125)
        self.assertRegex(r.stderr, "apparmor.*apparmor_parser -r /etc/apparmor.d/hutch-sandbox")


class Test3Profile(Guest):
    """With the profile: root loads it, a user applies it."""

    @classmethod
    def setUpClass(cls):
        load()

    def test_the_receipt_is_complete(self):
        self.assertEqual(self.doctor("sec.apparmor")["state"], "ok")
        _, _, rows = self.box("hutch exec $id -- true", "--agent all")
        self.assertEqual([n for n, row in rows.items() if not row["enforced"]], ["kvm", "dial-guard"], json.dumps(rows, indent=1))
        self.assertEqual([n for n, row in rows.items() if n in REQUIRED and not row["required"]], [])
        self.assertEqual(rows["apparmor"]["seen"], "profile hutch-sandbox (enforce)")
        self.assertEqual(rows["cgroup-cpu"]["seen"], "50000 us of every 100000 us")
        self.assertEqual(rows["cgroup-memory"]["seen"][:14], "67108864 bytes")
        self.assertEqual(rows["cgroup-pids"]["seen"], "pids.max: 32")

    def test_the_act_is_denied(self):
        said, _, _ = self.box(ACT + "\nhutch exec $id -- cat /proc/self/attr/apparmor/current", "--agent all")
        self.assertEqual(said, "head: /proc/softirqs: Permission denied\nhutch-sandbox (enforce)\n")
        self.assertRegex(must("dmesg"), r'apparmor="DENIED" operation="open" profile="hutch-sandbox" name="/proc/softirqs".*comm="head"')

    def test_what_sandboxes_do_goes_on(self):
        """Files in both directions, a terminal, users, signals, a name lookup."""
        said, _, _ = self.box("""exec 2>&1
echo in >/tmp/worker.in
hutch cp /tmp/worker.in $id:/workspace/a
hutch exec $id -- sh -c 'cat /workspace/a; echo out >/workspace/b'
hutch cp $id:/workspace/b /tmp/worker.out; cat /tmp/worker.out
hutch exec -u 0 $id -- id -u
script -qec "hutch exec -t $id -- sh -c 'test -t 0 && echo terminal'" /dev/null
hutch exec $id -- sh -c 'sleep 60 & kill $!; wait $!; echo $?' 2>/dev/null
hutch exec $id -- nslookup denied.example 2>&1 | grep -c NXDOMAIN
hutch egress log $id | grep -c 'denied.example.*denied'""", "--agent all")
        self.assertRegex(" ".join(said.split()), r"^in out 0 terminal 143 [12] [1-9]$")


class Test4Limits(Guest):
    """An ordinary user really hits each limit, and the kernel counts it."""

    def test_memory(self):
        said, inspect, _ = self.box("hutch exec $id -- bomb memory; echo $?; hutch exec $id -- echo alive")
        self.assertEqual(said, "137\nalive\n")
        self.assertGreaterEqual(inspect["end"]["oom_kills"], 1)

    def test_processes(self):
        # Its children keep its output open until the time limit ends them.
        said, inspect, _ = self.box("hutch exec $id -- bomb fork", "--agent some --timeout 15s", 124)
        count = re.match(r"fork (\d+) EAGAIN\n", said)
        self.assertTrue(count and int(count[1]) < 32, said)
        self.assertGreaterEqual(inspect["end"]["pids_refused"], 1)

    def test_cpu(self):
        _, inspect, _ = self.box("hutch exec $id -- timeout -s KILL 5 bomb cpu", "--agent some --cpus 0.2", 137)
        self.assertGreaterEqual(inspect["end"]["throttled"], 10)
        self.assertLess(inspect["usage"]["cpu_us"], 2.5e6)  # out of five seconds

    def test_disk(self):
        said, _, _ = self.box("hutch exec $id -- bomb disk /workspace")
        count = re.match(r"disk (\d+) ENOSPC\n", said)
        self.assertTrue(count and int(count[1]) <= 16 << 4, said)


class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE)
        self.sock.connect("/run/hutch/hutchd.sock")


def as_hutch(*command):
    return must("setpriv", "--reuid=hutch", "--regid=hutch", "--clear-groups", "hutch", *command, env={**os.environ, **environment("hutch")})


class Test5Units(Guest):
    """The shipped units."""

    @classmethod
    def setUpClass(cls):
        must("systemctl", "daemon-reload")
        as_hutch("image", "import", "base", PAYLOAD / "image.tar")
        must("systemctl", "start", "hutchd.socket", "hutch-starter.socket", "hutch-preparer.socket")

    def ask(self, method, path, body=None):
        c = Connection("localhost")
        c.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
        answer = c.getresponse()
        data = answer.read()
        self.assertIn(answer.status, (200, 201, 204), data)
        return json.loads(data) if data else None

    def units(self):
        return must("systemctl", "list-units", "--plain", "--no-legend", "--no-pager", "hutch-starter@*").split("\n")[:-1]

    def test_a_request_makes_a_unit_with_every_limit(self):
        box = self.ask("POST", "/sandboxes", {"templateID": "base", "timeout": 300})["sandboxID"]
        self.assertEqual(len(self.units()), 1)
        receipt = self.ask("GET", f"/hutch/v1/sandboxes/{box}/receipt")
        missing = [row["name"] for row in receipt["layers"] if not row["enforced"]]
        self.ask("DELETE", f"/sandboxes/{box}")
        self.assertEqual(missing, ["kvm", "dial-guard"], json.dumps(receipt, indent=1))
        equals(self.units, [], "units")
        as_hutch("gc")

    def test_vms(self):
        """The units make a template, and start clones of it with KVM. The device's mode is that
        of a host that gives it to all users."""
        must("modprobe", "kvm_amd")
        os.chmod("/dev/kvm", 0o666)
        must("cp", "-rT", PAYLOAD / "machine", "/var/lib/hutch/machine")
        must("chown", "-R", "hutch:hutch", "/var/lib/hutch/machine")
        as_hutch("image", "import", "vm", PAYLOAD / "image.tar")
        for _ in range(2):
            box = self.ask("POST", "/sandboxes", {"templateID": "vm", "timeout": 600})["sandboxID"]
            receipt = self.ask("GET", f"/hutch/v1/sandboxes/{box}/receipt")
            rows = {row["name"]: row for row in receipt["layers"]}
            self.assertEqual((receipt["level"], rows["kvm"]["enforced"]), ("microvm", True), json.dumps(receipt, indent=1))
            self.assertRegex(receipt["facts"]["start"], "^template ")
            self.assertEqual(as_hutch("exec", box, "--", "echo", "inside"), "inside\n")
            self.assertEqual(len(self.units()), 1)
            self.ask("DELETE", f"/sandboxes/{box}")
            equals(self.units, [], "units")
        as_hutch("gc")

    def test_exposure(self):
        for unit, most in (("hutchd.service", 1.4), ("hutch-starter@.service", 6.6), ("hutch-preparer@.service", 6.2)):
            score = re.search(r"exposure level for \S+: (\d+\.\d)", run("systemd-analyze", "security", "--no-pager", unit).stdout)
            self.assertTrue(score and float(score[1]) <= most, score)


class Test6Controls(Guest):
    """The same sandbox and the same act with nothing else to stop it."""

    def act(self):
        said, _, rows = self.box(ACT)
        self.assertRegex(said, r"^ *CPU0 *\n$")
        self.assertEqual([n for n in REQUIRED if not rows[n]["enforced"]], ["apparmor"])
        return rows["apparmor"]["seen"]

    def test_a_profile_that_complains(self):
        load("-r", "-C")
        self.assertIn("hutch-sandbox (complain), not", self.act())
        r = service("hutch run --agent all -- true")
        self.assertEqual(r.returncode, 125, r.stderr)

    def test_no_profile(self):
        load("-R")
        self.assertIn("unconfined, not", self.act())

    def test_no_module_for_a_sandbox(self):
        """seccomp without AppArmor; control: an ordinary user of the host makes the kernel load
        it."""
        self.assertFalse(has_module("sctp"))
        self.assertEqual(self.box("hutch exec $id -- module")[0], "EPERM\n")
        self.assertFalse(has_module("sctp"))
        self.assertEqual(service("/payload/module").stdout, "made\n")
        self.assertTrue(has_module("sctp"))


def setUpModule():
    install()
    r = service(f"hutch image import base {PAYLOAD}/image.tar")
    if r.returncode != 0:
        raise AssertionError(r.stdout + r.stderr)


if __name__ == "__main__":
    unittest.main()
