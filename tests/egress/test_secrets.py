# SPDX-License-Identifier: Apache-2.0
"""
Secrets and rules on HTTP requests, seen from both ends: programs in the sandbox hold a placeholder,
and the servers (origin.py) receive the value where the policy binds it, and nowhere else.
test_secret_attacks.py tries to get at the values.
"""

import base64
import contextlib
import itertools
import json
import os
import re
import secrets
import signal
import subprocess
import tempfile
from pathlib import Path

import websocket_client
from boxes import WORLD, log, run
from sandbox import MACHINE, children_of, hutch, start, warden_of
from tapped import AUTHORITY, API, CLAUDE, EVIL, GIT, OPENAI, RULES, TAP, TapCase, credentials, headers, hits, probe, taps_of
from test_docs import guide_examples, matches
from waiting import ended, eventually

GITHUB = {"hosts": [API]}


class Forms(TapCase):
    """How a value is sent: one field, and no other credential."""

    def test_bearer(self):
        key, box = self.key("GITHUB_TOKEN"), self.tapped({"GITHUB_TOKEN": GITHUB})
        placeholder = self.placeholder(box, "GITHUB_TOKEN")
        self.assertEqual(hits(placeholder.encode(), key), [])
        self.curl(box, f'-H "Authorization: Bearer $GITHUB_TOKEN" -H "X-Api-Key: $GITHUB_TOKEN" https://{API}/user')
        self.assertEqual(credentials(self.one(API, "/user")), {"authorization": f"Bearer {key}"})
        self.assertNotIn(placeholder, json.dumps(self.connections()))

    def test_without_a_placeholder(self):
        """The only secret of a host and path is sent to each request there, and a credential of the
        sandbox's own is not."""
        key, box = self.key("GITHUB_TOKEN"), self.tapped({"GITHUB_TOKEN": GITHUB})
        self.curl(box, f"https://{API}/none")
        self.curl(box, f"-H 'Authorization: token of-the-sandbox' -H 'Private-Token: of-the-sandbox' https://{API}/own")
        for path in ("/none", "/own"):
            self.assertEqual(credentials(self.one(API, path)), {"authorization": f"Bearer {key}"})

    def test_header(self):
        key, box = self.key("ANTHROPIC_API_KEY"), self.tapped({"ANTHROPIC_API_KEY": {"hosts": [CLAUDE], "header": "x-api-key"}})
        self.curl(box, f'-H "x-api-key: $ANTHROPIC_API_KEY" -H "Authorization: Bearer x" https://{CLAUDE}/v1/messages -d "{{}}"')
        self.assertEqual(credentials(self.one(CLAUDE, "/v1")), {"x-api-key": key})

    def test_header_with_a_format(self):
        key = self.key("GITHUB_TOKEN")
        box = self.tapped({"GITHUB_TOKEN": {"hosts": [API], "form": "header", "header": "Authorization", "format": "token {}"}})
        self.curl(box, f'-H "Authorization: token $GITHUB_TOKEN" https://{API}/user')
        self.assertEqual(credentials(self.one(API, "/user")), {"authorization": f"token {key}"})

    def test_a_header_of_its_own_name(self):
        key = self.key("ODD_TOKEN")
        box = self.tapped({"ODD_TOKEN": {"hosts": [API], "header": "X-Odd", "format": "Odd key={}"}})
        self.curl(box, f'-H "X-Odd: first" -H "x-odd: second" https://{API}/odd')
        self.assertEqual(headers(self.one(API, "/odd"), "x-odd"), [f"Odd key={key}"])

    def test_basic(self):
        key = self.key("GIT_TOKEN")
        box = self.tapped({"GIT_TOKEN": {"hosts": [GIT], "form": "basic", "user": "x-access-token"}})
        self.curl(box, f'-u "someuser:$GIT_TOKEN" https://{GIT}/acme/x')
        value = base64.b64encode(f"x-access-token:{key}".encode()).decode()
        self.assertEqual(credentials(self.one(GIT, "/acme")), {"authorization": f"Basic {value}"})

    def test_query(self):
        key = self.key("MAPS_KEY", "hk-0123456789/+&=? abcdef")
        box = self.tapped({"MAPS_KEY": {"hosts": [API], "form": "query", "parameter": "key"}})
        self.curl(box, f'"https://{API}/maps?a=1&key=$MAPS_KEY&b=%20&key=again"')
        target = self.one(API, "/maps")["target"]
        self.assertEqual(target.count("key="), 1, target)
        self.assertIn("key=hk-0123456789%2F%2B%26%3D%3F%20abcdef", target)
        self.assertIn("a=1", target)
        self.assertIn("b=%20", target)

    def test_paths(self):
        key = self.key("ANTHROPIC_API_KEY")
        box = self.tapped({"ANTHROPIC_API_KEY": {"hosts": [CLAUDE], "header": "x-api-key", "paths": ["/v1/messages/**", "/v1/model-*"]}})
        placeholder = self.placeholder(box, "ANTHROPIC_API_KEY")
        for path in ("/v1/messages", "/v1/messages/count?beta=true", "/v1/model-x", "/v1/models", "/api/telemetry", "/v1/model-x/y", "/v1"):
            self.curl(box, f'-H "x-api-key: $ANTHROPIC_API_KEY" https://{CLAUDE}{path}')
            bound = path.startswith(("/v1/messages", "/v1/model-x")) and not path.endswith("/y")
            self.assertEqual(headers(self.requests(CLAUDE)[-1], "x-api-key"), [key if bound else placeholder], path)

    def test_two_secrets_for_one_host(self):
        """The placeholder chooses; without one, none is sent, nor any other credential."""
        one, two = self.key("ONE_TOKEN"), self.key("TWO_TOKEN")
        box = self.tapped({"ONE_TOKEN": GITHUB, "TWO_TOKEN": {"hosts": [API], "header": "x-api-key"}})
        self.curl(box, f'-H "Authorization: Bearer $ONE_TOKEN" https://{API}/one')
        self.curl(box, f'-H "X-Api-Key: $TWO_TOKEN" https://{API}/two')
        self.curl(box, f'-H "Authorization: Bearer of-the-sandbox" https://{API}/neither')
        self.assertEqual(credentials(self.one(API, "/one")), {"authorization": f"Bearer {one}"})
        self.assertEqual(credentials(self.one(API, "/two")), {"x-api-key": two})
        self.assertEqual(credentials(self.one(API, "/neither")), {})

    def test_two_secrets_by_path(self):
        one, two = self.key("ONE_TOKEN"), self.key("TWO_TOKEN")
        box = self.tapped({"ONE_TOKEN": {"hosts": [API], "paths": ["/one/**"]}, "TWO_TOKEN": {"hosts": [API], "paths": ["/two/**"]}})
        for path, value in (("/one/a", one), ("/two/b", two)):
            self.curl(box, f"https://{API}{path}")
            self.assertEqual(credentials(self.one(API, path)), {"authorization": f"Bearer {value}"})

    def test_one_secret_for_two_hosts(self):
        key, box = self.key("GITHUB_TOKEN"), self.tapped({"GITHUB_TOKEN": {"hosts": [API, GIT]}}, domains=[EVIL])
        for host in (API, GIT, EVIL):
            self.curl(box, f'-H "Authorization: Bearer $GITHUB_TOKEN" https://{host}/')
        for host in (API, GIT):
            self.assertEqual(credentials(self.one(host, "/")), {"authorization": f"Bearer {key}"})
        self.nothing_of(key, EVIL)

    def test_the_protocol_of_a_port(self):
        """Without TLS nothing leaves on port 443, and with TLS nothing on port 80."""
        self.key("GITHUB_TOKEN")
        box = self.tapped({"GITHUB_TOKEN": GITHUB}, domains=[f"{API}:80"])
        r = self.curl(box, f"-i http://{API}:443/plain")
        self.assertTrue(r.out.startswith("HTTP/1.1 400 ") and r.out.endswith("\nhutch: the policy requires TLS on this port: use https\n"), r)
        self.assertIn("the policy requires TLS on this port", json.dumps(self.logged(box, over=True, name=API, port=443)))
        self.curl(box, f"-k https://{API}:80/tls", code=35)
        self.assertIn("the policy requires HTTP on this port", json.dumps(self.logged(box, over=True, name=API, port=80)))
        self.assertEqual({c["raw"] for c in self.connections(to=API)} - {""}, set())
        for url in (f"https://{API}/control", f"http://{API}/control"):
            self.assertEqual(self.status(box, url), "200")

    def test_plain_http(self):
        """Without TLS the receiver is unknown, so the value is not sent."""
        key, box = self.key("GITHUB_TOKEN"), self.tapped({"GITHUB_TOKEN": GITHUB}, domains=[f"{API}:80"])
        self.curl(box, f'-H "Authorization: Bearer $GITHUB_TOKEN" http://{API}/clear', code=None)
        self.nothing_of(key)
        self.arrives(box, API, key)


