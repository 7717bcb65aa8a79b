# SPDX-License-Identifier: Apache-2.0
"""
Templates of two keys with the same name: one key's build does not affect the other key until the
operator shares it.
"""

import json

from api import ApiCase
from sandbox import hutch
from waiting import eventually


class TestNames(ApiCase):
    """Real builds of two owners, all with the same name."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.name = f"code-interpreter-{cls.daemon.port}"
        cls.mine = cls.build("user", cls.name)
        cls.theirs = cls.build("other", cls.name)

    @classmethod
    def build(cls, key, name, begins=None):
        """Builds a template whose /who holds the name of its key, and returns it with its final
        status."""
        status, text = cls.daemon.ask("POST", "/v3/templates", {"name": name}, key)
        if status != 202:
            raise AssertionError((status, text))
        made = json.loads(text)
        place = f"/templates/{made['templateID']}"
        cls.addClassCleanup(cls.daemon.ask, "DELETE", place, None, "admin")
        recipe = {**(begins or {"fromImage": "base"}), "steps": [{"type": "RUN", "args": [f"echo {key} >> /who", "root"]}]}
        status, text = cls.daemon.ask("POST", f"/v2{place}/builds/{made['buildID']}", recipe, key)
        if status != 202:
            raise AssertionError((status, text))
        made["end"] = eventually(lambda: (s := json.loads(cls.daemon.ask("GET", f"{place}/builds/{made['buildID']}/status", key=key)[1]))["status"]
                                 in ("error", "ready") and s, "the end of a build")
        return made

    def test_builds_are_in_the_audit_log(self):
        lines = hutch("audit", "show", "--json").stdout.splitlines()
        for key, made in (("user", self.mine), ("other", self.theirs)):
            seen = [r["payload"] for r in map(json.loads, lines) if r["kind"] == "image" and r["payload"].get("build") == made["buildID"]]
            self.assertEqual([(p["op"], p["template"], p.get("result")) for p in seen],
                             [("build", made["templateID"], None), ("build", made["templateID"], "done")])
            self.assertTrue(seen[0]["key"].startswith(key), seen)
            self.assertRegex(seen[1]["sha256"], "^[0-9a-f]{64}$")

    def who(self, key, template):
        """Creates a sandbox and returns (status, contents of /who, or the answer)."""
        status, text = self.daemon.ask("POST", "/sandboxes", {"templateID": template, "timeout": 60}, key)
        if status != 201:
            return status, text.decode()
        name = json.loads(text)["sandboxID"]
        self.addCleanup(hutch, "rm", "-f", name)
        return status, hutch("exec", name, "--", "cat", "/who").stdout.decode()

    def test_a_name_is_the_own(self):
        self.assertEqual([self.mine["end"]["status"], self.theirs["end"]["status"]], ["ready", "ready"], (self.mine, self.theirs))
        self.assertNotEqual(self.mine["templateID"], self.theirs["templateID"])
        self.assertEqual(self.who("user", self.name), (201, "user\n"))
        self.assertEqual(self.who("other", self.name), (201, "other\n"))
        self.assertEqual(self.who("user", self.mine["templateID"]), (201, "user\n"), "control: by its id")
        for key, own in (("user", self.mine), ("other", self.theirs)):
            listed = [one["templateID"] for one in json.loads(self.daemon.ask("GET", "/templates", key=key)[1])]
            self.assertEqual([t in listed for t in (self.mine["templateID"], self.theirs["templateID"])],
                             [own is self.mine, own is self.theirs], listed)
            self.assertEqual(json.loads(self.daemon.ask("GET", f"/templates/aliases/{self.name}", key=key)[1])["templateID"], own["templateID"])

    def test_nothing_of_others(self):
        """Another key's template cannot be used by its id, its build or its image."""
        theirs, build = self.theirs["templateID"], self.theirs["buildID"]
        before = self.daemon.ask("GET", f"/templates/{theirs}/tags", key="other")
        self.assertEqual(before[0], 200, before)
        for template in (theirs, f"{theirs}:default", f"{theirs}:{build}", f"{self.name}:{build}"):
            status, text = self.who("user", template)
            self.assertEqual(status, 404, (template, text))
        hash_ = "ab" * 32
        none = json.loads(self.daemon.ask("DELETE", "/templates/nobody-has-this", key="user")[1])
        for method, place, body in (
            ("GET", f"/templates/aliases/{theirs}", None),
            ("GET", f"/templates/{theirs}/tags", None),
            ("GET", f"/templates/{theirs}/files/{hash_}", None),
            ("GET", f"/templates/{theirs}/builds/{build}/status", None),
            ("POST", f"/v2/templates/{theirs}/builds/{build}", {"fromImage": "base", "steps": []}),
            ("POST", "/templates/tags", {"target": f"{theirs}:default", "tags": ["planted"]}),
            ("POST", "/templates/tags", {"target": theirs, "tags": ["planted"]}),
            ("DELETE", "/templates/tags", {"name": theirs, "tags": ["default"]}),
            ("DELETE", f"/templates/{theirs}", None),
        ):
            status, text = self.daemon.ask(method, place, body, "user")
            self.assertEqual(status, 404, (method, place, text))
            self.assertEqual(set(json.loads(text)), set(none), "the same answer as for what is not there")
            self.assertNotIn(b"other", text)
        self.assertEqual(self.daemon.ask("GET", f"/templates/{theirs}/tags", key="other"), before)
        self.assertEqual(self.who("other", self.name), (201, "other\n"), "control: all is as it was")

    def test_a_build_begins_with_the_own(self):
        theirs = f"{self.theirs['templateID']}:{self.theirs['buildID']}"
        made = self.build("user", f"on-{self.name}", {"fromTemplate": self.name})
        self.assertEqual(made["end"]["status"], "ready", made)
        self.assertEqual(self.who("user", f"on-{self.name}"), (201, "user\nuser\n"))
        for begins in ({"fromImage": theirs}, {"fromTemplate": theirs}, {"fromTemplate": self.theirs["templateID"]}):
            with self.subTest(begins):
                made = self.build("user", f"stolen-{self.name}", begins)
                self.assertEqual(made["end"]["status"], "error", made)
                self.assertIn("no ", made["end"]["reason"]["message"])

    def test_the_operator_shares(self):
        name = f"shared-{self.daemon.port}"
        made = self.build("user", name)
        self.assertEqual(made["end"]["status"], "ready", made)
        whole = f"user-{self.daemon.number}/{name}"
        self.assertEqual(self.who("other", name)[0], 404, "not before it is shared")
        self.assertEqual(hutch("template", "share", whole).returncode, 0)
        self.addCleanup(hutch, "template", "unshare", name)
        self.assertEqual(self.who("other", name), (201, "user\n"))
        self.assertIn([name], [one["names"] for one in json.loads(self.daemon.ask("GET", "/templates", key="other")[1]) if one["public"]])
        # Permission to use a template is not permission to change it.
        for method, place, body in (("DELETE", f"/templates/{name}", None), ("DELETE", f"/templates/{made['templateID']}", None),
                                    ("POST", "/templates/tags", {"target": name, "tags": ["planted"]})):
            self.assertEqual(self.daemon.ask(method, place, body, "other")[0], 404, place)
        # A key's own name takes precedence, and a second template of a shared name cannot be
        # shared.
        own = self.build("other", name)
        self.assertEqual(own["end"]["status"], "ready", own)
        self.assertEqual(self.who("other", name), (201, "other\n"))
        refused = hutch("template", "share", f"other-{self.daemon.number}/{name}")
        self.assertEqual(refused.returncode, 1, refused)
        self.assertIn(b"unshare it first", refused.stderr)
        self.assertEqual(self.daemon.ask("DELETE", f"/templates/{own['templateID']}", key="other")[0], 204)
        self.assertEqual(self.who("other", name), (201, "user\n"))
        self.assertEqual(hutch("template", "unshare", name).returncode, 0)
        self.assertEqual(self.who("other", name)[0], 404)
        self.assertEqual(self.who("user", name), (201, "user\n"), "control: its owner's as before")

    def test_archives_are_the_owners(self):
        """An upload address belongs to the store of the key that asked for it."""
        hash_ = "cd" * 32
        url = json.loads(self.daemon.ask("GET", f"/templates/{self.mine['templateID']}/files/{hash_}", key="user")[1])["url"]
        path = url[url.index("/templates/"):]
        self.assertEqual(self.daemon.ask("PUT", path.replace(f"owner=user-{self.daemon.number}", f"owner=other-{self.daemon.number}"), b"x")[0], 401)
        self.assertEqual(self.daemon.ask("PUT", path, b"x")[0], 200, "control")
        self.assertTrue(json.loads(self.daemon.ask("GET", f"/templates/{self.mine['templateID']}/files/{hash_}", key="user")[1])["present"])
        self.assertFalse(json.loads(self.daemon.ask("GET", f"/templates/{self.theirs['templateID']}/files/{hash_}", key="other")[1])["present"])

    def test_an_administrator(self):
        """An administrator sees all templates and changes each by its id."""
        listed = {one["templateID"] for one in json.loads(self.daemon.ask("GET", "/templates", key="admin")[1])}
        self.assertLessEqual({self.mine["templateID"], self.theirs["templateID"]}, listed)
        self.assertEqual(self.daemon.ask("GET", f"/templates/{self.theirs['templateID']}/tags", key="admin")[0], 200)
        self.assertEqual(self.daemon.ask("GET", f"/templates/{self.name}/tags", key="admin")[0], 404, "a name is the administrator's own")
