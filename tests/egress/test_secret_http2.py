# SPDX-License-Identifier: Apache-2.0
"""
Frames that no honest client sends, by HTTP/2 through hutch-tap: requests that two programs could
read differently, the placeholder in wrong places, and floods. The control of each is the same bytes
on a stream without hutch-tap: the server of http2.py is lax, so they do arrive there.
"""

import json
import os
from pathlib import Path

from boxes import WORLD
from frames import CONTINUATION, DATA, END_STREAM, HEADERS, PING, SETTINGS, WINDOW_UPDATE, data, frame, goaway, head, read, request, reset, session, settings
from frames import PREFACE
from sandbox import MACHINE
from tapped import EVIL, H2, H2_ALONE, H2_PLAIN, RAW, TapCase, credentials, headers, hits, probe

PUBLIC, ADMIN = "/public/", "/admin/"
RULES = [{"host": H2, "paths": ["/admin/**"], "deny": True}]
H2C = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
TAP_MEMORY_MAX = 64 << 20


class HostileCase(TapCase):
    def setUp(self):
        super().setUp()
        self.value = self.key("GITHUB_TOKEN")
        self.box_ = self.tapped({"GITHUB_TOKEN": {"hosts": [H2]}}, http=RULES, domains=[H2_PLAIN, H2_ALONE, EVIL, f"{H2}:80"])
        self.placeholder_ = self.placeholder(self.box_, "GITHUB_TOKEN")

    def tearDown(self):
        """The control of all: an ordinary request of the same sandbox has the value."""
        self.curl(self.box_, f"--http2 https://{H2}{PUBLIC}control")
        self.assertEqual(credentials(self.one(H2, f"{PUBLIC}control")), {"authorization": f"Bearer {self.value}"})
        self.nothing_of(self.value, H2_PLAIN, H2_ALONE, EVIL)
        super().tearDown()

    def send(self, host, *made, **more):
        """Sends each of these texts on a connection of its own."""
        more.setdefault("seconds", 120)
        return [read(text) for text in self.raw(self.box_, *(probe(host, *([m] if isinstance(m, str) else m), alpn=("h2",), **more) for m in made))]

    def is_clean(self, seen):
        """A request that reaches the server has one credential, and the value nowhere else."""
        self.assertEqual([v for k, v in seen["headers"] if k.lower() in ("authorization", "x-api-key")], [f"Bearer {self.value}"], seen)
        rest = {**seen, "conn": None, "headers": [f for f in seen["headers"] if f[0] != "authorization"]}
        self.assertEqual(hits(json.dumps(rest).encode(), self.value), [], seen)
        self.assertEqual((seen["host"], seen["scheme"]), (H2, "https"), seen)
        self.assertEqual([k for k, _ in seen["headers"] if k != k.lower() or not k], [], seen)
        self.assertEqual(seen["trailers"], [], seen)
        self.assertNotIn(seen["method"], ("CONNECT", ""), seen)
        self.assertFalse(seen["target"].startswith(ADMIN), seen)
        for length in headers(seen, "content-length") if seen["complete"] else ():
            self.assertEqual(int(length), seen["bytes"], seen)


