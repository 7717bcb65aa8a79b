# SPDX-License-Identifier: Apache-2.0
"""hutch key, checked by a reader of keys.json that was written from hutch-keys(5) alone."""

import hashlib
import json
import os
import re
import subprocess
import unittest
from pathlib import Path

from support import Case, environment, hutch, hutch_path


def known(path, key):
    """The entry of a key, found as the page describes."""
    digest = hashlib.blake2b(b"hutch-api-key-1\0" + key.encode(), digest_size=32).hexdigest()
    return [k for k in json.loads(Path(path).read_text())["keys"] if k["hash"] == digest]


class Keys(Case):
    def setUp(self):
        super().setUp()
        self.state = self.dir / "state"
        self.file = self.state / "keys.json"
        self.env = environment(HUTCH_STATE_DIR=str(self.state), HUTCH_AUDIT_DIR=str(self.dir / "audit"))

    def key(self, *args, code=0):
        r = hutch("key", *args, env=self.env)
        self.assertEqual(r.returncode, code, r.stderr + r.stdout)
        return (r.stdout if code == 0 else r.stderr).decode()

    def listed(self):
        return json.loads(self.key("ls", "--json"))

    def test_none(self):
        self.assertEqual(self.listed(), [])
        self.assertRegex(self.key("ls"), r"^NAME +PREFIX +ROLE +CREATED +EXPIRES +MAY HAVE\n$")
        self.assertIn("no key 'x'", self.key("revoke", "x", code=1))
        self.assertFalse(self.state.exists())

    def test_create_prints_the_key_and_nothing_else(self):
        text = self.key("create")
        self.assertRegex(text, r"\Ae2b_[0-9a-f]{40}\n\Z")
        (entry,) = known(self.file, text.strip())
        self.assertEqual(entry["prefix"], text[4:12])
        self.assertEqual((entry["name"], entry["role"]), (f"key-{text[4:12]}", "user"))
        self.assertNotIn("expires", entry)
        self.assertEqual(os.stat(self.file).st_mode & 0o777, 0o600)
        self.assertEqual(os.stat(self.state).st_mode & 0o777, 0o700)

    def test_it_is_never_shown_again(self):
        text = self.key("create", "--name", "web").strip()
        log = hutch("audit", "show", "--json", "-v", env=self.env).stdout.decode()
        self.assertIn('"web"', log)
        for said in (self.key("ls"), self.key("ls", "--json"), self.file.read_text(), log):
            self.assertNotIn(text[12:], said)

    def test_umask_does_not_matter(self):
        r = subprocess.run(["sh", "-c", 'umask 000; exec "$0" key create', hutch_path()], env=self.env,
                           capture_output=True, check=False)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(os.stat(self.file).st_mode & 0o777, 0o600)
        self.assertEqual(os.stat(self.state).st_mode & 0o777, 0o700)

    def test_json_roles_and_expiry(self):
        made = json.loads(self.key("create", "--json", "-n", "ci", "-r", "admin", "--expires", "30d"))
        self.assertRegex(made["key"], r"^e2b_[0-9a-f]{40}$")
        (entry,) = self.listed()
        self.assertEqual({k: made[k] for k in entry}, entry)
        self.assertEqual((entry["role"], entry["expired"]), ("admin", False))
        self.key("create", "-n", "scrape", "-r", "metrics", "--expires", "2099-01-01T00:00:00Z")
        self.assertRegex(self.key("ls"), r"(?m)^scrape +[0-9a-f]{8} +metrics +\S+ +2099-01-01T00:00:00Z +-$")

    def test_revoke(self):
        text = self.key("create", "-n", "a")
        self.key("create", "-n", "b")
        self.assertEqual(self.key("revoke", text[4:12]), "a: revoked\n")
        self.assertEqual([k["name"] for k in self.listed()], ["b"])
        self.assertEqual(known(self.file, text.strip()), [])
        self.assertIn("no key 'a'", self.key("revoke", "a", code=1))
        self.assertEqual(self.key("revoke", "b"), "b: revoked\n")
        log = hutch("audit", "show", env=self.env).stdout.decode()
        self.assertEqual(len(re.findall(r" api-key +revoke .*result=done", log)), 2)

    def test_wrong_usage(self):
        for words in (["-n", "A"], ["-n", ""], ["-n", "deadbeef"], ["-r", "root"], ["--expires", "soon"],
                      ["--expires", "2001-01-01T00:00:00Z"], ["-n", "x" * 64]):
            self.key("create", *words, code=2)
        self.assertFalse(self.file.exists())

    def test_grants(self):
        """A key's limits: set when it is created, changed later, shown. A key file of an older
        version has none."""
        self.key("create", "-n", "a", "--agent", "e2b,devops", "--level", "microvm")
        self.key("create", "-n", "b")
        self.key("create", "-n", "c", "-r", "admin")
        a, b, c = sorted(self.listed(), key=lambda one: one["name"])
        self.assertEqual((a["agents"], a["level"]), (["e2b", "devops"], "microvm"))
        self.assertEqual((b["agents"], b["level"]), ([], None))
        rows = {line.split()[0]: line for line in self.key("ls").splitlines()}
        self.assertTrue(rows["NAME"].endswith("MAY HAVE"))
        for name, may in {"a": "agents e2b,devops; level microvm", "b": "the default agent", "c": "everything"}.items():
            self.assertTrue(rows[name].endswith("  " + may), rows[name])
        kept = json.loads(self.file.read_text())["keys"]
        self.assertFalse({"agents", "level"} & set(next(one for one in kept if one["name"] == "b")), "as files of before")
        hashes = [one["hash"] for one in kept]
        self.assertEqual(self.key("set", "a", "--agent", "locked"), "a: agents locked; level microvm\n")
        self.assertEqual(self.key("set", "b", "--level", "container"), "b: the default agent; level container\n")
        self.assertEqual(self.key("set", "a", "--agent", "", "--level", ""), "a: the default agent\n")
        self.assertEqual([one["hash"] for one in json.loads(self.file.read_text())["keys"]], hashes, "they stay the same keys")
        log = hutch("audit", "show", "--json", "-v", env=self.env).stdout.decode()
        self.assertIn("agents locked; level microvm", log)
        before = self.file.read_bytes()
        for words in (["a"], ["a", "--agent", "A"], ["a", "--agent", "x,"], ["a", "--agent", "x,x"], ["a", "--agent", "/etc/x.yaml"],
                      ["a", "--level", "vm"], ["a", "--agent", ",".join(f"a{i}" for i in range(17))]):
            self.key("set", *words, code=2)
            self.key("create", "-n", "d", *words[1:], code=2) if words[1:] else None
        self.key("set", "nobody", "--level", "microvm", code=1)
        for words in (["set", "c", "--level", "microvm"], ["create", "-n", "d", "-r", "admin", "--agent", "e2b"], ["create", "-n", "d", "-r", "metrics", "--level", "microvm"]):
            self.key(*words, code=2)  # no grant binds these
        self.assertEqual(self.file.read_bytes(), before)
        for bad in ('"agents": "e2b"', '"agents": [1]', '"agents": ["E"]', '"agents": ["e2b", "e2b"]', '"level": "none"', '"level": 1'):
            self.file.write_bytes(before.replace(b'"name"', bad.encode() + b', "name"', 1))
            self.assertIn("keys.json", hutch("key", "ls", env=self.env).stderr.decode(), bad)

    def test_limits(self):
        self.key("create", "-n", "a", "--sandboxes", "20", "--cpus", "2.5", "--memory", "16GiB", "--disk", "100GiB", "--builds", "2")
        self.key("create", "-n", "b")
        kept = {one["name"]: one for one in json.loads(self.file.read_text())["keys"]}
        limits = {"sandboxes": 20, "cpus": 2500, "memory": 16 << 30, "disk": 100 << 30, "builds": 2}
        self.assertEqual({name: kept["a"][name] for name in limits}, limits)
        self.assertFalse(set(limits) & set(kept["b"]))
        self.assertEqual({one["name"]: one["quota"] for one in self.listed()}, {"a": limits, "b": {}})
        self.assertIn("the default agent; at most 20 sandboxes, 2.5 cpus, 16GiB memory, 100GiB disk, 2 builds\n", self.key("ls"))
        self.assertEqual(self.key("set", "a", "--memory", "0", "--cpus", ""), "a: the default agent; at most 20 sandboxes, 100GiB disk, 2 builds\n")
        before = self.file.read_bytes()
        for words in (["--sandboxes", "x"], ["--sandboxes", "-1"], ["--sandboxes", "1.5"], ["--sandboxes", "9" * 30], ["--cpus", "many"], ["--memory", "16"],
                      ["--memory", "16GB"], ["--disk", "-1GiB"], ["--builds", "2GiB"]):
            self.assertIn("expected", hutch("key", "set", "a", *words, env=self.env).stderr.decode(), words)
            self.key("set", "a", *words, code=2)
        self.assertEqual(self.file.read_bytes(), before)
        for bad in ('"sandboxes": "20"', '"memory": -1', '"cpus": 1.5'):
            self.file.write_bytes(before.replace(b'"name"', bad.encode() + b', "name"', 1))
            self.assertIn("keys.json", hutch("key", "ls", env=self.env).stderr.decode(), bad)

    def test_grants_that_are_changed_at_once(self):
        """Options that are not given stay as they are, also during a concurrent change."""
        self.key("create", "-n", "a")
        for level, agents in (("microvm", "e2b"), ("container", "locked"), ("", "e2b,locked"), ("microvm", "devops")) * 5:
            both = [subprocess.Popen([os.environ["HUTCH"], "key", "set", "a", *words], env={**os.environ, **self.env}, stdout=subprocess.DEVNULL)
                    for words in (("--level", level), ("--agent", agents))]
            self.assertEqual([p.wait() for p in both], [0, 0])
            [one] = self.listed()
            self.assertEqual((one["level"] or "", ",".join(one["agents"])), (level, agents))

    def test_a_name_is_taken(self):
        self.key("create", "-n", "a")
        self.assertIn("revoke it first", self.key("create", "-n", "a", code=1))
        self.assertEqual(len(self.listed()), 1)

    def test_what_is_in_doubt_is_refused_and_left_alone(self):
        self.key("create", "-n", "a")
        good = self.file.read_text()
        for bad in (good + "x", good.replace('"version": 1', '"version": 2'), good.replace('"role": "user"', '"role": "god"'),
                    good.replace('"name"', '"uid": 0, "name"'), good.replace('"name"', '"role": "user", "name"')):
            self.file.write_text(bad)
            for words in (["ls"], ["create"], ["revoke", "a"]):
                self.assertIn("keys.json", hutch("key", *words, env=self.env).stderr.decode())
            self.assertEqual(self.file.read_text(), bad)
        self.file.write_text(good)
        self.file.chmod(0o644)
        self.assertIn("change its mode to 0600", self.key("ls", code=125))
        self.file.chmod(0o600)
        self.assertEqual(len(self.listed()), 1)

    def test_not_made_if_it_cannot_be_recorded(self):
        env = dict(self.env, HUTCH_AUDIT_DIR="/proc/nothing")
        r = hutch("key", "create", env=env)
        self.assertNotEqual(r.returncode, 0)
        self.assertEqual(r.stdout, b"")
        self.assertIn(b"audit", r.stderr)
        self.assertFalse(self.file.exists())

    def test_many_at_once(self):
        running = [subprocess.Popen([hutch_path(), "key", "create"], env=self.env, stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL) for _ in range(12)]
        made = [p.communicate()[0].decode().strip() for p in running]
        self.assertEqual(len(self.listed()), 12)
        for key in made:
            self.assertEqual(len(known(self.file, key)), 1)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to give a directory away")
    def test_a_directory_of_another_user(self):
        self.key("create")
        os.chown(self.state, 65534, 65534)
        self.assertIn("belongs to uid 65534: run hutch as that user", self.key("create", code=125))


if __name__ == "__main__":
    unittest.main()
