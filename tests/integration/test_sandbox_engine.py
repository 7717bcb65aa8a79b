# SPDX-License-Identifier: Apache-2.0
"""Engines of one level: which one runs a sandbox, and its name in the receipt."""
import json
import os
import subprocess

from sandbox import SandboxCase, as_root, host_yaml, hutch
from waiting import LONG


class Engines(SandboxCase):
    def engine(self, wish):
        return self.json("receipt", "--json", self.create(env={"HUTCH_ENGINE": wish}))["engine"]

    def test_the_environment_chooses(self):
        for name in ("crun", "runc"):
            with self.subTest(name):
                self.assertEqual(self.engine(name), name)

    def test_host_yaml_chooses_and_the_environment_counts_more(self):
        self.enterContext(host_yaml("engine: runc\n"))
        self.assertEqual(self.engine(""), "runc")
        self.assertEqual(self.engine("crun"), "crun")

    def test_a_name_that_no_engine_has(self):
        r = hutch("run", "--rm", "--", "true", env={"HUTCH_ENGINE": "lxc"})
        self.assertEqual(r.returncode, 125)
        self.assertIn(b"'lxc' is not an engine: expected one of crun, runc, qemu", r.stderr)

    def test_an_engine_of_another_level_changes_nothing(self):
        self.assertEqual(self.engine("qemu"), "crun")

    def test_doctor_judges_the_level_by_the_engine_that_would_run(self):
        for name in ("crun", "runc"):
            r = hutch("doctor", "--json", env={"HUTCH_ENGINE": name})
            levels = {row["level"]: row for row in json.loads(r.stdout)["levels"]}
            self.assertRegex(levels["container"]["why"], f"^{name} ")

    @as_root
    def test_without_a_choice_the_first_installed_one(self):
        """In a mount namespace where the first one is not installed."""
        hidden = ["unshare", "--mount", "sh", "-c", 'mount --bind /dev/null "$(command -v crun)" && exec "$@"', "-"]
        env = {**os.environ, "HUTCH_ENGINE": ""}
        made = subprocess.run([*hidden, os.environ["HUTCH"], "create"], env=env, capture_output=True, check=True, timeout=LONG)
        sandbox = made.stdout.decode().strip()
        self.addCleanup(hutch, "rm", "-f", sandbox)
        self.assertEqual(self.json("receipt", "--json", sandbox)["engine"], "runc")
        said = subprocess.run([*hidden, os.environ["HUTCH"], "doctor", "--json"], env=env, capture_output=True, check=False, timeout=LONG)
        checks = {row["id"] for row in json.loads(said.stdout)["checks"]}
        self.assertIn("engine.runc", checks)
        self.assertNotIn("engine.crun", checks)