class Requests(HostileCase):
    def attempts(self, host):
        """{name: frames}: requests that must not arrive as they are."""
        p, path = self.placeholder_, f"{PUBLIC}{{}}"
        bearer = ("authorization", f"Bearer {p}")

        def one(name, *more, end=True, **how):
            return head(1, request(host, path.format(name), *more, **how), end)

        def without(name, gone, *more):
            return head(1, [f for f in request(host, path.format(name), *more) if f[0] != gone])

        return {
            "upper": one("upper", ("Authorization", f"Bearer {p}")),
            "mixed": one("mixed", bearer, ("aUTHORIZATION", f"Bearer {p}")),
            "upper-key": one("upper-key", ("X-Api-Key", p)),
            "space": one("space", ("authorization ", f"Bearer {p}")),
            "no-name": one("no-name", ("", p)),
            "line-break": one("line-break", ("a", f"b\r\nauthorization: Bearer {p}")),
            "line-break-name": one("line-break-name", ("a: b\r\nauthorization", p)),
            "authority": head(1, request(EVIL, path.format("authority"), bearer)),
            "two-authorities": head(1, [(":authority", EVIL), *request(host, path.format("two-authorities"), bearer)]),
            "user": head(1, request(f"{host}@{EVIL}", path.format("user"), bearer)),
            "port": head(1, request(f"{host}:444", path.format("port"), bearer)),
            "host": one("host", bearer, ("host", EVIL)),
            "host-alone": head(1, [*(f for f in request(host, path.format("host-alone")) if f[0] != ":authority"), ("host", EVIL), bearer]),
            "no-host": without("no-host", ":authority", bearer),
            "other-tapped-host": head(1, request(H2_ALONE, path.format("other-tapped-host"), bearer)),
            "connect": head(1, [(":method", "CONNECT"), (":authority", f"{EVIL}:443"), bearer], end=False) + data(1, ""),
            "connect-path": one("connect-path", bearer, method="CONNECT"),
            "websocket": head(1, [(":protocol", "websocket"), *request(host, path.format("websocket"), bearer, method="CONNECT")], end=False)
                         + data(1, ""),
            "scheme": one("scheme", bearer, scheme="http"),
            "two-paths": head(1, [*request(host, path.format("two-paths")), (":path", f"{ADMIN}two-paths")]),
            "late-path": head(1, [*(f for f in request(host, "", bearer) if f[0] != ":path"), (":path", path.format("late-path"))]),
            "status": one("status", (":status", "200")),
            "absolute": head(1, request(host, f"https://{EVIL}{PUBLIC}absolute", bearer)),
            "path-with-line-break": head(1, request(host, f"{PUBLIC}x HTTP/1.1\r\nhost: {EVIL}\r\n\r\nGET {ADMIN}path-with-line-break", bearer)),
            "admin": head(1, request(host, f"{ADMIN}plain", bearer)),
            "admin-dots": head(1, request(host, f"{PUBLIC}..{ADMIN}dots", bearer)),
            "admin-escaped": head(1, request(host, "/%61dmin/escaped", bearer)),
            "admin-slashes": head(1, request(host, f"/{ADMIN}slashes", bearer)),
            "override": one("override", bearer, ("x-http-method-override", "DELETE"), ("x-original-url", f"{ADMIN}override")),
            "chunked": one("chunked", bearer, ("transfer-encoding", "chunked"), end=False, method="POST") + data(1, f"0\r\n\r\nGET {ADMIN}chunked HTTP/1.1\r\n\r\n"),
            "connection": one("connection", bearer, ("connection", "x-hop"), ("x-hop", p)),
            "upgrade": one("upgrade", bearer, ("connection", "upgrade"), ("upgrade", "h2c"), ("http2-settings", "AAMAAABkAAQAAP__")),
            "te": one("te", bearer, ("te", "gzip")),
            "length-more": one("length-more", bearer, ("content-length", "10"), end=False, method="POST") + data(1, "abcd"),
            "length-less": one("length-less", bearer, ("content-length", "2"), end=False, method="POST") + data(1, "abcd"),
            "length-none": one("length-none", bearer, ("content-length", "4"), method="POST"),
            "two-lengths": one("two-lengths", bearer, ("content-length", "4"), ("content-length", "0"), end=False, method="POST") + data(1, "abcd"),
            "trailer": one("trailer", end=False, method="POST") + data(1, "abcd", end=False) + head(1, [("authorization", f"Bearer {p}")]),
            "trailer-pseudo": one("trailer-pseudo", bearer, end=False, method="POST") + data(1, "abcd", end=False)
                              + head(1, [(":path", f"{ADMIN}trailer"), ("x-api-key", p)]),
        }

    def test_none_arrives_as_it_is(self):
        """After each, a second request on the same connection; it arrives, or the connection has
        ended. Neither reaches a path that a rule denies."""
        plain = {name: session(text) for name, text in self.attempts(H2_PLAIN).items()}
        controls = dict(zip(plain, self.send(H2_PLAIN, *plain.values(), seconds=8)))
        seen = self.requests(H2_PLAIN)
        self.assertEqual(len(seen), len(plain), controls)
        self.assertTrue([r for r in seen if ["Authorization", f"Bearer {self.placeholder_}"] in r["headers"]], "the control of upper case")
        self.assertTrue([r for r in seen if r["host"] == EVIL], "the control of another authority")
        self.assertTrue([r for r in seen if r["method"] == "CONNECT"], "the control of CONNECT")
        self.assertTrue([r for r in seen if r["target"].startswith(ADMIN)], "the control of the rule")
        self.assertTrue([r for r in seen if r["trailers"]], "the control of trailers")
        self.assertTrue([r for r in seen if headers(r, "content-length") == ["10"] and r["bytes"] == 4 and r["complete"]], "the control of lengths")
        WORLD("origin")
        made = {name: session(text, head(3, request(H2, f"{PUBLIC}second-{name}"))) for name, text in self.attempts(H2).items()}
        answers = dict(zip(made, self.send(H2, *made.values())))
        for seen in self.requests():
            self.assertEqual(seen["conn"]["to"], H2)
            self.is_clean(seen)
        arrived = {r["target"] for r in self.requests(H2) if "/second-" not in r["target"]}
        self.assertEqual(arrived, set(), answers)
        for name, answer in answers.items():
            self.assertNotIn(answer.status(), ("200", "101"), (name, answer))
            self.assertTrue(answer.status() or answer.streams.get(1, {}).get("reset") is not None or answer.goaway is not None, (name, answer))
            second = [r for r in self.requests(H2) if r["target"] == f"{PUBLIC}second-{name}"]
            self.assertEqual(answer.status(3) == "200", [r["complete"] for r in second] == [True], (name, answer))
        self.assertGreater(len(self.requests(H2, f"{PUBLIC}second-")), 20, answers)

    def test_the_placeholder_elsewhere(self):
        """In other fields, in the path and in the body it stays as it is."""
        p = self.placeholder_
        fields = [("x-other", p), ("cookie", f"a={p}"), ("user-agent", p), ("referer", p), ("authorization2", f"Bearer {p}"), ("x-forwarded-authorization", p)]
        made = session(head(1, request(H2, f"{PUBLIC}{p}?token={p}", *fields, method="POST"), end=False), data(1, f"token={p}"))
        [answer] = self.send(H2, made)
        self.assertEqual(answer.status(), "200")
        [seen] = self.requests(H2)
        self.is_clean(seen)
        self.assertEqual((seen["body"], seen["target"]), (f"token={p}", f"{PUBLIC}{p}?token={p}"))
        self.assertEqual({k: v for k, v in seen["headers"] if p in v}, dict(fields))

    def test_several_credentials(self):
        """However many a request has, one reaches the server. Without hutch-tap, all do."""
        p = self.placeholder_
        sets = [[("authorization", f"Bearer {p}")] * 2, [("authorization", f"Bearer {p}"), ("authorization", "Basic x")],
                [("authorization", f"Bearer {p}{p}")], [("authorization", f"Bearer {p}, Bearer {p}")], [("authorization", p), ("x-api-key", p)],
                [("authorization", ""), ("authorization", f"Bearer {p}")], [("proxy-authorization", f"Bearer {p}"), ("x-api-key", p)]]
        for host in (H2_PLAIN, H2):
            made = session(*(head(2 * i + 1, request(host, f"{PUBLIC}several-{i}", *fields)) for i, fields in enumerate(sets)))
            [answer] = self.send(host, made)
            for i, fields in enumerate(sets):
                self.assertEqual(answer.status(2 * i + 1), "200", answer)
                seen = self.one(host, f"{PUBLIC}several-{i}")
                if host == H2:
                    self.is_clean(seen)
                    self.assertEqual(credentials(seen), {"authorization": f"Bearer {self.value}"})
                else:
                    self.assertEqual([tuple(f) for f in seen["headers"]], fields)

    def test_another_sandbox(self):
        """The placeholder of another sandbox, which has another value for the same host, is no
        credential here."""
        other = f"hk/{os.urandom(20).hex()}"
        self.store("GITHUB_TOKEN", other)
        second = self.tapped({"GITHUB_TOKEN": {"hosts": [H2]}})
        theirs = self.placeholder(second, "GITHUB_TOKEN")
        self.store("GITHUB_TOKEN", self.value)
        self.assertNotEqual(theirs, self.placeholder_)
        made = session(head(1, request(H2, f"{PUBLIC}theirs", ("authorization", f"Bearer {theirs}"), ("x-api-key", theirs))))
        self.send(H2, made)
        for seen in self.requests(H2, f"{PUBLIC}theirs"):
            self.is_clean(seen)
            self.assertNotIn(theirs, json.dumps(seen))


