# SPDX-License-Identifier: Apache-2.0
"""
Two tenants on one hutchd, whose keys are granted different agents, each with a secret of its own:
what a key can use, and what it can learn about the other's. Both values arrive at their servers, so
every refusal has its control.
"""

import json
import os
import sys
import unittest.mock
from pathlib import Path

from boxes import run
from sandbox import CONFIG, MACHINE, STATE, agent, hutch
from tapped import API, CLAUDE, TapCase, headers, hits
from waiting import eventually

sys.path.append(str(Path(__file__).resolve().parents[1] / "attack"))
from api import Daemon, new_key  # noqa: E402

RED, BLUE = "RED_TOKEN", "BLUE_TOKEN"
# The other's agent has the name of the template that both may start.
BLUE_AGENT = "base"
LISTS = ("/sandboxes", "/v2/sandboxes", "/snapshots", "/templates", "/teams", "/hutch/v1/policies", "/hutch/v1/images", "/hutch/v1/version")


class Tenants(TapCase):
    def setUp(self):
        super().setUp()
        self.red, self.blue = self.key(RED), self.key(BLUE)
        self.red_agent = self.agent_of({RED: {"hosts": [API]}}, domains=[CLAUDE])
        agent(BLUE_AGENT, f"egress:\n  domains: [{API}, {CLAUDE}]\nsecrets:\n  {BLUE}: {{hosts: [{API}, {CLAUDE}]}}\n")
        self.addCleanup((CONFIG / "agents" / f"{BLUE_AGENT}.yaml").unlink)
        with unittest.mock.patch.dict(os.environ, self.config):
            self.daemon = Daemon()
        self.addCleanup(self.daemon.stop)
        self.keys = {"red": self.new("red", "--agent", self.red_agent), "blue": self.new("blue", "--agent", BLUE_AGENT),
                     "none": self.new("none"), "admin": self.daemon.keys["admin"]}

    def new(self, name, *opts):
        return new_key(f"{name}-{self.daemon.number}", *opts)

    def account_packet(self, packet, dialled):
        if packet[0] != "lo" or self.daemon.port not in (packet[4], packet[6]):
            super().account_packet(packet, dialled)

    def ask(self, who, method, path, body=None):
        """(status, text) of an answer."""
        status, text = self.daemon.ask(method, path, body, self.keys[who])
        return status, text.decode(errors="replace")

    def made(self, who, **more):
        box = self.daemon.make(self.keys[who], **more).id
        self.addCleanup(hutch, "rm", "-f", box)
        self.addCleanup(self.account_once)
        self.own.append(box)
        return box

    def agent(self, box):
        return json.loads(self.ended(hutch("inspect", "--json", box), 0).stdout)["agent"]

    def sent(self, box, host=API, more=""):
        """The credentials with which a request of this sandbox arrives at the host."""
        self.n += 1
        self.curl(box, more, f"https://{host}/tenant-{self.n}", code=None)
        return [v for r in self.requests(host, f"/tenant-{self.n}") for v in headers(r, "authorization")]

    def test_each_key_uses_its_own(self):
        """Also if it names the other's agent as its template, or sends a policy along."""
        red, blue, none = self.made("red"), self.made("blue"), self.made("none")
        self.assertEqual((self.agent(red), self.agent(blue), self.agent(none)), (self.red_agent, BLUE_AGENT, "e2b"))
        self.assertEqual((self.sent(red), self.sent(blue)), ([f"Bearer {self.red}"], [f"Bearer {self.blue}"]))
        self.assertEqual(self.sent(blue, CLAUDE), [f"Bearer {self.blue}"])
        self.assertEqual(self.sent(red, CLAUDE), [])
        # The other's placeholder, as if someone had handed it over.
        foreign = self.placeholder(blue, BLUE)
        self.assertEqual(self.sent(red, CLAUDE, f"-H 'Authorization: Bearer {foreign}'"), [f"Bearer {foreign}"])
        self.assertEqual(self.sent(red, API, f"-H 'Authorization: Bearer {foreign}'"), [f"Bearer {self.red}"])
        for more in ({"agent": BLUE_AGENT}, {"policy": {"agent": {"name": "own"}, "secrets": {BLUE: {"hosts": [API]}}}}, {"agentID": BLUE_AGENT},
                     {"secrets": {BLUE: {"hosts": [CLAUDE]}}}, {"metadata": {"agent": BLUE_AGENT, "secrets": BLUE}},
                     {"network": {"allowOut": [CLAUDE, API], "denyOut": ["0.0.0.0/0"]}}, {"envVars": {BLUE: "x"}}):
            box = self.made("red", **more)
            self.assertEqual((self.agent(box), self.sent(box), self.sent(box, CLAUDE)), (self.red_agent, [f"Bearer {self.red}"], []), more)
        self.assertEqual(run(none, "sh", "-c", f"echo ${BLUE}${RED}").out, "\n")

    def test_variables_tell_nothing(self):
        """A client's variable cannot replace its own placeholder. The name of another's secret is a
        name like any other."""
        status, text = self.ask("red", "POST", "/sandboxes", {"templateID": "base", "timeout": 60, "envVars": {RED: "x"}})
        self.assertEqual(status, 400, text)
        self.assertIn(RED, text)
        seen = [run(self.made("red", envVars={name: "mine"}), "sh", "-c", f"echo ${name}").out for name in (BLUE, "NO_SUCH_SECRET")]
        self.assertEqual(seen, ["mine\n", "mine\n"])

    def test_nothing_is_told(self):
        red, blue = self.made("red"), self.made("blue")
        self.assertEqual((self.sent(red), self.sent(blue)), ([f"Bearer {self.red}"], [f"Bearer {self.blue}"]))
        ours, theirs = [f"/hutch/v1/sandboxes/{red}{end}" for end in ("", "/receipt", "/egress")], f"/hutch/v1/sandboxes/{blue}"
        known = {path: self.ask("red", "GET", path) for path in (*LISTS, *ours, f"/sandboxes/{red}", f"/v2/sandboxes/{red}/logs", f"/hutch/v1/policies/{self.red_agent}")}
        self.assertEqual({path: status for path, (status, _) in known.items() if status != 200}, {})
        self.assertIn(RED, known[f"/hutch/v1/policies/{self.red_agent}"][1], "the control: one's own policy")
        for path in (theirs, f"{theirs}/receipt", f"{theirs}/egress", f"/sandboxes/{blue}", f"/sandboxes/{blue}/logs", f"/hutch/v1/policies/{BLUE_AGENT}"):
            known[path] = self.ask("red", "GET", path)
            self.assertEqual(known[path][0], 404, known[path])
        for path in ("/hutch/v1/audit", "/hutch/v1/events", "/hutch/v1/doctor", "/metrics"):
            known[path] = self.ask("red", "GET", path)
            self.assertEqual(known[path][0], 403, known[path])
        # No answer says more about the secret's agent than about one that does not exist.
        self.assertEqual(known[f"/hutch/v1/policies/{BLUE_AGENT}"][1].replace(BLUE_AGENT, "x"), self.ask("red", "GET", "/hutch/v1/policies/x")[1])
        for path, (_, text) in known.items():
            self.assertEqual([word for word in (BLUE, blue) if word in text and word not in path], [], (path, text))
            self.assertEqual(hits(text.encode(), self.blue) + hits(text.encode(), self.red), [], path)
        whole = [self.ask("admin", "GET", path)[1] for path in ("/hutch/v1/audit", f"/hutch/v1/policies/{BLUE_AGENT}", f"{theirs}/egress")]
        self.assertEqual([BLUE in text for text in whole], [True] * 3, "the control: an administrator sees names")
        self.assertEqual([hits(text.encode(), value) for text in whole for value in (self.red, self.blue)], [[]] * 6)

    def test_a_missing_value_is_the_operators_to_know(self):
        """A client sees neither the name nor the store of a secret in errors."""
        self.ended(hutch("secret", "rm", BLUE), 0)
        said = {who: self.ask(who, "POST", "/sandboxes", {"templateID": "base", "timeout": 60}) for who in ("blue", "admin")}
        self.assertEqual({who: status for who, (status, _) in said.items()}, {"blue": 500, "admin": 500})
        self.assertNotIn(BLUE, said["blue"][1])
        self.assertNotIn(str(STATE), said["blue"][1])
        self.assertIn(BLUE, said["admin"][1], "the control")
        self.assertIn(BLUE, self.daemon.log())
        self.assertEqual(self.sent(self.made("red")), [f"Bearer {self.red}"])

    def test_a_revoked_grant(self):
        """The key keeps its running sandbox, until it is killed, but gets no other one with the
        secret: neither a new one nor a copy."""
        blue = self.made("blue")
        self.assertEqual(self.sent(blue), [f"Bearer {self.blue}"])
        self.assertNotEqual(self.ask("blue", "POST", f"/sandboxes/{blue}/fork", {})[0], 403, "the control")
        if MACHINE:
            status, text = self.ask("blue", "POST", f"/sandboxes/{blue}/fork", {})
            copy = json.loads(text)[0]["sandbox"]["sandboxID"]
            self.addCleanup(hutch, "rm", "-f", copy)
            self.own.append(copy)
            self.assertEqual((status, self.sent(copy)), (201, [f"Bearer {self.blue}"]))
        self.ended(hutch("key", "set", f"blue-{self.daemon.number}", "--agent", self.red_agent), 0)

        def copy_of():
            status, text = self.ask("blue", "POST", f"/sandboxes/{blue}/fork", {})
            return status == 403 and text

        text = eventually(copy_of, "an answer after the change of the key")
        self.assertNotIn(BLUE, text)
        self.assertEqual(self.agent(self.made("blue")), self.red_agent)
