# SPDX-License-Identifier: Apache-2.0
"""hutch egress: the output of its commands, and their effect on a running sandbox."""

import json
import os
import tempfile

from boxes import EgressCase, log, run
from sandbox import hutch, start
from waiting import eventually

WEB = "https://web.hutch.test/"


class Commands(EgressCase):
    def egress(self, *args, code=0):
        """Returns (stdout, stderr)."""
        r = self.ended(hutch("egress", *args), code)
        return r.stdout.decode(), r.stderr.decode()

    def test_explain(self):
        box = self.box(["web.hutch.test"], ["api.hutch.test"])
        text, _ = self.egress("explain", box, "web.hutch.test:443")
        self.assertRegex(text, r"^allowed  web\.hutch\.test:443\n  allow    web\.hutch\.test:443\n  from     the policy of agent egress-0\n$")
        text, _ = self.egress("explain", box, "web.hutch.test:80", code=1)
        self.assertRegex(text, r"(?s)^denied   web.*not allowed by the policy: no rule names it\n  ports    the same host is allowed on 443\n")
        text, _ = self.egress("explain", box, "pypi.org:443", code=1)
        self.assertRegex(text, r"allowed by preset .*\bpypi\b")
        self.egress("allow", box, ".hutch.test:443")
        text, _ = self.egress("explain", box, "other.hutch.test:443")
        self.assertRegex(text, r"from     'hutch egress allow', at 20\d\d-")
        text, _ = self.egress("explain", box, "api.hutch.test:443", code=1)
        self.assertRegex(text, r"(?s)deny     api\.hutch\.test, on every port\n.*which wins over\n  allow    \.hutch\.test:443")
        said = json.loads(self.egress("explain", "--json", box, "other.hutch.test:443")[0])
        self.assertEqual((said["allowed"], said["allow"]["rule"], said["deny"]), (True, ".hutch.test:443", None))
        self.egress("explain", box, "web.hutch.test", code=2)

    def test_allow_says_what_it_means(self):
        box = self.box(["web.hutch.test"], ["api.hutch.test"])
        self.assertIn("no port given, using 443", self.egress("allow", box, "other.hutch.test")[1])
        self.assertEqual(run(box, "curl", "-sS", "https://other.hutch.test/").code, 0)
        self.assertRegex(self.egress("allow", box, "api.hutch.test:443", code=1)[1], r"'api\.hutch\.test:443' stays denied: the rule 'api\.hutch\.test'")
        _, said = self.egress("allow", box, "10.0.0.1:80")
        self.assertIn("'10.0.0.1' is a private address: this opens a part of your own network", said)
        self.assertIn("routes to addresses are made when a sandbox starts", said)
        self.assertIn("public suffix", self.egress("allow", box, ".co.uk:443", code=1)[1])
        self.egress("explain", box, "bbc.co.uk:443", code=1)
        self.assertIn("metadata", self.egress("allow", box, "169.254.169.254:80", code=1)[1])
        self.egress("allow", box, "*.hutch.test", code=2)
        self.egress("allow", "zz", "web.hutch.test", code=1)

    def test_deny_takes_back(self):
        box = self.box(["web.hutch.test"])
        for code, verb in ((6, "deny"), (0, "allow"), (6, "deny")):
            self.egress(verb, box, "web.hutch.test:443")
            self.assertEqual(run(box, "curl", "-sS", WEB).code, code, verb)

    def test_log(self):
        box = self.box(["web.hutch.test"])
        run(box, "curl", "-sS", WEB, "https://api.hutch.test/")
        self.logged(box, over=True, name="web.hutch.test")
        allowed, denied, *_ = log(box)  # a denied name is asked for in both families
        self.assertEqual({k: allowed[k] for k in ("sandbox", "name", "address", "port", "rule")},
                         {"sandbox": box, "name": "web.hutch.test", "address": "93.184.216.10", "port": 443, "rule": "web.hutch.test:443"})
        self.assertGreater(allowed["bytes_out"], 200)
        self.assertEqual((denied["name"], denied["reason"], denied["detail"]), ("api.hutch.test", "not allowed by the policy", "asked for by DNS"))
        text, _ = self.egress("log", box[:8])
        self.assertRegex(text.splitlines()[0], r"93\.184\.216\.10 +443 +\d\S* \S*B +\d\S* \S*B  allowed  web\.hutch\.test:443$")
        self.assertEqual(self.egress("log", "--since", "2099-01-01T00:00:00Z", box)[0], "")
        self.assertEqual(self.egress("log", "--since", "1h", box)[0], text)
        self.egress("log", "--since", "noon", box, code=2)
        self.egress("log", "zzzzzzzz", code=1)
        self.ended(hutch("kill", box), 0)
        self.assertEqual(self.egress("log", box)[0], text)

    def test_follow(self):
        box = self.box(["tcp.hutch.test:7777"])
        with tempfile.TemporaryFile() as out:
            p = start("egress", "log", "-f", "--json", box, stdout=out)

            def lines():
                size = out.seek(0, os.SEEK_END)
                return [json.loads(line) for line in os.pread(out.fileno(), size, 0).splitlines()]
            try:
                self.assertEqual(run(box, "bash", "-c", "exec 3<>/dev/tcp/tcp.hutch.test/7777 && head -1 <&3").code, 0)
                eventually(lambda: len(lines()) >= 2, "two lines of the log")
            finally:
                p.terminate()
                p.wait()
            self.assertEqual([line["verdict"] for line in lines()], ["allow", "end"])
            self.assertEqual(*(line["stream"] for line in lines()))

    def test_flood(self):
        """Denials without a line of their own are all counted."""
        box = self.box(["web.hutch.test"])
        run(box, "python3", "-c", "import socket\nfor _ in range(200):\n    try:\n        socket.gethostbyname('evil.canary.test')\n    except OSError:\n        pass")

        def count():
            lines = [line for line in log(box) if line["name"] == "evil.canary.test"]
            return lines if sum(line.get("count", 1) for line in lines) == 200 else None
        lines = eventually(count, "200 questions in the log")
        self.assertLess(len(lines), 100)
        self.assertRegex(self.egress("log", box)[0], r"evil\.canary\.test .* denied   too many to be recorded one by one: \d+ times\n")
        self.assertRegex(self.egress("suggest", box)[0], r'(?m)^    - "evil\.canary\.test:443"  # denied 200 times; the port is unknown, 443 is a guess')

    def test_suggest(self):
        box = self.box(["other.hutch.test"])
        self.assertEqual(self.egress("suggest", box)[0], "# nothing was denied\n")
        run(box, "sh", "-c", "curl -sS https://pypi.org/; curl -sS https://metadata.google.internal/; curl -sS -x 127.0.0.1:3128 https://web.hutch.test:8443/")
        text, _ = self.egress("suggest", box)
        self.assertRegex(text, rf"^# denied connections of sandbox {box}\negress:\n  domains:\n")
        self.assertRegex(text, r'(?m)^    - "pypi\.org:443"  # denied \d+ time.*; or preset .*pypi')
        self.assertRegex(text, r'(?m)^    - "web\.hutch\.test:8443"  # denied 1 time$')
        self.assertRegex(text, r'(?m)^    # - "metadata\.google\.internal:443" .*no rule overcomes$')
        self.assertEqual(self.egress("suggest")[0], text)
