# SPDX-License-Identifier: Apache-2.0
"""Limits on the sum of a key's sandboxes: never exceeded, however many requests arrive at once,
and released however a sandbox ends."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor

from api import ApiCase, Daemon, new_key
from sandbox import RUN, eventually, hutch, warden_of

AT_ONCE = int(os.environ.get("HUTCH_TEST_CREATES", "40"))


class TestQuota(ApiCase):
    def key(self, name, *opts):
        self.addCleanup(hutch, "key", "revoke", name)
        return new_key(name, *opts)

    def create(self, key, daemon=None, **more):
        status, text = (daemon or self.daemon).ask("POST", "/sandboxes", {"templateID": "base", "timeout": 300, **more}, key)
        if status == 201:
            self.addCleanup(hutch, "rm", "-f", json.loads(text)["sandboxID"])
        return status, json.loads(text)

    def listed(self, key):
        return [one["sandboxID"] for one in json.loads(self.daemon.ask("GET", "/sandboxes", key=key)[1])]

    def test_many_at_once(self):
        key, other = self.key("five", "--sandboxes", "5"), self.key("free")
        with ThreadPoolExecutor(AT_ONCE + 1) as pool:
            free = pool.submit(self.create, other)
            got = list(pool.map(lambda _: self.create(key), range(AT_ONCE)))
        self.assertEqual(sorted(status for status, _ in got), [201] * 5 + [429] * (AT_ONCE - 5))
        self.assertEqual(len(self.listed(key)), 5)
        self.assertEqual(free.result()[0], 201, "another key is not bound by it")
        refused = next(text["message"] for status, text in got if status == 429)
        self.assertEqual(refused, "key 'five' may have 5 sandboxes, has 5, and one more would make it 6: end a sandbox, or ask the operator for more")
        # No key's limit applies to an administrator, and the administrator's sandboxes do not count
        # for this key.
        self.assertEqual(self.create("admin")[0], 201)

    def test_given_back_however_one_ends(self):
        key = self.key("one", "--sandboxes", "1")

        def deleted(name):
            self.assertEqual(self.daemon.ask("DELETE", f"/sandboxes/{name}", key=key)[0], 204)

        def timed_out(name):
            self.assertEqual(self.daemon.ask("POST", f"/sandboxes/{name}/timeout", {"timeout": 1}, key)[0], 204)

        def warden_killed(name):
            os.kill(warden_of(name), signal.SIGKILL)

        def removed(name):
            self.assertEqual(hutch("rm", "-f", name).returncode, 0)

        for end in (deleted, timed_out, warden_killed, removed):
            with self.subTest(end.__name__):
                made = eventually(lambda: (got := self.create(key))[0] == 201 and got, "room")
                self.assertEqual(self.create(key)[0], 429, "control: it is taken")
                end(made[1]["sandboxID"])
        eventually(lambda: self.create(key)[0] == 201, "room")

    def test_a_start_that_fails_takes_nothing(self):
        key = self.key("failing", "--sandboxes", "1")
        self.assertEqual(self.create(key, templateID="no-such-template")[0], 404)
        self.assertEqual(self.create(key)[0], 201)

    def test_a_paused_one_keeps_its_place(self):
        key = self.key("pausing", "--sandboxes", "1")
        name = self.create(key)[1]["sandboxID"]
        self.assertEqual(self.daemon.ask("POST", f"/sandboxes/{name}/pause", {}, key)[0], 204)
        self.assertEqual(self.create(key)[0], 429)

    def test_of_memory_cpus_and_disk(self):
        made = self.json("inspect", "--json", self.box.id)
        limits = {name: made["limits"][name] for name in ("memory", "cpus", "disk")}
        for name, least in limits.items():
            with self.subTest(name):
                two = 2 * least if name != "cpus" else 2 * least / 1000
                key = self.key(f"by-{name}", f"--{name}", f"{two:g}" if name == "cpus" else f"{two // 1024}KiB")
                self.assertEqual([self.create(key)[0] for _ in range(3)], [201, 201, 429])

    def test_it_outlives_hutchd_and_is_changed_while_it_runs(self):
        key = self.key("changed", "--sandboxes", "2")
        daemon = Daemon()
        self.addCleanup(daemon.reserved.close)
        self.addCleanup(daemon.process.kill)
        self.assertEqual([self.create(key, daemon)[0] for _ in range(3)], [201, 201, 429])
        daemon.process.kill()
        daemon.process.wait()
        # A second hutchd of this host counts the same sandboxes.
        self.assertEqual(self.create(key)[0], 429)
        self.assertEqual(hutch("key", "set", "changed", "--sandboxes", "3").returncode, 0)
        eventually(lambda: self.create(key)[0] == 201, "a larger quota")
        self.assertEqual(self.create(key)[0], 429)
        self.assertEqual(hutch("key", "set", "changed", "--sandboxes", "1").returncode, 0)
        self.assertEqual(len(self.listed(key)), 3, "what is there stays")
        self.assertEqual(self.create(key)[0], 429)
        self.assertTrue((RUN / "owners" / "changed").exists(), "control: its lock")
