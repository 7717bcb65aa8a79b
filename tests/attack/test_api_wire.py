# SPDX-License-Identifier: Apache-2.0
"""
Bytes that are not HTTP and ambiguous HTTP: hutchd rejects them and reads nothing after them as a
request. Also bodies that are small on the wire and large in memory, and invalid numbers and names.
"""

import gzip
import json
import os
import tempfile
import zlib
from pathlib import Path

from api import DOMAIN, JSON, ApiCase, request
from sandbox import PATIENCE, RUN
from test_api_roles import ARGS, routes

MEMORY = 24 << 10  # KiB of growth; a JSON body of at most 4 MiB takes a few times that
SECOND = b"GET /sandboxes HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-Key: %(key)s\r\n\r\n"
BODY = b'{"timeout":600}'
LINE = b"POST /sandboxes/%(id)s/timeout HTTP/1.1\r\n"
USUAL = b"Host: 127.0.0.1\r\nX-API-Key: %(key)s\r\n"

# SECOND follows each of these. A reader that takes it for a request answers it with 200.
FRAMING = {
    "both lengths": b"Content-Length: 15\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "both, the other way round": b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 15\r\nContent-Length: 16\r\n\r\n" + BODY,
    "the same length twice": b"Content-Length: 15\r\nContent-Length: 15\r\n\r\n" + BODY,
    "a list of lengths": b"Content-Length: 15, 15\r\n\r\n" + BODY,
    "a length with a sign": b"Content-Length: +15\r\n\r\n" + BODY,
    "a negative length": b"Content-Length: -15\r\n\r\n" + BODY,
    "a length in hex": b"Content-Length: 0xf\r\n\r\n" + BODY,
    "a length with a point": b"Content-Length: 15.0\r\n\r\n" + BODY,
    "a length with an exponent": b"Content-Length: 15e0\r\n\r\n" + BODY,
    "a length in two words": b"Content-Length: 1 5\r\n\r\n" + BODY,
    "no length": b"Content-Length:\r\n\r\n" + BODY,
    "a length of 2^64+15": b"Content-Length: 18446744073709551631\r\n\r\n" + BODY,
    "a length of 2^63": b"Content-Length: 9223372036854775808\r\n\r\n" + BODY,
    "a length in other digits": "Content-Length: \u0661\u0665\r\n\r\n".encode() + BODY,
    "xchunked": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked in quotes": b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "identity": b"Transfer-Encoding: identity\r\n\r\n",
    "chunked twice": b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked in two fields": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and identity": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "gzip and chunked": b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked and a comma": b"Transfer-Encoding: chunked,\r\n\r\n0\r\n\r\n",
    "chunked behind a vertical tab": b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "chunked and NUL": b"Transfer-Encoding: chunked\0\r\n\r\n0\r\n\r\n",
    "chunked, folded": b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "a blank before the colon": b"Content-Length : 15\r\n\r\n" + BODY,
    "a blank before the coding's colon": b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a tab before the colon": b"Content-Length\t: 15\r\n\r\n" + BODY,
    "a fold": b"X-A: b\r\n Content-Length: 15\r\n\r\n",
    "a fold by a tab": b"X-A: b\r\n\tContent-Length: 15\r\n\r\n",
    "a blank in front of the first field's name": b"Content-Length: 15\r\n X-B: c\r\n\r\n" + BODY,
    "a line that ends in LF": b"X-A: b\nContent-Length: 15\r\n\r\n" + BODY,
    "a head that ends in LF LF": b"Content-Length: 15\n\n" + BODY,
    "CR alone": b"X-A: b\rContent-Length: 15\r\n\r\n" + BODY,
    "CR CR LF": b"X-A: b\r\r\nContent-Length: 15\r\n\r\n" + BODY,
    "NUL in a name": b"X-\0A: b\r\n\r\n",
    "NUL in a value": b"X-A: b\0c\r\n\r\n",
    "a blank in a name": b"X A: b\r\n\r\n",
    "a name in another alphabet": "Content-\u0141ength: 15\r\n\r\n".encode(),
    "no name": b": b\r\n\r\n",
    "no colon": b"X-A\r\n\r\n",
    "DEL": b"X-A: b\x7f\r\n\r\n",
    "a second Host": b"Host: 127.0.0.1\r\n\r\n",
    "a second key": b"X-API-Key: e2b_0\r\n\r\n",
}
CHUNKS = {
    "no digits": b"\r\n" + BODY + b"\r\n0\r\n\r\n",
    "0x": b"0xf\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a sign": b"+f\r\n" + BODY + b"\r\n0\r\n\r\n",
    "minus": b"-1\r\n" + BODY + b"\r\n0\r\n\r\n",
    "an extension": b"f;a=b\r\n" + BODY + b"\r\n0\r\n\r\n",
    "an extension of 100 kB": b"f;" + b"a" * 100_000 + b"\r\n" + BODY + b"\r\n0\r\n\r\n",
    "an extension with LF": b"f;\n" + BODY + b"\r\n0\r\n\r\n",
    "a blank behind": b"f \r\n" + BODY + b"\r\n0\r\n\r\n",
    "a blank in front": b" f\r\n" + BODY + b"\r\n0\r\n\r\n",
    "LF": b"f\n" + BODY + b"\n0\n\n",
    "no CR LF behind": b"f\r\n" + BODY + b"0\r\n\r\n",
    "two bytes that are no CR LF": b"f\r\n" + BODY + b"xx0\r\n\r\n",
    "2^64 and f": b"1000000000000000f\r\n" + BODY + b"\r\n0\r\n\r\n",
    "2^64 - 1": b"ffffffffffffffff\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a thousand zeros": b"0" * 1000 + b"f\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a trailer": b"f\r\n" + BODY + b"\r\n0\r\nX-API-Key: e2b_0\r\n\r\n",
    "NUL": b"f\0\r\n" + BODY + b"\r\n0\r\n\r\n",
}
LINES = {
    "absolute form": b"GET http://127.0.0.1/sandboxes HTTP/1.1\r\n",
    "authority form": b"CONNECT 127.0.0.1:22 HTTP/1.1\r\n",
    "asterisk": b"OPTIONS * HTTP/1.1\r\n",
    "no path": b"GET  HTTP/1.1\r\n",
    "two blanks": b"GET  /sandboxes HTTP/1.1\r\n",
    "a tab": b"GET\t/sandboxes HTTP/1.1\r\n",
    "a blank in the path": b"GET /sand boxes HTTP/1.1\r\n",
    "a blank in front": b" GET /sandboxes HTTP/1.1\r\n",
    "a blank behind": b"GET /sandboxes HTTP/1.1 \r\n",
    "a line in front": b"\r\nGET /sandboxes HTTP/1.1\r\n",
    "no version": b"GET /sandboxes\r\n",
    "HTTP/0.9": b"GET /sandboxes HTTP/0.9\r\n",
    "HTTP/1.2": b"GET /sandboxes HTTP/1.2\r\n",
    "HTTP/1.10": b"GET /sandboxes HTTP/1.10\r\n",
    "http/1.1": b"GET /sandboxes http/1.1\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100) + b"\r\n",
    "NUL in the path": b"GET /sandboxes\0 HTTP/1.1\r\n",
    "a method with a bracket": b"GE(T /sandboxes HTTP/1.1\r\n",
    "a method of 100 letters": b"G" * 100 + b" /sandboxes HTTP/1.1\r\n",
    "a byte over 127": b"GET /sandboxes\xff HTTP/1.1\r\n",
    "a fragment": b"GET /sandboxes#x HTTP/1.1\r\n",
    "a path of 20 kB": b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n",
}
PATHS = {
    "/../sandboxes": 400, "/./sandboxes": 400, "/%2e%2e/sandboxes": 400, "/%2E./sandboxes": 400, "/.%2e/sandboxes": 400,
    "/sandboxes/%2e%2e%2fhealth": 400, "/sandboxes/..%2f..%2fetc": 400, "/sandboxes/%252e%252e": 400, "/sandboxes/%00": 400,
    "/sandboxes/a%00b": 400, "/sandboxes/%0d%0aX:%20y": 400, "/sandboxes/%c0%ae%c0%ae": 400, "/sandboxes/%ed%a0%80": 400,
    "/sandboxes/%": 400, "/sandboxes/%4": 400, "/sandboxes/%zz": 400, "/sandboxes/%ff": 400,
    "/sandboxes/{..}": 404, "/sandboxes/{}": 404, "/sandboxes/a%2fb": 404, "/sandboxes/..%5c..": 404, "/sandboxes/.hidden": 404,
    "/sandboxes/-rf": 404, "/sandboxes/--help": 404, "/sandboxes/" + "a" * 10_000: 404, "/sandboxes/" + "a" * 129: 404,
    "/sandboxes/%e2%80%ae": 404, "/sandboxes/%F0%9F%92%A9": 404, "/sandboxes/A%20B": 404, "/sandboxes/": 404, "/sandboxes//": 404,
    "/hutch/v1/images/..%2fbase": 400, "/hutch/v1/images/--all": 404, "/hutch/v1/images/%2fetc%2fpasswd": 404,
    "/hutch/v1/policies/..%2f..%2fkeys": 400, "/hutch/v1/policies/%2fetc%2fpasswd": 404, "/hutch/v1/policies/--help": 404,
    "/hutch/v1/audit?sandbox=--help": 400, "/hutch/v1/audit?since=-1": 400, "/hutch/v1/audit?sandbox=..%2f": 400,
    "/templates/..%2fx/tags": 400, "/templates/%2e%2e/tags": 400, "/templates/aliases/..%2fbase": 400, "/templates/aliases/-base": 404,
    "/templates/x/files/..%2f..%2fkeys.json": 400, "/templates/x/builds/..%2f/status": 400,
}
# Replaces every id of every route: paths out of a directory, encoded once, twice or not at all, and
# invalid ids.
IDS = ("..", ".", "%2e%2e", "%2E%2e%2fkeys.json", "..%2f..%2fkeys.json", "%2fetc%2fpasswd", "%252e%252e%252fkeys.json", "%c0%ae%c0%ae%c0%afkeys.json",
       "%e0%80%ae", "a%2f..%2fb", "..%5c..", "%00", "keys%00.json", "keys.json", "-rf", "--help", ".hidden", "%e2%80%ae", "%ff", "a" * 300, "%0a")


