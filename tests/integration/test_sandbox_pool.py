# SPDX-License-Identifier: Apache-2.0
"""hutch pool: spares exist before a request, are used once, and leave nothing behind."""

import concurrent.futures
import os
import signal
import time

import hutchd
from sandbox import BOX, LOOSE, RUN, SandboxCase, eventually, hutch, named, start, warden_of
from waiting import until_clock


class Pool(SandboxCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(hutch, "pool", "drain")

    def fill(self, count, *opts):
        self.ended(hutch("pool", "fill", "-n", str(count), *opts), 0)
        return self.spares()

    def spares(self):
        return {name for name, row in self.ps("-a").items() if row["state"] == "spare"}

    def pools(self):
        return self.json("pool", "ls", "--json")

    def full(self, count):
        eventually(lambda: [p["ready"] for p in self.pools()] == [count], f"{count} spares")

    def test_one_is_taken_and_another_takes_its_place(self):
        spares = self.fill(2)
        self.assertEqual(len(spares), 2)
        self.assertEqual(self.ps(), {})
        sandbox = self.create()
        self.assertIn(sandbox, spares)
        self.assertEqual(self.ps()[sandbox]["state"], "running")
        self.assertEqual(self.sh(sandbox, "hostname"), sandbox + "\n")
        self.full(2)
        self.assertNotIn(sandbox, self.spares())
        self.assertTrue(hutch("receipt", sandbox).stdout)

    def test_what_the_owner_says(self):
        """Settings that are known only when a spare is taken: deadline, --rm, a single command."""
        self.fill(1)
        sandbox = self.create("--deadline", "1h")
        self.assertTrue(self.inspect(sandbox)["deadline"])
        self.full(1)
        spares = self.spares()
        self.assertIn(self.out("hostname", opts=("--rm",)).strip(), spares)
        self.assertEqual(set(self.ps("-a")) & spares, set())
        self.full(1)
        self.run_("sh", "-c", "exit 7", code=7)

    def test_only_the_same_plan(self):
        spares = self.fill(1)
        for opts in ((*LOOSE, "--memory", "200MiB"), ("-e", "A=b"), (*LOOSE, "--pids", "77"), ("-u", "0")):
            self.assertNotIn(self.create(*opts), spares)
        self.assertEqual(self.spares(), spares)

    def test_each_has_one_owner(self):
        spares = self.fill(3)
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            made = list(pool.map(lambda _: self.create(), range(6)))
        self.assertEqual(len(set(made)), 6)
        self.assertTrue(spares & set(made))
        for sandbox in made:
            self.assertEqual(self.sh(sandbox, "hostname"), sandbox + "\n")
        self.full(3)
        # On a busy host one that took a first one's place may have been quicker.
        self.assertLessEqual(spares - set(made), self.spares())

    def test_nobody_uses_one_that_is_nobodys(self):
        [spare] = self.fill(1)
        self.assertIn("is a spare", self.refused("exec", spare, "--", "true"))
        self.assertEqual(self.spares(), {spare})

    def test_one_that_was_killed_is_not_given_away(self):
        [spare] = self.fill(1)
        os.kill(warden_of(spare), signal.SIGKILL)
        eventually(lambda: not named("hutch-keeper", BOX), "the end of all processes")
        sandbox = self.create()
        self.assertNotEqual(sandbox, spare)
        self.full(1)
        self.assertNotIn(spare, self.ps("-a"))

    def test_who_takes_it_is_killed(self):
        """Killed at any moment: it is a sandbox or a spare then, and can be ended."""
        self.fill(2)
        began = time.monotonic()
        self.create()
        took = time.monotonic() - began
        self.full(2)
        for i in range(8):
            p = start("create", "--rm")
            until_clock(time.monotonic() + took * i / 8)
            p.kill()
            p.wait()
        eventually(lambda: all(row["state"] in ("running", "spare", "ended") for row in self.ps("-a").values()), "nothing that starts")
        self.ended(hutch("pool", "drain"), 0)
        self.assertEqual(self.spares(), set())
        for sandbox in self.ps():
            self.ended(hutch("rm", "-f", sandbox), 0)

    def test_drained(self):
        spares = self.fill(2)
        [pool] = self.pools()
        self.assertEqual((pool["ready"], pool["want"]), (2, 2))
        self.ended(hutch("pool", "drain", "0" * 32), 2)
        self.ended(hutch("pool", "drain", pool["key"][:8]), 0)
        self.assertEqual((self.pools(), set(self.ps("-a")) & spares, os.listdir(RUN / "pool")), ([], set(), []))

    def test_killed_by_name(self):
        spares = self.fill(2)
        one = spares.pop()
        self.ended(hutch("kill", one), 0)
        self.assertEqual(self.spares(), spares)
        self.fill(2)

    def test_hutchd_takes_them(self):
        """With the settings of its client: metadata, a timeout."""
        server = hutchd.Server("--default-agent", "e2b")
        self.addCleanup(server.stop)
        spares = self.fill(1, "--agent", "e2b", "--image", "base")
        status, made = server.api("POST", "/sandboxes", {"templateID": "base", "timeout": 600, "metadata": {"who": "me"}})
        self.assertEqual(status, 201)
        self.addCleanup(hutch, "rm", "-f", made["sandboxID"])
        self.assertIn(made["sandboxID"], spares)
        [row] = server.api("GET", "/sandboxes")[1]
        self.assertEqual((row["sandboxID"], row["metadata"]), (made["sandboxID"], {"who": "me"}))
        self.full(1)
        self.assertEqual(len(server.api("GET", "/sandboxes")[1]), 1)