class Connections(HostileCase):
    def test_the_name_of_the_connection(self):
        """SNI, :authority and the host of the stream must be the same."""
        p = ("authorization", f"Bearer {self.placeholder_}")
        sent = [(H2, EVIL, H2), (H2, H2_PLAIN, H2), (H2, H2, EVIL), (H2, H2, H2_PLAIN), (H2_PLAIN, H2, H2), (H2_ALONE, H2, H2)]
        for i, (host, sni, authority) in enumerate(sent):
            self.send(host, session(head(1, request(authority, f"{PUBLIC}name-{i}", p))), sni=sni, verify=False)
        self.assertEqual(self.requests(path=f"{PUBLIC}name-"), [])
        # The name of the stream decides, not the one in the request: this one is not read, and has no value.
        [answer] = self.send(H2_PLAIN, session(head(1, request(H2, f"{PUBLIC}plain", p))))
        self.assertEqual(answer.status(), "200")
        self.assertEqual(credentials(self.one(H2_PLAIN, f"{PUBLIC}plain")), {"authorization": f"Bearer {self.placeholder_}"})
        self.nothing_of(self.value)

    def test_without_tls(self):
        """HTTP/2 in clear, at once or by an upgrade, is not spoken. The control is a box without Hutch,
        because a keeper does not let HTTP without Host pass, either."""
        def attempts(host):
            known = session(head(1, request(host, f"{PUBLIC}known", scheme="http")), head(3, request(host, f"{ADMIN}known", scheme="http")))
            upgrade = f"GET /h2c HTTP/1.1\r\nHost: {host}\r\n{H2C}\r\n" + session(head(3, request(host, f"{ADMIN}upgraded", scheme="http")))
            return [probe(host, d, port=80, sni="", seconds=8) for d in (known, upgrade)]

        r = WORLD.box("python3", "-c", RAW, data=json.dumps(attempts(H2_PLAIN)))
        self.assertEqual(r.code, 0, r)
        self.assertEqual({x["target"] for x in self.requests(H2_PLAIN)}, {f"{PUBLIC}known", f"{ADMIN}known", "/h2c", f"{ADMIN}upgraded"}, r)
        answers = self.raw(self.box_, *attempts(H2))
        self.assertLessEqual({x["target"] for x in self.requests(H2)}, {"/h2c"}, answers)
        self.assertNotIn(" 101 ", answers[1].partition("\r\n")[0])
        for seen in self.requests(H2, "/h2c"):
            self.assertEqual(headers(seen, "upgrade") + headers(seen, "http2-settings") + headers(seen, "authorization"), [])
        self.nothing_of(self.value)

    def test_http_2_where_http_1_was_chosen(self):
        [answer] = self.raw(self.box_, probe(H2, session(head(1, request(H2, f"{PUBLIC}chosen"))), alpn=("http/1.1",)))
        self.assertNotIn(" 200 ", answer.partition("\r\n")[0])
        self.assertEqual(self.requests(H2, f"{PUBLIC}chosen"), [])

    def test_broken_frames(self):
        """Each ends its connection. The control is the same connection without that frame."""
        after = head(1, request(H2, f"{PUBLIC}broken"))
        broken = [frame(DATA, END_STREAM, 5, b"x"), reset(7), frame(WINDOW_UPDATE, 0, 0, bytes(4)), frame(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff") * 2,
                  frame(SETTINGS, 0, 0, b"x"), settings((2, 7)), settings((4, 1 << 31)), frame(PING, 0, 0, b"short"), frame(5, 4, 1, bytes(4)),
                  frame(DATA, 0, 0, b"x"), head(2, request(H2, f"{PUBLIC}broken")), frame(CONTINUATION, 4, 1, b""),
                  frame(HEADERS, 5, 1, b"\xff\xff\xff\xff\xff\xff\xff"), frame(HEADERS, 5, 1, b"\x80"), frame(HEADERS, 13, 1, b"\xff"),
                  frame(HEADERS, 1, 1, b"") + frame(PING, 0, 0, bytes(8)), frame(99, 0, 0, b"x" * 20000)]
        answers = self.send(H2, *(session(b, after) for b in broken))
        for i, answer in enumerate(answers):
            self.assertNotIn(answer.goaway, (None, 0), (i, answer))
        self.assertEqual(self.requests(H2, f"{PUBLIC}broken"), [])
        self.send(H2, session(after))
        self.is_clean(self.one(H2, f"{PUBLIC}broken"))

    def test_a_head_beyond_the_limits(self):
        """It is refused by its number; the next request of the connection is served. The control is
        the same head without hutch-tap."""
        large = [(f"x-{i}", "y" * 4000) for i in range(25)], [(f"x-{i}", "y") for i in range(200)]
        for host in (H2_PLAIN, H2):
            for i, fields in enumerate(large):
                [answer] = self.send(host, session(head(1, request(host, f"{PUBLIC}large-{i}", *fields), split=16000),
                                                   head(3, request(host, f"{PUBLIC}after-{i}"))))
                self.assertEqual(answer.status(), "200" if host == H2_PLAIN else "431", answer)
                self.assertEqual(answer.status(3), "200", answer)
                self.assertEqual(len(self.requests(host, f"{PUBLIC}large-{i}")), 1 if host == H2_PLAIN else 0)
                self.one(host, f"{PUBLIC}after-{i}")


class Floods(HostileCase):
    """Each ends its own connection only, costs hutch-tap little memory, and nothing of it reaches the
    server."""

    MANY = 100_000 if MACHINE else 1_000_000

    def setUp(self):
        super().setUp()
        self.curl(self.box_, f"--http2 https://{H2}{PUBLIC}first")
        self.tap_ = self.tap(self.box_).pid

    def tearDown(self):
        self.assertEqual(self.tap(self.box_).pid, self.tap_, "the same hutch-tap")
        for line in Path(f"/proc/{self.tap_}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                self.assertLess(int(line.split()[1]) << 10, TAP_MEMORY_MAX)
        super().tearDown()

    def frames_at(self, host, kind):
        """The most frames of this kind that a connection of the server has received."""
        return max(c.get("frames", {}).get(kind, 0) for c in self.connections(to=host))

    def flood(self, host, name, *parts):
        """After it comes a request, which arrives if the connection still lives."""
        last = head(9999, request(host, f"{PUBLIC}last-{name}")) + goaway()
        return self.send(host, [PREFACE + settings(), *parts, last])[0]

    def ended_by_it(self, name):
        self.assertEqual(self.requests(H2, f"{PUBLIC}last-{name}"), [])

    def test_resets(self):
        """CVE-2023-44487. The server sees no more requests than hutch-tap lets a client abandon."""
        n = 2000
        for host in (H2_PLAIN, H2):
            made = "".join(head(2 * i + 1, request(host, f"{PUBLIC}reset")) + reset(2 * i + 1) for i in range(n))
            answer = self.flood(host, "reset", made)
        self.assertGreaterEqual(self.frames_at(H2_PLAIN, "HEADERS"), n)
        self.assertLess(len(self.requests(H2, f"{PUBLIC}reset")), 1000)
        self.assertNotIn(answer.goaway, (None, 0), answer)
        self.ended_by_it("reset")

    def test_continuations(self):
        n = 1000
        for host in (H2_PLAIN, H2):
            self.flood(host, "continuation", frame(HEADERS, END_STREAM, 1, b""), [frame(CONTINUATION, 0, 1, b""), n])
        self.assertGreaterEqual(self.frames_at(H2_PLAIN, "CONTINUATION"), n)
        self.assertEqual(self.frames_at(H2, "CONTINUATION"), 0)
        self.ended_by_it("continuation")

    def test_pings_and_settings(self):
        """The client does not read the answers."""
        for name, kind, text in (("ping", "PING", frame(PING, 0, 0, b"abcdefgh")), ("settings", "SETTINGS", settings())):
            self.flood(H2_PLAIN, name, [text, 10_000])
            self.flood(H2, name, [text, self.MANY])
            self.assertGreaterEqual(self.frames_at(H2_PLAIN, kind), 10_000)
            self.assertLess(self.frames_at(H2, kind), 10)
            self.ended_by_it(name)

    def test_empty_data(self):
        """Frames of no bytes cost the sender nothing, and a window none."""
        n = 20_000
        for host in (H2_PLAIN, H2):
            self.flood(host, "empty", head(1, request(host, f"{PUBLIC}empty", method="POST"), end=False), [data(1, "", end=False), n], data(1, "x"))
        self.assertGreaterEqual(self.frames_at(H2_PLAIN, "DATA"), n)
        self.assertLess(self.frames_at(H2, "DATA"), 100)

    def test_streams_without_an_end(self):
        """At most 128 requests at once reach the server, the rest is refused."""
        n = 400
        made = "".join(head(2 * i + 1, request(H2, f"{PUBLIC}open", method="POST"), end=False) for i in range(n))
        [answer] = self.send(H2, [PREFACE + settings(), made], seconds=8)
        refused = [s for s in answer.streams.values() if s["reset"] == 7]
        self.assertGreaterEqual(len(refused), n - 128)
        self.assertLessEqual(len(self.requests(H2, f"{PUBLIC}open")), 128)