class TestWire(ApiCase):
    def filled(self, data):
        return data.replace(b"%(id)s", self.box.id.encode()).replace(b"%(key)s", self.daemon.keys["user"].encode())

    def refused(self, data, statuses=(400,), behind=SECOND):
        """Expects one answer, a refusal, and then the end of the connection."""
        answers = self.daemon.raw(self.filled(data + behind))
        self.assertEqual(len(answers.list), 1, answers.list)
        status, fields, _ = answers.list[0]
        self.assertIn(status, statuses, answers.list)
        self.assertEqual(answers.rest, b"")
        self.assertEqual(fields.get("connection"), "close")

    def test_control_what_is_well_formed_passes_and_so_does_what_is_behind_it(self):
        for name, framed in {
            "a length": b"Content-Length: 15\r\n\r\n" + BODY,
            "chunks": b"Transfer-Encoding: chunked\r\n\r\nf\r\n" + BODY + b"\r\n0\r\n\r\n",
            "small chunks": b"Transfer-Encoding: Chunked\r\n\r\n1\r\n{\r\n00E\r\n" + BODY[1:] + b"\r\n0\r\n\r\n",
            "blanks": b"Content-Length:   15\t\r\n\r\n" + BODY,
        }.items():
            with self.subTest(name):
                last = SECOND.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
                answers = self.daemon.raw(self.filled(LINE + USUAL + framed + SECOND + last))
                self.assertEqual((answers.statuses, answers.rest), ([204, 200, 200], b""))

    def test_lengths_and_fields(self):
        for name, framed in FRAMING.items():
            with self.subTest(name):
                self.refused(LINE + USUAL + framed)
        self.is_well()

    def test_chunks(self):
        for name, chunks in CHUNKS.items():
            with self.subTest(name):
                self.refused(LINE + USUAL + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
        self.is_well()

    def test_request_lines(self):
        for name, line in LINES.items():
            with self.subTest(name):
                self.refused(line + USUAL + b"\r\n", (400, 414, 505))
        self.is_well()

    def test_hosts_that_are_none(self):
        for host in ("", "a b", "127.0.0.1, evil.example", "127.0.0.1/x", "x@127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:x",
                     "[::1", "[::1]x", "a..b", ".a", "a.", "\u0131", "%31%32%37.0.0.1", "a\tb"):
            with self.subTest(host):
                self.refused(b"GET /sandboxes HTTP/1.1\r\nHost: " + host.encode() + b"\r\nX-API-Key: %(key)s\r\n\r\n")
        self.refused(b"GET /sandboxes HTTP/1.1\r\nX-API-Key: %(key)s\r\n\r\n")

    def test_large_heads(self):
        self.daemon.clear_peak()
        before = self.daemon.peak()
        for name, (fields, statuses) in {
            "a field of 64 kB": (b"X-A: " + b"a" * 65536 + b"\r\n", (431,)),
            "1000 fields": (b"".join(b"X-%d: a\r\n" % i for i in range(1000)), (431,)),
            "100,000 fields": (b"".join(b"X-%d: a\r\n" % i for i in range(100_000)), (431,)),
            "1000 fields of one name": (b"Accept: a\r\n" * 1000, (431,)),
            "32 MB without an end": (b"X-A: " + b"a" * (32 << 20), (431,)),
        }.items():
            with self.subTest(name):
                self.refused(LINE + USUAL + fields + b"\r\n", statuses)
        self.assertLess(self.daemon.peak() - before, MEMORY)
        answers = self.daemon.raw(self.filled(b"GET /sandboxes HTTP/1.1\r\nConnection: close\r\n" + USUAL +
                                              b"".join(b"X-%d: a\r\n" % i for i in range(90)) + b"X-A: " + b"a" * 20_000 + b"\r\n\r\n"))
        self.assertEqual(answers.statuses, [200], "control: large, but not too large")

    def test_a_thousand_requests_at_once(self):
        with self.daemon.connect() as s:
            s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)
            self.is_well()
        last = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        answers = self.daemon.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 99 + last)
        self.assertEqual(answers.statuses, [200] * 100, "control: they are answered, in order")

    # ---- names ----
    def test_paths(self):
        for path, expected in PATHS.items():
            with self.subTest(path[:80]):
                answers = self.daemon.raw(request("GET", path, ("X-API-Key", self.daemon.keys["admin"]), ("Connection", "close")))
                self.assertEqual((answers.statuses, answers.rest), ([expected], b""), answers.list)
        self.assertEqual(self.daemon.ask("GET", f"/sandboxes/%{ord(self.box.id[0]):x}{self.box.id[1:]}", key="user")[0], 200,
                         "control: decoded, once")

    def state(self):
        """Returns the names of all files that hutchd keeps."""
        return {str(p) for top in (RUN / "sandboxes", Path(os.environ["HUTCH_STATE_DIR"])) for p in top.rglob("*") if "audit" not in p.parts}

    def test_every_id_of_every_route(self):
        """Row 136, as an administrator, who has access to everything. No answer contains a file,
        and no file appears or disappears."""
        canary = b"hash"  # a word of keys.json
        self.assertIn(canary, (Path(os.environ["HUTCH_STATE_DIR"]) / "keys.json").read_bytes())
        # The first use of this key's template directory creates it, with its lock.
        self.assertEqual(self.daemon.ask("DELETE", "/templates/none", key="admin")[0], 404)
        before, tried = self.state(), 0
        for (plane, method, path), _ in routes():
            right = next((a for start, a in ARGS.items() if path.startswith(start + "/")), (self.box.id, "x"))
            for place in range(path.count("{}")):
                for wrong in IDS:
                    target = path
                    for at in range(path.count("{}")):
                        target = target.replace("{}", wrong if at == place else right[at], 1)
                    fields = [("X-API-Key", self.daemon.keys["admin"]), ("Connection", "close"), ("Content-Type", JSON)]
                    answers = self.daemon.raw(request(method, target, *fields, body=b"{}" if method in ("POST", "PUT") else b""))
                    with self.subTest(f"{method} {target}"[:100]):
                        [(status, _, text)] = answers.list
                        # 401: an upload needs its own ticket, which is checked first.
                        self.assertIn(status, (400, 404) if method != "PUT" or "/files/" not in path else (400, 401, 404), text)
                        self.assertNotIn(canary, text)
                    tried += 1
        self.assertGreater(tried, 400)
        self.assertEqual(self.state(), before)
        self.is_well()

    def test_files_by_path(self):
        """Row 136: every path is resolved inside the sandbox. Control: the same request reads a
        file there."""
        with tempfile.TemporaryDirectory() as outside:
            canary = Path(outside) / "canary"
            canary.write_text("of the host")
            os.chmod(outside, 0o755)
            self.inside("mkdir -p /tmp/d; echo inside > /tmp/d/f")
            up = "../" * 40
            for path, expected in ((str(canary), 404), (up + str(canary)[1:], 404), (f"/tmp/d/{up}{str(canary)[1:]}", 404), (f"/proc/self/root{canary}", 404),
                                   ("/tmp/d/../d/f", 200), (f"{up}tmp/d/f", 200), ("/tmp/d/%2e%2e/d/f", 404), ("/tmp/d/f\0", 400), ("/tmp/d/f/../f", 400)):
                for text in {path, path.replace("/", "%2f").replace(".", "%2e")} if "%" not in path else {path.replace("%", "%25")}:
                    target = f"/files?username=user&path={text}".replace("\0", "%00")
                    status, got = self.daemon.ask("GET", target, X_Access_Token=self.box.token)
                    with self.subTest(target[:90]):
                        self.assertEqual((status, b"of the host" in got), (expected, False), got)
                        self.assertEqual(got == b"inside\n", status == 200)
            self.assertEqual(canary.read_text(), "of the host")
        for selector in ({"pid": "../1"}, {"tag": "../../x"}, {"pid": -1}, {"pid": 2 ** 53}, {"tag": "\0"}, {"tag": "x" * 100_000}, {"pid": "%31"}):
            status, got = self.daemon.ask("POST", "/process.Process/SendSignal", json.dumps({"process": selector, "signal": "SIGNAL_SIGKILL"}),
                                          Content_Type=JSON, X_Access_Token=self.box.token)
            self.assertIn(status, (400, 404), (selector, got))
        self.is_well()

    def test_templates_that_are_no_names(self):
        for name in ("../base", "/etc/passwd", "base/../base", ".", "..", "-rf", "--agent", "base\0", "base\n", "b" * 300, "b" * 100_000,
                     "\u202ebase", "{..}", "base@sha256:x", "", "base:../x", "base/", "%2e%2e"):
            with self.subTest(name[:40]):
                status, text = self.daemon.ask("POST", "/sandboxes", {"templateID": name}, "user")
                self.assertIn(status, (400, 404), text)
                self.assertNotIn(b"\0", text)
        for wrong in (None, 1, [], {}, True, 1.5):
            self.assertEqual(self.daemon.ask("POST", "/sandboxes", {"templateID": wrong}, "user")[0], 400, wrong)

    def test_sandboxes_of_others_are_as_if_they_were_not(self):
        """The answer equals that for a missing sandbox, except for the name; also in lists and
        metrics."""
        absent = self.others.id[:-1] + ("a" if self.others.id[-1] != "a" else "b")
        for method, what, body in (("GET", "", None), ("DELETE", "", None), ("POST", "/connect", {"timeout": 60}),
                                   ("POST", "/timeout", {"timeout": 0}), ("POST", "/pause", {}), ("GET", "/logs", None),
                                   ("GET", "/metrics", None), ("PUT", "/network", {}), ("POST", "/refreshes", {}), ("POST", "/resume", {})):
            with self.subTest(method + what):
                got = self.daemon.ask(method, f"/sandboxes/{self.others.id}{what}", body, "user")
                none = self.daemon.ask(method, f"/sandboxes/{absent}{what}", body, "user")
                self.assertEqual((got[0], got[1].replace(self.others.id.encode(), b"")), (none[0], none[1].replace(absent.encode(), b"")))
                self.assertEqual(got[0], 404)
        for path in ("/sandboxes", "/v2/sandboxes", f"/sandboxes/metrics?sandbox_ids={self.others.id}",
                     f"/sandboxes/metrics?sandbox_ids={self.box.id},{self.others.id}"):
            self.assertNotIn(self.others.id.encode(), self.daemon.ask("GET", path, key="user")[1], path)
        self.assertIn(self.others.id.encode(), self.daemon.ask("GET", "/sandboxes", key="other")[1], "control: its owner's")
        self.assertEqual(self.daemon.ask("GET", f"/sandboxes/{self.others.id}", key="other")[0], 200)

    # ---- numbers ----
    def test_numbers_that_are_none(self):
        place = f"/sandboxes/{self.box.id}/timeout"
        for text in ("-1", "-0.5", "1.5", '"60"', "null", "[]", "{}", "true", "2147483648", "9007199254740993", "9223372036854775807",
                     "9223372036854775808", "18446744073709551616", "1e3", "1e300", "1e9999", "-9223372036854775808", "0x10", "NaN",
                     "Infinity", "1" + "0" * 10_000):
            with self.subTest(text[:30]):
                for path in (place, f"/sandboxes/{self.box.id}/connect", "/sandboxes"):
                    body = b'{"templateID":"base","timeout":' + text.encode() + b"}"
                    if text == "null" and path != place:
                        continue  # as if the field were missing
                    self.assertEqual(self.daemon.ask("POST", path, body, "user", Content_Type=JSON)[0], 400, path)
        for query in ("limit=0", "limit=-1", "limit=101", "limit=x", "limit=1.5", "limit=9223372036854775808", "limit=%20" + "1", "limit=1%20"):
            self.assertEqual(self.daemon.ask("GET", "/v2/sandboxes?" + query, key="user")[0], 400, query)
        self.assertEqual(self.daemon.ask("GET", "/v2/sandboxes?limit=1", key="user")[0], 200, "control")
        self.assertEqual(self.daemon.ask("POST", place, {"timeout": 600}, "user")[0], 204, "control")

    # ---- contents ----
    def test_json_that_is_none(self):
        place = f"/sandboxes/{self.box.id}/timeout"
        self.daemon.clear_peak()
        before = self.daemon.peak()
        for name, (body, statuses) in {
            "depth": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, (400,)),
            "brackets": (b'{"a":' + b"[" * 1_000_000, (400,)),
            "33 levels": (b'{"timeout":600,"a":' + b"[" * 33 + b"]" * 33 + b"}", (400,)),
            "too large": (b'{"timeout":600,"a":"' + b"a" * (5 << 20) + b'"}', (413,)),
            "64 MB": (b'{"timeout":600,"a":"' + b"a" * (64 << 20) + b'"}', (413,)),
            "a key twice": (b'{"timeout":600,"timeout":700}', (400,)),
            "a key twice, written in two ways": (b'{"timeout":600,"\\u0074imeout":700}', (400,)),
            "a number without end": (b'{"timeout":600,"a":' + b"9" * 1_000_000 + b"}", (400,)),
            "1e9999": (b'{"timeout":600,"a":1e9999}', (400,)),
            "bad UTF-8": (b'{"timeout":600,"a":"\xff"}', (400,)),
            "a surrogate in UTF-8": (b'{"timeout":600,"a":"\xed\xa0\x80"}', (400,)),
            "overlong": (b'{"timeout":600,"a":"\xc0\xae"}', (400,)),
            "half a surrogate": (b'{"timeout":600,"a":"\\ud800"}', (400,)),
            "NUL": (b'{"timeout":600,"a":"\\u0000"}', (400,)),
            "NUL in a key": (b'{"timeout":600,"a\\u0000":1}', (400,)),
            "NUL behind": (b'{"timeout":600}\0', (400,)),
            "a BOM": (b'\xef\xbb\xbf{"timeout":600}', (400,)),
            "more behind": (b'{"timeout":600}{"timeout":700}', (400,)),
            "a comment": (b'{"timeout":600/**/}', (400,)),
            "a comma": (b'{"timeout":600,}', (400,)),
            "a list": (b'[{"timeout":600}]', (400,)),
            "a text": (b'"timeout"', (400,)),
            "nothing": (b"", (400,)),
            "blanks": (b" " * 1000, (400,)),
        }.items():
            with self.subTest(name):
                status, text = self.daemon.ask("POST", place, body, "user", Content_Type=JSON)
                self.assertIn(status, statuses, text[:300])
        grown = self.daemon.peak() - before
        self.assertLess(grown, MEMORY)
        self.is_well()
        self.assertEqual(self.daemon.ask("POST", place, b'{"timeout":600,"a":' + b"[" * 20 + b"]" * 20 + b"}", "user")[0], 204, "control")

    def test_a_million_keys_and_values(self):
        """JSON that is small on the wire and large in memory: stays within the body limit, and
        the memory is released."""
        self.daemon.clear_peak()
        before = self.daemon.peak()
        keys = b"{" + b",".join(b'"%d":1' % i for i in range(300_000)) + b',"timeout":600}'
        values = b'{"timeout":600,"a":[' + b",".join([b"[]"] * 1_000_000) + b"]}"
        for body in (keys, values):
            self.assertLess(len(body), 4 << 20)
            status, text = self.daemon.ask("POST", f"/sandboxes/{self.box.id}/timeout", body, "user", Content_Type=JSON)
            self.assertIn(status, (204, 400, 413), text[:300])
        self.assertLess(self.daemon.peak() - before, 256 << 10)
        self.is_well()

    # ---- files ----
    def upload(self, body, path="/tmp/upload", kind="multipart/form-data; boundary=b", **more):
        return self.daemon.ask("POST", f"/files?path={path}&username=user", body, E2b_Sandbox_Id=self.box.id, E2b_Sandbox_Port="49983",
                               X_Access_Token=self.box.token, Content_Type=kind, **more)

    @staticmethod
    def part(data, name='name="file"; filename="f"', more=b""):
        return b"--b\r\nContent-Disposition: form-data; " + name.encode() + b"\r\n" + more + b"\r\n" + data + b"\r\n"

    def test_archives_that_are_bombs(self):
        """1 MB that unpacks to 1 GB of zeros: ends at the sandbox's disk limit and is never held
        in hutchd's memory. A VM gets a fifth of it, which takes as long."""
        packer = zlib.compressobj(9, wbits=31)
        bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(1024 // PATIENCE)) + packer.flush()
        self.assertLess(len(bomb), 2 << 20)
        self.daemon.clear_peak()
        before = self.daemon.peak()
        status, text = self.upload(bomb, kind="application/octet-stream", Content_Encoding="gzip")
        self.assertIn(status, (200, 400, 413, 507), text[:300])
        self.assertLess(self.daemon.peak() - before, MEMORY)
        self.is_well()
        self.inside("rm -f /tmp/upload")
        status, text = self.upload(gzip.compress(b"hello"), kind="application/octet-stream", Content_Encoding="gzip")
        self.assertEqual((status, self.inside("cat /tmp/upload")), (200, "hello"), text)
        for name, data in {"cut": bomb[:-4], "no archive": b"hello", "noise behind": gzip.compress(b"hello") + b"noise",
                           "twice": gzip.compress(gzip.compress(b"hello"))[:-1]}.items():
            with self.subTest(name):
                self.assertNotEqual(self.upload(data, kind="application/octet-stream", Content_Encoding="gzip")[0], 200)
        self.inside("rm -f /tmp/upload")

    def test_multipart_bombs(self):
        self.daemon.clear_peak()
        before = self.daemon.peak()
        end = b"--b--\r\n"
        for name, body in {
            "no end": self.part(b"x"),
            "no part": end,
            "nothing": b"\r\n",
            "a head of 1 MB": self.part(b"x", more=b"X-A: " + b"a" * (1 << 20) + b"\r\n") + end,
            "100,000 fields": self.part(b"x", more=b"X-A: a\r\n" * 100_000) + end,
            "a name of 100 kB": self.part(b"x", f'name="file"; filename="{"a" * 100_000}"') + end,
            "another boundary": self.part(b"x").replace(b"--b", b"--c") + b"--c--\r\n",
            "a preamble of 32 MB": b"a" * (32 << 20) + self.part(b"x") + end,
        }.items():
            with self.subTest(name):
                status, text = self.upload(body)
                self.assertIn(status, (400, 413, 431), text[:300])
        for kind in ("multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=" + "b" * 1000,
                     "multipart/mixed; boundary=b", 'multipart/form-data; boundary="'):
            with self.subTest(kind[:60]):
                self.assertIn(self.upload(self.part(b"x") + end, kind=kind)[0], (400, 415))
        status, text = self.upload(b"".join(self.part(b"x", f'name="file"; filename="/tmp/many-{i % 10}"') for i in range(2000)) + end)
        self.assertIn(status, (200, 400, 413, 429), text[:300])
        self.assertLess(self.daemon.peak() - before, MEMORY)
        self.assertEqual(self.upload(self.part(b"hello") + end)[0], 200, "control")
        self.is_well()
        self.inside("rm -rf /tmp/many-* /tmp/upload")

    # ---- browsers ----
    def test_names_that_are_not_ours(self):
        key = ("X-API-Key", self.daemon.keys["user"])
        for host in ("evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", f"{DOMAIN}.evil.example",
                     f"x{DOMAIN}", f"evil.{DOMAIN}", "localhostx", "0x7f.0.0.1", f"{self.box.id}.{DOMAIN}", f"3000-.{DOMAIN}"):
            with self.subTest(host):
                answers = self.daemon.raw(request("GET", "/sandboxes", key, ("Connection", "close"), host=host))
                self.assertEqual(answers.statuses, [421])
        for host in ("127.0.0.1", "localhost:80", "[::1]", DOMAIN, f"api.{DOMAIN}", DOMAIN.upper()):
            with self.subTest(host):
                self.assertEqual(self.daemon.raw(request("GET", "/sandboxes", key, ("Connection", "close"), host=host)).statuses, [200])

    def test_pages(self):
        """Requests that say they come from a web page are refused, with or without a key, and no
        answer has a header that permits one."""
        key = ("X-API-Key", self.daemon.keys["user"])
        for origin in ("http://evil.example", "null", "http://127.0.0.1", "http://localhost", "", "file://"):
            for more in ((), (("Content-Type", "text/plain"),), (("Upgrade", "websocket"), ("Connection", "Upgrade"))):
                with self.subTest(origin, more=more):
                    answers = self.daemon.raw(request("GET", "/sandboxes", key, ("Origin", origin), *more) +
                                              request("GET", "/health", ("Connection", "close")))
                    self.assertEqual(answers.statuses, [403, 200])
        for method in ("OPTIONS", "GET", "POST"):
            asked = request(method, "/sandboxes", key, ("Access-Control-Request-Method", "POST"), ("Connection", "close"))
            for data in (asked, asked.replace(b"\r\nHost", b"\r\nOrigin: http://evil.example\r\nHost", 1)):
                for status, fields, _ in self.daemon.raw(data).list:
                    self.assertFalse([f for f in fields if f.startswith("access-control") or f == "set-cookie"], fields)
                    self.assertIn(status, (200, 400, 403, 405))

    def test_a_key_in_the_address_or_a_cookie_is_none(self):
        key = self.daemon.keys["user"]
        for target, fields in ((f"/sandboxes?api_key={key}", ()), (f"/sandboxes?X-API-Key={key}", ()),
                               ("/sandboxes", (("Cookie", f"X-API-Key={key}"),)),
                               ("/sandboxes", (("Authorization", f"Basic {key}"),)), ("/sandboxes", (("Referer", key),))):
            self.assertEqual(self.daemon.head("GET", target, fields), 401, target)
        self.assertEqual(self.daemon.head("GET", "/sandboxes", (("Authorization", f"Bearer {key}"),)), 200, "control")