class Programs(TapCase):
    """Real programs and real streams."""

    def test_python_node_and_git(self):
        """Each trusts the sandbox's own authority without any option."""
        key, box = self.key("GITHUB_TOKEN"), self.tapped({"GITHUB_TOKEN": GITHUB})
        for path, argv in (("/python", ["python3", "-c", f"import urllib.request as u; u.urlopen('https://{API}/python').read()"]),
                           ("/requests", ["python3", "-c", f"import requests; requests.get('https://{API}/requests').raise_for_status()"]),
                           ("/wget", ["wget", "-qO", "/dev/null", f"https://{API}/wget"]),
                           ("/node", ["node", "-e", f"require('https').get('https://{API}/node', r => r.resume()).on('error', e => process.exit(1))"])):
            r = run(box, *argv)
            self.assertEqual(r.code, 0, r)
            self.assertEqual(headers(self.one(API, path), "authorization"), [f"Bearer {key}"])
        run(box, "git", "ls-remote", f"https://{API}/git")  # the server knows no git: only its request counts
        self.assertEqual(headers(self.requests(API, "/git")[0], "authorization"), [f"Bearer {key}"])

    def test_hosts_without_secret_or_rule_are_untouched(self):
        """A client that trusts only the real authority reaches them, and not the others."""
        self.key("GITHUB_TOKEN")
        box = self.tapped({"GITHUB_TOKEN": GITHUB}, domains=[EVIL])
        self.curl(box, f"--cacert {AUTHORITY} --capath /nowhere https://{EVIL}/")
        self.curl(box, f"--cacert {AUTHORITY} --capath /nowhere https://{API}/", code=60)

    def test_without_secrets_there_is_no_tap(self):
        self.key("GITHUB_TOKEN")
        box, other = self.tapped(domains=[API]), self.tapped({"GITHUB_TOKEN": GITHUB})
        for one in (box, other):
            self.curl(one, f"https://{API}/")
        self.assertEqual(taps_of(box), [])
        self.assertEqual(len(taps_of(other)), 1)

    def test_bodies(self):
        self.key("GITHUB_TOKEN")
        box = self.tapped({"GITHUB_TOKEN": GITHUB})
        r = self.curl(box, f"https://{API}/big?50000000 | sha256sum")
        self.assertEqual(r.out, self.curl(box, script="head -c 50000000 /dev/zero | tr '\\0' x | sha256sum").out)
        self.assertEqual(self.curl(box, f"https://{API}/chunked?100000 | wc -c").out.strip(), "100000")
        sends = "head -c 20000000 /dev/zero | exec curl -sS -T - {} https://" + API + "/sink"
        for more in ("", "-H 'Expect: 100-continue'", "-H 'Expect:'"):
            self.assertEqual(self.curl(box, script=sends.format(more)).out, "20000000\n")
        self.curl(box, script=f"head -c 3000000 /dev/zero >/tmp/f; exec curl -sS --data-binary @/tmp/f https://{API}/sink")
        self.assertEqual(self.one(API, "/big")["method"], "GET")

    def test_methods_and_answers(self):
        self.key("GITHUB_TOKEN")
        box = self.tapped({"GITHUB_TOKEN": GITHUB})
        self.curl(box, f"-I https://{API}/head")
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
            self.curl(box, f"-X {method} https://{API}/{method}")
        self.assertEqual([r["method"] for r in self.requests(API)], ["HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"])
        for status in ("204", "304", "404", "500"):
            self.assertEqual(self.status(box, f"https://{API}/status?{status}"), status)

    def test_many_requests_on_one_connection(self):
        key, box = self.key("GITHUB_TOKEN"), self.tapped({"GITHUB_TOKEN": GITHUB})
        r = self.curl(box, " ".join(f"https://{API}/keep-{i}" for i in range(20)))
        self.assertEqual(r.out.count("ok "), 20)
        self.assertEqual(len(self.connections(to=API)), 1)
        self.assertEqual({headers(q, "authorization")[0] for q in self.requests(API)}, {f"Bearer {key}"})

    def test_only_http_1_is_offered(self):
        """To the sandbox and to the server."""
        self.key("GITHUB_TOKEN")
        box = self.tapped({"GITHUB_TOKEN": GITHUB})
        [answer] = self.raw(box, probe(API, f"GET /alpn HTTP/1.1\r\nHost: {API}\r\nConnection: close\r\n\r\n", alpn=("h2", "http/1.1")))
        self.assertIn("ok", answer)
        self.assertEqual(self.curl(box, f"--http2 -w '%{{http_version}}' -o /dev/null https://{API}/").out, "1.1")
        self.assertEqual({c["alpn"] for c in self.connections(to=API)}, {"http/1.1"})

    def test_server_sent_events(self):
        """Each arrives when it is sent: the server sends the second one after we saw the first."""
        self.key("GITHUB_TOKEN")
        box = self.tapped({"GITHUB_TOKEN": GITHUB})
        with start("exec", box, "--", "curl", "-sSN", f"https://{API}/sse?events", stdout=subprocess.PIPE) as p:
            self.assertEqual(p.stdout.readline(), b"data: first\n")
            WORLD("release", gate="events")
            self.assertEqual(p.stdout.read(), b"\ndata: second\n\n")
        self.assertEqual(p.returncode, 0)

    def test_websocket(self):
        """The upgrade carries the value; afterwards both sides talk."""
        key, box = self.key("OPENAI_API_KEY"), self.tapped({"OPENAI_API_KEY": {"hosts": [OPENAI]}})
        r = run(box, "python3", "-c", websocket_client.PROGRAM, OPENAI, "/ws", "hello", "x" * 70000, "ends as a key begins: hk")
        self.assertEqual((r.code, r.out), (0, "5 70000 24\n"), r)
        self.assertEqual(headers(self.one(OPENAI, "/ws"), "authorization"), [f"Bearer {key}"])
        self.http_log(box, method="GET", path="/ws", status=101)


