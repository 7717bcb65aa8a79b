# SPDX-License-Identifier: Apache-2.0
"""Names with private addresses: only a rule with /private allows them."""

from boxes import WORLD, EgressCase, log, run
from sandbox import RUN, as_root, hutch
from test_sandbox_bombs import connect

CORP, ADDRESS = "git.corp.test", "10.20.30.40"
WEB = f"https://{CORP}/"
REASON = "no address that may be dialled"
# One address of each class that no rule opens.
NEVER = {"loopback": "127.0.0.1", "link-local": "169.254.1.1", "cloud metadata": "169.254.169.254", "shared (carrier-grade NAT)": "100.64.0.1", "multicast": "224.0.0.1",
         "reserved": "192.0.2.1"}
NEVER6 = {"loopback": "::1", "link-local": "fe80::1", "cloud metadata": "fd00:ec2::254", "IPv4 embedded in IPv6": "::ffff:10.20.30.40"}


class Private(EgressCase):
    private = (ADDRESS,)

    def get(self, box, url=WEB):
        return run(box, "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", url)

    def name(self, name, **entry):
        WORLD("dns", name=name, entry={**entry, "ttl": 0})
        self.addCleanup(WORLD, "dns", name=name, entry=None)

    def denied(self, box, **wanted):
        self.logged(box, reason=REASON, **wanted)

    def test_only_with_the_word(self):
        box = self.box([f"{CORP}:443"])
        self.assertNotEqual(self.get(box).code, 0)
        self.denied(box, name=CORP, detail="private")
        box = self.box([f"{CORP}:443/private"])
        self.assertEqual(self.get(box).out, "200")
        self.logged(box, over=True, name=CORP, address=ADDRESS, rule=f"{CORP}:443/private")

    def test_only_that_name_and_port(self):
        self.name("other.corp.test", a=[ADDRESS])
        box = self.box([f"{CORP}:443/private", f"{CORP}:80", "other.corp.test:443"])
        self.assertNotEqual(self.get(box, f"http://{CORP}/").code, 0)
        self.denied(box, name=CORP, port=80)
        self.assertNotEqual(self.get(box, "https://other.corp.test/").code, 0)
        self.denied(box, name="other.corp.test")
        self.assertEqual(self.get(box).out, "200")

    def test_while_it_runs(self):
        box = self.box([f"{CORP}:443"])
        self.assertNotEqual(self.get(box).code, 0)
        self.ended(hutch("egress", "explain", box, f"{CORP}:443"), 1)
        said = self.ended(hutch("egress", "allow", box, f"{CORP}:443/private"), 0).stderr.decode()
        self.assertIn("private address of your own network", said)
        self.ended(hutch("egress", "explain", box, f"{CORP}:443"), 0)
        self.assertEqual(self.get(box).out, "200")
        # The same rule without /private replaces it.
        self.ended(hutch("egress", "allow", box, f"{CORP}:443"), 0)
        self.assertNotEqual(self.get(box).code, 0)
        self.ended(hutch("egress", "explain", box, f"{CORP}:443"), 1)
        self.ended(hutch("egress", "deny", box, f"{CORP}:443/private"), 1)

    @as_root
    def test_a_rule_that_cannot_be_written_down(self):
        """The rule is active in the kernel already: the error reports that."""
        box = self.box([f"{CORP}:443"])
        self.assertNotEqual(self.get(box).code, 0, "the control")
        widened = RUN / "sandboxes" / box / "widened"
        widened.mkdir()
        holds = "the rule could not be saved: it is lost when the sandbox is suspended: "
        said = self.ended(hutch("egress", "allow", box, f"{CORP}:443/private"), 125).stderr.decode()
        self.assertIn(holds + "cannot open 'widened': Is a directory", said)
        self.assertEqual(self.get(box).out, "200")
        widened.rmdir()
        with widened.open("wb") as file:
            file.truncate(4 << 20)
        said = self.ended(hutch("egress", "allow", box, "other.corp.test:443/private"), 125).stderr.decode()
        self.assertIn(f"{holds}too many rules were added to sandbox {box}: 'widened' has at most 4194304 bytes; put them into the agent's policy", said)

    def test_never(self):
        """Even with /private: loopback, link-local, metadata, shared, multicast, reserved, and
        the host's own addresses."""
        box = self.box([".bad.corp.test:443/private", ".bad.corp.test:8080/private"])
        for kinds, record in ((NEVER, "a"), (NEVER6, "aaaa")):
            for i, (kind, address) in enumerate(kinds.items()):
                name = f"{record}{i}.bad.corp.test"
                with self.subTest(name):
                    self.name(name, **{record: [address]})
                    self.assertNotEqual(self.get(box, f"https://{name}/").code, 0)
                    self.denied(box, name=name, detail=kind)
        for address in WORLD.host:
            self.name("self.bad.corp.test", **{"aaaa" if ":" in address else "a": [address]})
            self.assertNotEqual(self.get(box, "http://self.bad.corp.test:8080/").code, 0)
        self.denied(box, name="self.bad.corp.test", detail="an address of this host")

    def test_a_client_cannot_ask_for_it(self):
        box = self.box([f"{CORP}:443"])
        for rule in (f"+{CORP}:443/private", f"+{CORP}/private"):
            link = connect(box)
            self.addCleanup(link.close)
            self.assertNotEqual(link.open("egress", rule=["-*", rule], replace=True).wait_closed(), 0)
        self.assertNotEqual(self.get(box).code, 0)
        box = self.box([".corp.test:443/private"])
        link = connect(box)
        self.addCleanup(link.close)
        self.assertEqual(link.open("egress", rule=["-*", f"+{CORP}"], replace=True).wait_closed(), 0)
        self.assertEqual(self.get(box).out, "200")  # the policy's own rules remain
        self.assertEqual([line["rule"] for line in log(box)], [f"{CORP}:443/private"])
