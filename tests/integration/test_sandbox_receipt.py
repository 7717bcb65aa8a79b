# SPDX-License-Identifier: Apache-2.0
"""The receipt, compared with the kernel's view of PID 1 of the sandbox."""

import os
import re
from pathlib import Path

from sandbox import ENGINE, BOX, MACHINE, ROOT, SandboxCase, SharedCase, agent, as_root, as_user, children_of, hutch, warden_of

REQUIRABLE = ["user-namespace", "pid-namespace", "no-network-device", "seccomp", "no-capabilities", "no-new-privileges", "read-only-root",
              "landlock", "apparmor", "cgroup-cpu", "cgroup-memory", "cgroup-pids", "disk-quota", "kvm", "dial-guard"]
EXTRA = ["mount-namespace", "ipc-namespace", "uts-namespace", "cgroup-namespace", "own-ids", "masked-proc", "no-sysfs", "no-devices", "rlimits",
         "keeper-locked", "audit"]
GROUPS = {"cgroup-cpu", "cgroup-memory", "cgroup-pids"}
NAMESPACES = {"user": "user-namespace", "pid": "pid-namespace", "mnt": "mount-namespace", "ipc": "ipc-namespace", "uts": "uts-namespace",
              "cgroup": "cgroup-namespace", "net": "no-network-device"}


def apparmor():
    try:
        return Path("/sys/module/apparmor/parameters/enabled").read_text().strip() == "Y"
    except OSError:
        return False


class Receipt(SharedCase):
    def setUp(self):
        super().setUp()
        self.receipt = self.json("receipt", "--json", self.sandbox)
        self.rows = {row["name"]: row for row in self.receipt["layers"]}

    def test_it_has_every_row_once(self):
        self.assertEqual([row["name"] for row in self.receipt["layers"]], REQUIRABLE + EXTRA)

    def test_it_says_whose_it_is(self):
        self.assertEqual((self.receipt["schema"], self.receipt["sandbox"], self.receipt["level"], self.receipt["engine"]),
                         ("hutch.receipt/1", self.sandbox, *(("microvm", "qemu") if MACHINE else ("container", ENGINE))))
        self.assertRegex(self.receipt["policy"], "^[0-9a-f]{64}$")
        self.assertIn(self.json("image", "inspect", "--json", "base")["sha256"], self.receipt["image"])

    def test_what_is_enforced(self):
        missing = {name for name, row in self.rows.items() if not row["enforced"]}
        if apparmor():
            missing.add("apparmor")
        self.assertEqual(missing, {"apparmor", "kvm"} | (set() if ROOT else GROUPS | {"dial-guard"}))

    def test_every_row_says_what_was_seen(self):
        self.assertEqual([name for name, row in self.rows.items() if not row["seen"].strip()], [])

    def test_what_is_not_enforced_comes_with_advice(self):
        self.assertEqual([name for name in GROUPS | {"dial-guard"} if not self.rows[name]["enforced"] and not self.rows[name].get("advice")], [])

    def test_the_extra_rows_are_always_required(self):
        self.assertEqual([name for name in EXTRA if not self.rows[name]["required"]], [])

    def test_for_people_it_has_every_row(self):
        said = self.ended(hutch("receipt", self.sandbox), 0).stdout.decode()
        for name in REQUIRABLE + EXTRA:
            self.assertRegex(said, rf"(?m)^.*\b{re.escape(name)}\b")

    # ---- compared with the kernel ----
    @property
    def init(self):
        [pid] = children_of(warden_of(self.sandbox), BOX)
        return pid

    def status(self, pid):
        return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)

    def test_pid_1_has_no_rights(self):
        said = self.status(self.init)
        self.assertEqual((said["Seccomp"], said["NoNewPrivs"], said["CapBnd"]), ("2", "1", "0" * 16))

    @as_root
    def test_namespaces_are_other_ones(self):
        for kind, name in NAMESPACES.items():
            with self.subTest(name=name):
                self.assertNotEqual(os.readlink(f"/proc/{self.init}/ns/{kind}"), os.readlink(f"/proc/self/ns/{kind}"))
                self.assertTrue(self.rows[name]["enforced"])

    @as_root
    def test_pid_1_is_in_the_groups(self):
        said = Path(f"/proc/{self.init}/cgroup").read_text()
        for controller in ("memory", "pids", "cpu"):
            self.assertRegex(said, rf"(?m)^\d+:(.*,)?({controller}(,.*)?|):/.*hutch.*/{self.sandbox}-\w+$")

    @as_root
    def test_the_keeper_is_locked_in(self):
        [keeper] = children_of(warden_of(self.sandbox), "hutch-keeper")
        said = self.status(keeper)
        self.assertEqual((said["Seccomp"], said["NoNewPrivs"], said["CapEff"], said["CapBnd"]), ("2", "1", "0" * 16, "0" * 16))
        self.assertNotIn("0", said["Uid"].split())
        links = [os.readlink(f"/proc/{keeper}/fd/{fd}") for fd in os.listdir(f"/proc/{keeper}/fd")]
        # Only its log, its sandbox's audit chain and its record files are open for writing.
        own = re.compile(rf".*/{self.sandbox}(/log|/cmd-\d+|-\d+\.log)")
        self.assertEqual([link for link in links if link.startswith("/") and not link.startswith("/dev/null")
                          and not own.fullmatch(link)], [], "files of the host")

    @as_root
    def test_the_keeper_is_alone_in_its_guarded_group(self):
        [keeper] = children_of(warden_of(self.sandbox), "hutch-keeper")
        [line] = [x for x in Path(f"/proc/{keeper}/cgroup").read_text().splitlines() if x.startswith("0::")]
        self.assertRegex(line, rf"/hutch-keepers/[a-z0-9-]*{self.sandbox}[a-z0-9-]*$")
        self.assertIn("9 programs on the keeper's group", self.rows["dial-guard"]["seen"])


