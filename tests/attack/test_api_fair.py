# SPDX-License-Identifier: Apache-2.0
"""
One key floods hutchd with what takes long, and another key does not wait for it. No test measures time: everything that must not wait is
answered while all of the flood still hangs.
"""

import json
import os
from concurrent.futures import ThreadPoolExecutor

from api import JSON, Answers, ApiCase, new_key, read_all, request, send_all
from sandbox import eventually, hutch

AT_ONCE = int(os.environ.get("HUTCH_TEST_CREATES", "40"))


class FairCase(ApiCase):
    """Key `flood`, and the key `other` of the daemon."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.flood = new_key(f"flood-{cls.daemon.port}")

    def post(self, body, key=None):
        """A create that is not waited for: its connection."""
        s = self.daemon.connect()
        self.addCleanup(s.close)
        body = json.dumps(body).encode()
        send_all(s, request("POST", "/sandboxes", ("X-API-Key", key or self.flood), ("Content-Type", JSON), ("Connection", "close"), body=body))
        return s

    def answered(self, connections):
        """How many of them have an answer, or a part of one."""
        n = 0
        for s in connections:
            s.setblocking(False)
            try:
                s.recv(1)
                n += 1
            except BlockingIOError:
                pass
            s.setblocking(True)
        return n

    def listed(self, key):
        return [one["sandboxID"] for one in json.loads(self.daemon.ask("GET", "/sandboxes", key=key)[1])]

    def works(self, key, what):
        """Everything that a key does in a moment, while others hang."""
        status, text = self.daemon.ask("POST", "/sandboxes", {"templateID": "base", "timeout": 300}, key)
        self.assertEqual(status, 201, (what, text))
        name = json.loads(text)["sandboxID"]
        self.assertEqual(self.daemon.ask("GET", "/hutch/v1/images", key=key)[0], 200, what)
        self.assertEqual(self.daemon.ask("POST", f"/sandboxes/{name}/pause", {}, key)[0], 204, what)
        self.assertEqual(self.daemon.ask("POST", f"/sandboxes/{name}/resume", {"timeout": 300}, key)[0], 201, what)
        self.assertEqual(self.daemon.ask("POST", f"/sandboxes/{name}/timeout", {"timeout": 200}, key)[0], 204, what)
        self.assertEqual(self.daemon.ask("DELETE", f"/sandboxes/{name}", key=key)[0], 204, what)


class TestReady(FairCase):
    """Ready commands that hang hold up nobody, and are awaited all the same."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        made = hutch("commit", cls.box.id, "waiting", "--start", "touch /tmp/begun", "--ready",
                     "test -e /tmp/begun || exit 1; case $READY in hang) exec sleep 600 ;; word) test -e /tmp/word ;; esac")
        if made.returncode != 0:
            raise AssertionError(made.stderr.decode())
        cls.addClassCleanup(hutch, "image", "rm", "waiting")

    @staticmethod
    def body(ready):
        return {"templateID": "waiting", "timeout": 300, "envVars": {"READY": ready}}

    def hang(self, count):
        before = len(self.listed(self.flood))
        connections = [self.post(self.body("hang")) for _ in range(count)]
        eventually(lambda: len(self.listed(self.flood)) == before + count, f"{count} sandboxes that are not ready")
        return connections

    def test_others_do_not_wait(self):
        for count in (8, AT_ONCE):
            with self.subTest(count):
                mine = self.daemon.make(self.flood)
                hanging = self.hang(count)
                self.works("other", "another key")
                self.works("admin", "an administrator")
                self.works(self.flood, "the key itself")
                self.assertEqual(self.daemon.ask("DELETE", f"/sandboxes/{mine.id}", key=self.flood)[0], 204)
                self.assertEqual(self.answered(hanging), 0, "all of it while all of them hang")
                # Nobody wants them any more.
                for s in hanging:
                    s.close()
                eventually(lambda: self.listed(self.flood) == [], "the end of what nobody has")
        self.is_well()

    def test_it_is_awaited(self):
        """Control: no answer before the command succeeds, and then the sandbox."""
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(self.daemon.ask, "POST", "/sandboxes", self.body("word"), self.flood)
            name = eventually(lambda: self.listed(self.flood), "its sandbox")[0]
            self.works("other", "meanwhile")
            self.assertFalse(asked.done())
            self.assertEqual(hutch("exec", name, "--", "touch", "/tmp/word").returncode, 0)
            status, text = asked.result()
        self.assertEqual((status, json.loads(text)["sandboxID"]), (201, name))
        self.assertEqual(self.daemon.ask("DELETE", f"/sandboxes/{name}", key=self.flood)[0], 204)
        status, text = self.daemon.ask("POST", "/sandboxes", self.body(""), self.flood)
        self.assertEqual(status, 201, "what the start command makes is what the ready command waits for")
        self.assertEqual(self.daemon.ask("DELETE", f"/sandboxes/{json.loads(text)['sandboxID']}", key=self.flood)[0], 204)

    def test_a_sandbox_that_ends_before_it_is_ready(self):
        hanging = self.hang(2)
        for name in self.listed(self.flood):
            self.assertEqual(self.daemon.ask("DELETE", f"/sandboxes/{name}", key=self.flood)[0], 204)
        for s in hanging:
            self.assertEqual(Answers(read_all(s)).statuses, [500])
        self.assertEqual(self.listed(self.flood), [])
        self.is_well()
