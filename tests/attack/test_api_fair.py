# SPDX-License-Identifier: Apache-2.0
"""
One key floods hutchd with slow requests; another key must not wait for them. No test measures time:
each request that must not wait is answered while the whole flood still hangs.
"""

import fcntl
import json
import os
import resource
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from api import JSON, Answers, ApiCase, Daemon, new_key, read_all, request, send_all
from sandbox import eventually, hutch

# Number of sandboxes created while none is ready. A ready command has a minute, and a slow host
# cannot create 40 sandboxes in that time.
HANGING = int(os.environ.get("HUTCH_TEST_HANGING", "16"))


class FairCase(ApiCase):
    """Adds the key `flood` to the daemon's key `other`."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.flood = new_key(f"flood-{cls.daemon.port}")

    def post(self, body, key=None, target="/sandboxes"):
        """Sends a request without waiting for the answer, and returns its connection."""
        s = self.daemon.connect()
        self.addCleanup(s.close)
        body = json.dumps(body).encode()
        send_all(s, request("POST", target, ("X-API-Key", key or self.flood), ("Content-Type", JSON), ("Connection", "close"), body=body))
        return s

    def answered(self, connections):
        """Counts the connections that have received an answer or a part of one."""
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
        """Checks that everything quick works for this key while other requests hang."""
        status, text = self.daemon.ask("POST", "/sandboxes", {"templateID": "base", "timeout": 300}, key)
        self.assertEqual(status, 201, (what, text))
        name = json.loads(text)["sandboxID"]
        self.assertEqual(self.daemon.ask("GET", "/hutch/v1/images", key=key)[0], 200, what)
        self.assertEqual(self.daemon.ask("POST", f"/sandboxes/{name}/pause", {}, key)[0], 204, what)
        self.assertEqual(self.daemon.ask("POST", f"/sandboxes/{name}/resume", {"timeout": 300}, key)[0], 201, what)
        self.assertEqual(self.daemon.ask("POST", f"/sandboxes/{name}/timeout", {"timeout": 200}, key)[0], 204, what)
        self.assertEqual(self.daemon.ask("DELETE", f"/sandboxes/{name}", key=key)[0], 204, what)


class TestReady(FairCase):
    """Hanging ready commands delay no other request, and hutchd still waits for them."""

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
        for count in (8, HANGING):
            with self.subTest(count):
                mine = self.daemon.make(self.flood)
                hanging = self.hang(count)
                self.works("other", "another key")
                self.works("admin", "an administrator")
                self.works(self.flood, "the key itself")
                self.assertEqual(self.daemon.ask("DELETE", f"/sandboxes/{mine.id}", key=self.flood)[0], 204)
                self.assertEqual(self.answered(hanging), 0, "all of it while all of them hang")
                # Their clients have left.
                for s in hanging:
                    s.close()
                eventually(lambda: self.listed(self.flood) == [], "the end of what nobody has")
        self.is_well()

    def test_it_is_awaited(self):
        """Control: the answer comes only after the command succeeds, and names the sandbox."""
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


class TestResume(FairCase):
    """Concurrent requests for a paused sandbox are all served by one resume."""

    def test_many_want_it_back(self):
        mine = self.daemon.make(self.flood)
        self.addCleanup(hutch, "rm", "-f", mine.id)
        for count in (8, 24):  # a keeper takes 32 orders at once and answers 429 to more
            self.assertEqual(self.daemon.ask("POST", f"/sandboxes/{mine.id}/pause", {}, self.flood)[0], 204)
            with ThreadPoolExecutor(count) as pool:
                got = list(pool.map(lambda _: self.daemon.ask("POST", f"/sandboxes/{mine.id}/connect", {"timeout": 300}, self.flood), range(count)))
            self.assertLessEqual({status for status, _ in got}, {200, 201}, got)
            self.assertEqual({json.loads(text)["sandboxID"] for _, text in got}, {mine.id})
            self.assertEqual(self.inside("echo here", mine), "here\n")
        self.assertNotIn("error", self.daemon.log())
        self.is_well()

    def test_those_who_leave_take_nothing_with_them(self):
        mine = self.daemon.make(self.flood)
        self.addCleanup(hutch, "rm", "-f", mine.id)
        self.assertEqual(self.daemon.ask("POST", f"/sandboxes/{mine.id}/pause", {}, self.flood)[0], 204)
        gone = [self.post({"timeout": 300}, target=f"/sandboxes/{mine.id}/connect") for _ in range(8)]
        for s in gone:
            s.close()
        self.assertIn(self.daemon.ask("POST", f"/sandboxes/{mine.id}/connect", {"timeout": 300}, self.flood)[0], (200, 201))
        self.assertEqual(self.inside("echo here", mine), "here\n")
        self.is_well()


class BuildCase(FairCase):
    """Builds of templates."""

    def key(self, name, *opts):
        self.addCleanup(hutch, "key", "revoke", name)
        return new_key(name, *opts)

    def begin(self, key, name, daemon=None):
        """Starts a build that waits for its recipe, and returns its path."""
        status, text = (daemon or self.daemon).ask("POST", "/v3/templates", {"name": name}, key)
        self.assertEqual(status, 202, text)
        made = json.loads(text)
        place = f"/templates/{made['templateID']}"
        self.addCleanup(self.daemon.ask, "DELETE", place, None, "admin")
        return f"{place}/builds/{made['buildID']}"

    @staticmethod
    def recipe(step):
        return {"fromImage": "base", "steps": [{"type": "RUN", "args": [step]}]}

    def build(self, key, name, step, daemon=None):
        """Returns (status of the recipe request, its message, path of the build's status)."""
        place = self.begin(key, name, daemon)
        status, text = (daemon or self.daemon).ask("POST", f"/v2{place}", self.recipe(step), key)
        return status, text and json.loads(text)["message"], f"{place}/status"

    def status(self, place, key):
        return json.loads(self.daemon.ask("GET", place, key=key)[1])

    def end_of(self, place, key):
        return eventually(lambda: (s := self.status(place, key))["status"] in ("error", "ready") and s, "the end of a build")

    def sandboxes(self):
        """Returns the sandboxes of builds: all running ones except those of this class."""
        return [one["id"] for one in self.json("ps", "--json") if one["id"] not in (self.box.id, self.others.id)]

    def hang(self, key, name, daemon=None):
        """Starts a build that runs until it is killed. Returns the path of its status and its
        sandbox."""
        before = set(self.sandboxes())
        status, text, place = self.build(key, name, "echo hangs; exec sleep 600", daemon)
        self.assertEqual(status, 202, text)
        eventually(lambda: any("hangs" in one["message"] for one in self.status(place, key)["logEntries"]), "the first step", also=self.daemon.log)
        made = set(self.sandboxes()) - before
        self.assertEqual(len(made), 1)
        return place, made.pop()


class TestBuilds(BuildCase):
    """Template builds: how many a key may run at once, how they count against its other limits,
    and that they end with their hutchd."""

    def test_how_many_at_once(self):
        key = self.key("two-builds", "--builds", "2")
        hanging = [self.hang(key, f"hanging-{i}") for i in range(2)]
        status, text, _ = self.build(key, "third", "true")
        self.assertEqual((status, text), (429, "key 'two-builds' may have 2 builds, has 2, and one more would make it 3: "
                                               "wait for a build to end, or ask the operator for more"))
        # Another key's build has a slot and finishes while these hang.
        status, _, place = self.build("other", "quick", "true")
        self.assertEqual(status, 202)
        self.assertEqual(self.end_of(place, "other")["status"], "ready")
        self.assertEqual([self.status(one, key)["status"] for one, _ in hanging], ["building"] * 2)
        # A finished build frees its slot.
        self.assertEqual(hutch("rm", "-f", hanging[0][1]).returncode, 0)
        self.assertEqual(self.end_of(hanging[0][0], key)["status"], "error")
        status, _, place = eventually(lambda: (got := self.build(key, "third", "true"))[0] == 202 and got, "room for a build")
        self.assertEqual(self.end_of(place, key)["status"], "ready")
        self.assertEqual(hutch("rm", "-f", hanging[1][1]).returncode, 0)
        self.assertEqual(self.end_of(hanging[1][0], key)["status"], "error")

    def test_they_count_as_sandboxes(self):
        key = self.key("one-box", "--sandboxes", "1")
        body = {"templateID": "base", "timeout": 300}
        place, name = self.hang(key, "counting")
        status, text = self.daemon.ask("POST", "/sandboxes", body, key)
        self.assertEqual((status, json.loads(text)["message"]), (429, "key 'one-box' may have 1 sandboxes, has 1, and one more would make it 2: "
                                                                      "end a sandbox, or ask the operator for more"))
        # No client may use a build's sandbox: only an administrator sees it.
        self.assertEqual(self.listed(key), [])
        self.assertEqual(self.daemon.ask("GET", f"/sandboxes/{name}", key=key)[0], 404)
        self.assertEqual(self.daemon.ask("DELETE", f"/sandboxes/{name}", key=key)[0], 404)
        self.assertIn(name, self.listed("admin"))
        self.assertEqual(self.daemon.ask("DELETE", f"/sandboxes/{name}", key="admin")[0], 204)
        self.assertEqual(self.end_of(place, key)["status"], "error")
        status, text = self.daemon.ask("POST", "/sandboxes", body, key)
        self.assertEqual(status, 201, "control: its place is free")
        made = json.loads(text)["sandboxID"]
        # The other way round: the build reports why it failed.
        status, _, place = self.build(key, "no-room", "true")
        self.assertEqual(status, 202)
        self.assertIn("key 'one-box' may have 1 sandboxes, has 1", self.end_of(place, key)["reason"]["message"])
        self.assertEqual(self.daemon.ask("DELETE", f"/sandboxes/{made}", key=key)[0], 204)

    def test_they_end_with_hutchd(self):
        key = self.key("killed", "--builds", "1", "--sandboxes", "1")
        daemon = Daemon()
        self.addCleanup(daemon.reserved.close)
        self.addCleanup(daemon.process.kill)
        place, name = self.hang(key, "orphan", daemon)
        daemon.process.send_signal(signal.SIGKILL)
        daemon.process.wait()
        eventually(lambda: name not in self.sandboxes(), "the end of its sandbox")
        another = Daemon()
        self.addCleanup(another.stop)
        self.assertEqual(self.status(place, key)["status"], "error")
        status, _, place = self.build(key, "orphan", "true", another)
        self.assertEqual(status, 202)
        self.assertEqual(self.end_of(place, key)["status"], "ready")


class TestFiles(BuildCase):
    """Templates are files under a lock. A request that waits for the lock delays no other
    request."""

    def locked(self, key_name=None):
        """Takes the lock of a key's templates; closing it releases it."""
        place = Path(os.environ["HUTCH_STATE_DIR"]) / "templates/owners" / (key_name or f"flood-{self.daemon.port}") / "lock"
        lock = open(place, "rb+")
        self.addCleanup(lock.close)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return lock

    def children(self, daemon=None):
        pid = (daemon or self.daemon).process.pid
        return {int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}

    @staticmethod
    def blocked(lock):
        """Returns the processes that wait for a lock on a file with this inode number. Files on
        other file systems may have the same number."""
        inode = str(os.fstat(lock.fileno()).st_ino)
        rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        return {int(row[5]) for row in rows if row[1] == "->" and row[6].split(":")[2] == inode}

    def waiters(self, lock, daemon=None):
        return self.blocked(lock) & self.children(daemon)

    def waits(self, lock, daemon=None):
        return eventually(lambda: self.waiters(lock, daemon), "somebody who waits for the lock").pop()

    def archive(self, place, key, hash_):
        """Returns the path that announces an archive and the path it is uploaded to."""
        asked = place[:place.index("/builds/")] + f"/files/{hash_}"
        url = json.loads(self.daemon.ask("GET", asked, key=key)[1])["url"]
        return asked, url[url.index("/templates/"):]

    def test_a_lock_that_is_held(self):
        self.begin(self.flood, "held")
        lock = self.locked()
        with ThreadPoolExecutor(20) as pool:
            asked = [pool.submit(self.daemon.ask, "POST", "/v3/templates", {"name": "held"}, self.flood) for _ in range(20)]
            self.works("other", "another key")
            self.works("admin", "an administrator")
            self.assertEqual(self.daemon.ask("GET", "/templates", key="other")[0], 200)
            self.assertFalse(any(one.done() for one in asked), "all of them wait")
            lock.close()
            self.assertEqual({one.result()[0] for one in asked}, {202})
        self.is_well()

    def test_builds_and_archives(self):
        """A recipe and an archive wait for their own key's lock, whichever of their steps needs
        it."""
        place, theirs = self.begin(self.flood, "waits"), self.begin("other", "does-not-wait")
        asked, to = self.archive(place, self.flood, "ab" * 32)
        _, to_theirs = self.archive(theirs, "other", "ab" * 32)
        lock = self.locked()
        with ThreadPoolExecutor(2) as pool:
            recipe = pool.submit(self.daemon.ask, "POST", f"/v2{place}", self.recipe("true"), self.flood)
            sent = pool.submit(self.daemon.ask, "PUT", to, b"archive")
            eventually(lambda: len(self.waiters(lock)) == 2, "both of them to wait")
            self.works("other", "another key")
            self.works("admin", "an administrator")
            self.assertEqual(self.daemon.ask("PUT", to_theirs, b"x")[0], 200)
            self.assertEqual(self.daemon.ask("POST", f"/v2{theirs}", self.recipe("true"), "other")[0], 202)
            self.assertEqual(self.end_of(f"{theirs}/status", "other")["status"], "ready")
            self.assertFalse(recipe.done() or sent.done(), "all of it while both wait")
            self.assertEqual(self.status(f"{place}/status", self.flood)["status"], "waiting")
            lock.close()
            self.assertEqual((recipe.result()[0], sent.result()[0]), (202, 200))
        self.assertTrue(json.loads(self.daemon.ask("GET", asked, key=self.flood)[1])["present"])
        self.assertEqual(self.end_of(f"{place}/status", self.flood)["status"], "ready")
        self.assertEqual(self.daemon.ask("POST", f"/v2{place}", self.recipe("true"), self.flood)[0], 409, "one recipe for a build")
        self.is_well()

    def test_a_client_who_leaves(self):
        """The build continues; the archive and its file are dropped."""
        place = self.begin(self.flood, "left")
        asked, to = self.archive(place, self.flood, "cd" * 32)
        lock = self.locked()
        gone = self.post(self.recipe("true"), target=f"/v2{place}")
        self.waits(lock)
        gone.close()
        sender = self.daemon.connect()
        send_all(sender, request("PUT", to, body=b"archive"))
        eventually(lambda: len(self.waiters(lock)) == 2, "the archive")
        sender.close()
        files = Path(lock.name).parent / "files"
        eventually(lambda: not list(files.glob(".new-*")), "the end of an archive that nobody sends")
        lock.close()
        self.assertEqual(self.end_of(f"{place}/status", self.flood)["status"], "ready")
        self.assertFalse(json.loads(self.daemon.ask("GET", asked, key=self.flood)[1])["present"])
        self.is_well()

    def test_who_waits_is_killed(self):
        """A build that has not started can be started again."""
        place = self.begin(self.flood, "killed")
        lock = self.locked()
        s = self.post(self.recipe("true"), target=f"/v2{place}")
        first = self.waits(lock)
        os.kill(first, signal.SIGKILL)
        eventually(lambda: self.waiters(lock) - {first}, "the one that says so")
        self.works("other", "another key")
        self.assertEqual(self.answered([s]), 0)
        lock.close()
        self.assertEqual(Answers(read_all(s)).statuses, [500])
        self.assertEqual(self.status(f"{place}/status", self.flood)["status"], "waiting")
        self.assertEqual(self.daemon.ask("POST", f"/v2{place}", self.recipe("true"), self.flood)[0], 202)
        self.assertEqual(self.end_of(f"{place}/status", self.flood)["status"], "ready")

    def test_who_builds_is_killed(self):
        """The build is marked as failed as soon as the record can be written. No other request
        waits for that."""
        before = self.children()
        place, name = self.hang(self.flood, "killed-later")
        builder, = self.children() - before
        lock = self.locked()
        os.kill(builder, signal.SIGKILL)
        self.waits(lock)
        self.works("other", "another key")
        self.assertEqual(self.status(place, self.flood)["status"], "building")
        lock.close()
        self.assertEqual(self.end_of(place, self.flood)["reason"]["message"], "the helper process died without a result")
        eventually(lambda: name not in self.sandboxes(), "the end of its sandbox")

    def test_no_process_can_be_started(self):
        """hutchd can fork neither for the build nor for recording its end: it records the end
        later."""
        place = self.begin(self.flood, "no-process")
        lock = self.locked()
        s = self.post(self.recipe("true"), target=f"/v2{place}")
        self.waits(lock)
        pid = self.daemon.process.pid
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))
        try:
            lock.close()
            self.assertEqual(Answers(read_all(s)).statuses, [500])
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        self.assertEqual(self.status(f"{place}/status", self.flood)["status"], "building")
        self.assertIn("cannot start a process", self.end_of(f"{place}/status", self.flood)["reason"]["message"])

    def test_they_count_while_they_wait(self):
        name = f"one-build-{self.daemon.port}"
        key = self.key(name, "--builds", "1")
        places = [self.begin(key, f"counted-{i}") for i in range(3)]
        lock = self.locked(name)
        s = self.post(self.recipe("true"), key, f"/v2{places[0]}")
        self.waits(lock)
        self.assertEqual([self.daemon.ask("POST", f"/v2{one}", self.recipe("true"), key)[0] for one in places[1:]], [429, 429])
        lock.close()
        self.assertEqual(Answers(read_all(s)).statuses, [202])
        self.assertEqual(self.end_of(f"{places[0]}/status", key)["status"], "ready")
        eventually(lambda: self.daemon.ask("POST", f"/v2{places[1]}", self.recipe("true"), key)[0] == 202, "room for a build")
        self.assertEqual(self.end_of(f"{places[1]}/status", key)["status"], "ready")

    def test_hutchd_is_killed(self):
        """The process that waits for the lock ends with hutchd: no build is recorded without a
        builder."""
        daemon = Daemon()
        self.addCleanup(daemon.reserved.close)
        self.addCleanup(daemon.process.kill)
        place = self.begin(self.flood, "left-alone", daemon)
        lock = self.locked()
        with daemon.connect() as s:
            body = json.dumps(self.recipe("true")).encode()
            send_all(s, request("POST", f"/v2{place}", ("X-API-Key", self.flood), ("Content-Type", JSON), body=body))
            waiter = self.waits(lock, daemon)
            daemon.process.send_signal(signal.SIGKILL)
            daemon.process.wait()
        eventually(lambda: waiter not in self.blocked(lock), "the end of who waits")
        lock.close()
        self.assertEqual(self.status(f"{place}/status", self.flood)["status"], "waiting")
        self.assertEqual(self.daemon.ask("POST", f"/v2{place}", self.recipe("true"), self.flood)[0], 202, "control")
        self.assertEqual(self.end_of(f"{place}/status", self.flood)["status"], "ready")