class Demands(SandboxCase):
    """isolation.require: refused if the host cannot enforce it, and the attempt leaves nothing
    behind."""

    def demand(self, layer):
        return agent(f"wants-{layer}", f"isolation:\n  require: [{layer}]\n")

    def check_refused(self, layer):
        for command in (["run", "--rm", "--agent", self.demand(layer), "--", "true"], ["create", "--agent", self.demand(layer)]):
            said = self.refused(*command)
            self.assertIn("isolation.require", said)
            self.assertIn(layer, said)
            self.nothing_is_left()
        return said

    def test_what_a_container_never_has(self):
        self.check_refused("kvm")

    def test_a_profile_of_apparmor(self):
        """tests/slow/debian tests hosts that have it loaded."""
        loaded = {c["id"]: c["state"] for c in self.json("doctor", "--json")["checks"]}.get("sec.apparmor") == "ok"
        if MACHINE:
            self.assertIn("QEMU runs under no AppArmor profile of ours", self.check_refused("apparmor"))
        elif loaded:
            self.run_("true", opts=["--agent", self.demand("apparmor")])
        else:
            self.assertIn("apparmor_parser -r /etc/apparmor.d/hutch-sandbox", self.check_refused("apparmor"))

    def test_what_every_host_has(self):
        for layer in ("user-namespace", "seccomp", "no-network-device", "disk-quota"):
            with self.subTest(layer=layer):
                self.run_("true", opts=["--agent", self.demand(layer)])

    @as_root
    def test_root_gets_groups(self):
        for layer in sorted(GROUPS | {"dial-guard"}):
            with self.subTest(layer=layer):
                self.run_("true", opts=["--agent", self.demand(layer)])

    @as_user
    def test_an_ordinary_user_gets_advice_instead_of_groups(self):
        for layer in sorted(GROUPS | {"dial-guard"}):
            with self.subTest(layer=layer):
                self.assertRegex(self.check_refused(layer), r"; \w+")

    @as_root
    def test_the_locked_agent_runs_as_root(self):
        self.assertEqual(self.out("echo", "held", opts=["--agent", "locked", "--image", "base"]), "held\n")

    @as_user
    def test_the_locked_agent_is_refused_to_an_ordinary_user(self):
        self.assertIn("cgroup-memory", self.refused("run", "--rm", "--agent", "locked", "--image", "base", "--", "true"))

    def test_the_receipt_outlives_the_sandbox(self):
        sandbox = self.create()
        before = self.json("receipt", "--json", sandbox)
        self.ended(hutch("kill", sandbox), 0)
        self.assertEqual(self.json("receipt", "--json", sandbox), before)

    def test_what_was_required_is_in_the_receipt(self):
        sandbox = self.create("--agent", self.demand("seccomp"))
        rows = {row["name"]: row for row in self.json("receipt", "--json", sandbox)["layers"]}
        self.assertEqual([n for n in REQUIRABLE if rows[n]["required"]], ["seccomp"])