class Life(TapCase):
    """Values come, change and go while sandboxes run."""

    def test_a_missing_value_is_refused_at_start(self):
        agent = self.agent_of({"NEVER_SET": GITHUB})
        said = self.refused("create", "--agent", agent, env=self.config)
        self.assertIn("NEVER_SET", said)
        self.assertIn("hutch secret set", said)
        self.key("NEVER_SET")
        self.own.append(self.create("--agent", agent, env=self.config))

    def bearer(self, box):
        self.n += 1
        status = self.status(box, f"https://{API}/life-{self.n}")
        seen = self.requests(API, f"/life-{self.n}")
        return status, headers(seen[0], "authorization") if seen else None

    def test_rotation_and_removal(self):
        """They reach running sandboxes."""
        key = self.key("GITHUB_TOKEN")
        box = self.tapped({"GITHUB_TOKEN": GITHUB})
        placeholder = self.placeholder(box, "GITHUB_TOKEN")
        self.assertEqual(self.bearer(box), ("200", [f"Bearer {key}"]))
        pid = self.tap(box).pid
        new = "hk/a-newer-value+0123456789"
        self.ended(hutch("secret", "rotate", "GITHUB_TOKEN", input=new.encode()), 0)
        eventually(lambda: self.bearer(box) == ("200", [f"Bearer {new}"]), "the new value")
        self.assertEqual(self.tap(box).pid, pid)
        self.assertEqual(self.placeholder(box, "GITHUB_TOKEN"), placeholder)
        self.ended(hutch("secret", "rm", "GITHUB_TOKEN"), 0)
        eventually(lambda: self.bearer(box)[1] is None, "no more requests with the old value")
        before = len(self.requests(API))
        self.assertRegex(self.status(box, f"https://{API}/removed"), r"[45]\d\d")
        self.assertEqual(len(self.requests(API)), before)
        self.assertIn("GITHUB_TOKEN", self.http_log(box, path="/removed", reason="no secret", verdict="denied")["detail"])

    def test_of_another_sandbox(self):
        """A placeholder is worth nothing in another sandbox, whether that one has secrets or not."""
        one, two = self.key("GITHUB_TOKEN"), self.key("OTHER_TOKEN")
        a, b = self.tapped({"GITHUB_TOKEN": GITHUB}), self.tapped({"OTHER_TOKEN": GITHUB})
        bare = self.tapped(domains=[API])
        again = self.tapped({"GITHUB_TOKEN": GITHUB})
        placeholder = self.placeholder(a, "GITHUB_TOKEN")
        self.assertNotEqual(self.placeholder(again, "GITHUB_TOKEN"), placeholder)
        for box, path in ((bare, "/none"), (b, "/b"), (a, "/a")):
            self.curl(box, f"-H 'Authorization: Bearer {placeholder}' https://{API}{path}")
        self.assertEqual(headers(self.one(API, "/none"), "authorization"), [f"Bearer {placeholder}"])
        self.assertEqual(headers(self.one(API, "/b"), "authorization"), [f"Bearer {two}"])
        self.assertEqual(headers(self.one(API, "/a"), "authorization"), [f"Bearer {one}"])

    def test_of_another_sandbox_with_several(self):
        """A sandbox with several secrets for a host sends none for a foreign placeholder."""
        key = self.key("GITHUB_TOKEN")
        a = self.tapped({"GITHUB_TOKEN": GITHUB})
        for name in ("ONE_TOKEN", "TWO_TOKEN"):
            self.key(name)
        b = self.tapped({"ONE_TOKEN": GITHUB, "TWO_TOKEN": GITHUB})
        placeholder = self.placeholder(a, "GITHUB_TOKEN")
        self.curl(b, f"-H 'Authorization: Bearer {placeholder}' https://{API}/b", code=None)
        self.assertEqual([credentials(r) for r in self.requests(API, "/b")], [{}])
        self.arrives(a, API, key)

    def test_the_tap_is_killed_in_mid_stream(self):
        """The stream is cut, and nothing goes past it; the next one works, with a new hutch-tap."""
        key, box = self.key("GITHUB_TOKEN"), self.tapped({"GITHUB_TOKEN": GITHUB})
        with start("exec", box, "--", "curl", "-sSN", f"https://{API}/half?killed", stdout=subprocess.PIPE) as p:
            self.assertEqual(p.stdout.read(10), b"first half")
            pid = self.tap(box).pid
            os.kill(pid, 9)
            ended(pid, "the killed hutch-tap")
            self.assertEqual(p.stdout.read(), b"")
        self.assertIn(p.returncode, (18, 56))
        WORLD("release", gate="killed")
        eventually(lambda: self.status(box, f"https://{API}/after") == "200", "a request after the death")
        self.assertNotEqual(self.tap(box).pid, pid)
        self.assertEqual({tuple(headers(r, "authorization")) for r in self.requests(API, "/after")}, {(f"Bearer {key}",)})

    def test_it_begins_with_the_first_stream_that_needs_it(self):
        """A sandbox without secrets and rules has none, and pays nothing."""
        self.key("GITHUB_TOKEN")
        plain, box = self.tapped(domains=[API]), self.tapped({"GITHUB_TOKEN": GITHUB})
        self.assertEqual(taps_of(box), [])
        for one in (plain, box):
            self.assertEqual(self.status(one, f"-k https://{API}/first"), "200")
        self.assertEqual(taps_of(plain), [])
        pid = self.tap(box).pid
        if os.geteuid() == 0:
            share = re.search(r"^Pss: +(\d+) kB$", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
            self.assertLess(int(share[1]), 6 * 1024)

    def test_it_ends_with_the_sandbox(self):
        self.key("GITHUB_TOKEN")
        box = self.tapped({"GITHUB_TOKEN": GITHUB})
        with start("exec", box, "--", "curl", "-sSN", f"https://{API}/half?never", stdout=subprocess.PIPE) as p:
            self.assertEqual(p.stdout.read(10), b"first half")
            pid = self.tap(box).pid
            self.ended(hutch("kill", box), 0)
        WORLD("release", gate="never")
        ended(pid, TAP)

    def test_killed_at_bad_moments(self):
        """kill -9 of warden, keeper and hutch-tap: before hutch-tap is started, in mid-stream, and while
        it does not run. None outlives the others, and the ledger is as before."""
        key = self.key("GITHUB_TOKEN")
        moments = ("in mid-stream",) if MACHINE else ("asked", "in mid-stream", "stopped")
        for moment, which in itertools.product(moments, ("warden", "keeper", "keeper and tap", "all")):
            with self.subTest(moment=moment, which=which):
                self.kill_at(moment, which)
        self.accounted = True  # a killed keeper does not record the ends of streams
        self.arrives(self.tapped({"GITHUB_TOKEN": GITHUB}), API, key)

    def kill_at(self, moment, which):
        box, gate = self.tapped({"GITHUB_TOKEN": GITHUB}), secrets.token_hex(4)
        parts = {"warden": warden_of(box)}
        [parts["keeper"]] = children_of(parts["warden"], "hutch-keeper")
        before = len(self.connections())
        if moment == "asked":
            os.kill(parts["warden"], signal.SIGSTOP)  # it does not start hutch-tap
        with start("exec", box, "--", "curl", "-sSN", f"https://{API}/half?{gate}", stdout=subprocess.PIPE) as p:
            if moment == "asked":
                eventually(lambda: len(self.connections()) > before, "the keeper's connection")
            else:
                self.assertEqual(p.stdout.read(10), b"first half")
                parts["tap"] = self.tap(box).pid
            if moment == "stopped":
                os.kill(parts["tap"], signal.SIGSTOP)
            for name in {"all": parts, "keeper and tap": ("keeper", "tap")}.get(which, (which,)):
                if name in parts:
                    with contextlib.suppress(ProcessLookupError):  # it has ended with the last one
                        os.kill(parts[name], signal.SIGKILL)
            if moment == "asked" and which.startswith("keeper"):
                os.kill(parts["warden"], signal.SIGCONT)
            for name, pid in parts.items():
                ended(pid, f"{name} of {box}")
            self.assertEqual(p.stdout.read(), b"")
        WORLD("release", gate=gate)
        self.ended(hutch("rm", "-f", box), 0)
        self.own.remove(box)
        self.nothing_is_left()
        self.ended(hutch("audit", "verify"), 0)

    def test_a_restarted_command_keeps_the_placeholder(self):
        """It is the sandbox's: each command has the same one."""
        self.key("GITHUB_TOKEN")
        box = self.tapped({"GITHUB_TOKEN": GITHUB})
        self.assertEqual(self.placeholder(box, "GITHUB_TOKEN"), self.placeholder(box, "GITHUB_TOKEN"))


class Trust(TapCase):
    """Certificates that one of the three does not accept, and what the log says about it."""

    def test_a_pinned_client(self):
        self.key("GITHUB_TOKEN")
        box = self.tapped({"GITHUB_TOKEN": GITHUB})
        self.curl(box, f"--cacert {AUTHORITY} --capath /nowhere https://{API}/pinned", code=60)
        line = self.logged(box, over=True, name=API)[0]
        self.assertRegex(json.dumps(line), "certificate|trust")
        self.assertEqual(self.requests(API), [])
        self.curl(box, f"https://{API}/control")
        self.one(API, "/control")

    def test_a_client_without_trust(self):
        """Its alert is in the log, with a remedy, because such a program often looks as if it
        hangs."""
        self.key("GITHUB_TOKEN")
        box = self.tapped({"GITHUB_TOKEN": GITHUB})
        program = f"""
import socket, ssl
s = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_socket(socket.create_connection(('{API}', 443)), server_hostname='{API}')
"""
        self.assertNotEqual(run(box, "python3", "-c", program).code, 0)
        line = self.logged(box, over=True, name=API)[0]
        self.assertRegex(json.dumps(line), r"docs/SECRETS.md|SSL_CERT_FILE|NODE_EXTRA_CA_CERTS")

    def test_a_wrong_clock(self):
        """A program whose clock is weeks off, as that of a VM just after its resume may be, accepts
        the certificate. The control is a clock that is years off."""
        self.key("GITHUB_TOKEN")
        box = self.tapped({"GITHUB_TOKEN": GITHUB})
        verify = f"openssl s_client -connect {API}:443 -servername {API} -verify_return_error -attime $(($(date +%s) + {{}})) </dev/null 2>&1"
        day = 24 * 3600
        said = {off: run(box, "sh", "-c", verify.format(off)).out for off in (-400 * day, -21 * day, -3600, 0, 3600, 200 * day, 400 * day)}
        self.assertEqual({off: "Verify return code: 0 (ok)" in out for off, out in said.items()},
                         {off: abs(off) <= 200 * day for off in said}, said)

    def test_servers_that_are_not_who_they_claim(self):
        """A value goes only to a server with a valid certificate. The sandbox's client cannot see
        that certificate, so hutch-tap must check it."""
        for host in ("selfsigned.hutch.test", "othername.hutch.test"):
            name = host.split(".")[0].upper()
            key = self.key(name)
            box = self.tapped({name: {"hosts": [host]}})
            r = self.curl(box, f"-k https://{host}/", code=None)
            self.assertNotIn("ok", r.out)
            line = self.logged(box, over=True, name=host)[0]
            self.assertIn("certificate", json.dumps(line))
            self.assertEqual(self.requests(host), [])
            self.nothing_of(key)

    def test_an_unknown_root(self):
        """Without the tests' authority in tap_roots, no server here is valid."""
        key = self.key("GITHUB_TOKEN")
        agent = self.agent_of({"GITHUB_TOKEN": GITHUB})
        box = self.create("--agent", agent)
        self.own.append(box)
        self.assertNotIn("ok", self.curl(box, f"https://{API}/", code=None).out)
        self.assertEqual(self.requests(API), [])
        self.nothing_of(key)


class Rules(TapCase):
    """egress.http, with and without secrets."""

    def test_methods_and_paths(self):
        box = self.tapped(http=[{"host": RULES, "methods": ["GET", "HEAD"], "paths": ["/repos/acme/**"]},
                                {"host": RULES, "methods": ["POST"], "paths": ["/repos/acme/*/issues"]}])
        for args, path, good in (("", "/repos/acme/x", True), ("", "/repos/acme", True), ("-I", "/repos/acme/x/y", True),
                                 ("-d x", "/repos/acme/x/issues", True), ("-d x", "/repos/acme/x/hooks", False), ("", "/repos/other/x", False),
                                 ("-X DELETE", "/repos/acme/x", False), ("", "/", False), ("", "/repos/acmes/x", False)):
            status = self.status(box, args, f"https://{RULES}{path}")
            self.assertEqual((status == "200", bool(self.requests(RULES, path))), (good, good), (args, path, status))
            if not good:
                self.assertEqual(status, "403")
                WORLD("origin")
        self.assertIn(" is denied: rule tapped-", self.http_log(box, method="POST", path="/repos/acme/x/hooks", verdict="denied")["detail"])
        self.http_log(box, method="POST", path="/repos/acme/x/issues", verdict="allowed", status=200)

    def test_deny_wins(self):
        box = self.tapped(http=[{"host": RULES, "paths": ["/**"]}, {"host": RULES, "paths": ["/admin/**"], "deny": True}])
        self.assertEqual(self.status(box, f"https://{RULES}/public"), "200")
        self.assertEqual(self.status(box, f"https://{RULES}/admin/x"), "403")
        self.assertEqual(self.requests(RULES, "/admin"), [])
        # The rule by file and line, without the host's directories.
        self.assertRegex(self.curl(box, f"https://{RULES}/admin/x").out, r"^hutch: GET /admin/x is denied by rule tapped-\d+\.yaml:\d+\n$")

    def test_a_host_with_only_deny_rules(self):
        box = self.tapped(http=[{"host": RULES, "methods": ["DELETE"], "deny": True}])
        self.assertEqual(self.status(box, f"https://{RULES}/x -d x"), "200")
        self.assertEqual(self.status(box, f"-X DELETE https://{RULES}/x"), "403")

    def test_max_body(self):
        """By the announced length, and by the bytes of a chunked one."""
        box = self.tapped(http=[{"host": RULES, "max_body": "1KiB"}])
        send = "head -c {} /dev/zero | exec curl -sS -o /dev/null -w '%{{http_code}}' {} https://" + RULES + "/sink"
        for how in ("--data-binary @-", "-T -", "-T - -H 'Expect:'"):
            self.assertEqual(self.curl(box, script=send.format(1024, how)).out, "200", how)
            self.assertEqual(self.curl(box, script=send.format(1025, how), code=None).out, "413", how)
        self.assertEqual({r["bytes"] for r in self.requests(RULES) if r["complete"]}, {1024})

    def test_rate(self):
        box = self.tapped(http=[{"host": RULES, "rate": 5}])
        r = self.curl(box, "-w '%{http_code}\\n' -o /dev/null -o /dev/null " + " ".join(f"-o /dev/null https://{RULES}/{i}" for i in range(10)))
        self.assertEqual(r.out.split().count("200"), 5, r.out)
        self.assertEqual(r.out.split().count("429"), 5, r.out)
        self.assertEqual(len(self.requests(RULES)), 5)

    def test_plain_http_too(self):
        box = self.tapped(http=[{"host": RULES, "paths": ["/good/**"]}], domains=[f"{RULES}:80"])
        self.assertEqual(self.status(box, f"http://{RULES}/good/x"), "200")
        self.assertEqual(self.status(box, f"http://{RULES}/bad"), "403")
        self.assertEqual(self.requests(RULES, "/bad"), [])

    def test_records(self):
        """Method, path, status, bytes and the secret's name, without the query and the value."""
        key = self.key("GITHUB_TOKEN")
        box = self.tapped({"GITHUB_TOKEN": GITHUB}, http=[{"host": API, "methods": ["POST"], "paths": ["/sink"]}])
        placeholder = self.placeholder(box, "GITHUB_TOKEN")
        self.curl(box, f"-d 12345 'https://{API}/sink?in-the-query'")
        self.assertEqual(self.status(box, f"https://{API}/refused"), "403")
        line = self.http_log(box, method="POST", path="/sink", status=200, secret="GITHUB_TOKEN", name=API)
        self.assertEqual((line["bytes_out"], line["bytes_in"]), (5, 2))
        self.http_log(box, method="GET", path="/refused", verdict="denied", status=403)
        text = self.ended(hutch("egress", "log", box), 0).stdout.decode()
        self.assertRegex(text, r"(?m)POST.*/sink.*200.*GITHUB_TOKEN|/sink.*POST")
        records = eventually(lambda: self.audit(box, "http"), "records of requests")
        self.assertEqual({(r["method"], r["path"]) for r in records}, {("POST", "/sink"), ("GET", "/refused")})
        everything = json.dumps([log(box), text, self.audit(box, "http")])
        for hidden in (key, placeholder, "in-the-query"):
            self.assertEqual(hits(everything.encode(), hidden), [])

    def test_explain(self):
        agent = self.agent_of(http=[{"host": RULES, "methods": ["GET"], "paths": ["/repos/acme/**"]}])
        r = hutch("config", "explain", agent, f"POST https://{RULES}/repos/acme/x/hooks")
        self.assertEqual(r.returncode, 1, r)
        self.assertRegex(r.stdout.decode(), r"denied +POST")
        self.assertIn("GET /repos/acme/**", r.stdout.decode())
        r = hutch("config", "explain", agent, f"GET {RULES}/repos/acme/x")
        self.assertEqual(r.returncode, 0, r)
        self.assertRegex(r.stdout.decode(), r"allowed +GET")


class Documented(TapCase):
    """The first section of docs/SECRETS.md, as written there."""

    def test_five_commands(self):
        [name, text], session = next((e[1:] for e in examples() if e[0] == "file")), next(e[1] for e in examples() if e[0] == "session")
        commands = [step.partition("\n") for step in re.split(r"^\$ ", session, flags=re.M)[1:]]
        self.assertEqual(len(commands), 5)
        with tempfile.TemporaryDirectory() as tmp:
            work = Path(tmp)
            (work / "hutch").symlink_to(os.environ["HUTCH"])
            (work / name).write_text(text)
            (work / "key").write_text("hk-of-the-documented-session-0123456789\n")
            self.addCleanup(hutch, "secret", "rm", "ANTHROPIC_API_KEY")
            env = {**os.environ, **self.config, "PATH": f"{work}:{os.environ['PATH']}"}
            printed = []
            for command, _, shown in commands:
                r = subprocess.run(["bash", "-c", command], cwd=work, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
                printed.append((command, r.stdout))
                if command.startswith("hutch create"):
                    self.own.append((work / "id").read_text().strip())
                    self.addCleanup(hutch, "rm", "-f", self.own[0])
                    self.addCleanup(self.account_once)
                self.assertIn(r.returncode, (0, 1), printed)
                self.assertTrue(not shown.strip() or matches(shown, r.stdout), (shown, printed))
        self.assertEqual(credentials(self.one(CLAUDE, "/v1/models")), {"x-api-key": "hk-of-the-documented-session-0123456789"})


def examples():
    return list(guide_examples(Path(__file__).resolve().parents[2] / "docs/SECRETS.md"))
