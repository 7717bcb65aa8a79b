# SPDX-License-Identifier: Apache-2.0
"""
HTTP/2 through hutch-tap, by programs that people use: curl, Node.js and gRPC. The servers are
python3-h2 (http2.py) and python3-grpcio (grpc_server.py). test_secret_http2.py sends frames that no such
program sends.
"""

import json
import subprocess

from boxes import WORLD, log, run
from frames import SETTINGS, read, session
from sandbox import start
from tapped import API, EVIL, GRPC, H2, H2_ALONE, H2_PLAIN, TapCase, credentials, headers, hits, probe
from waiting import eventually

TOKEN = {"GITHUB_TOKEN": {"hosts": [H2]}}
SENT = '-H "Authorization: Bearer $GITHUB_TOKEN"'
NODE = """
const client = require('http2').connect('https://HOST');
const ask = (path, body) => new Promise((done, fail) => {
  const r = client.request({':path': path, ':method': body ? 'POST' : 'GET', authorization: 'Bearer ' + process.env.GITHUB_TOKEN});
  let status, text = '';
  r.on('response', h => status = h[':status']);
  r.setEncoding('latin1');
  r.on('data', d => text += d);
  r.on('end', () => done([status, text]));
  r.on('error', fail);
  r.end(body);
});
Promise.all([ask('/node'), ask('/reflect/plain'), ask('/sink', 'x'.repeat(300000)), ask('/admin/x')]).then(got => {
  console.log(JSON.stringify(got));
  client.close();
});
"""


class Http2Case(TapCase):
    def setUp(self):
        super().setUp()
        self.value = self.key("GITHUB_TOKEN")

    def http2(self, box, *args, **more):
        return self.curl(box, "--http2", *args, **more)

    def begin(self, box, script):
        """Starts a script in the sandbox, whose output is read while it runs."""
        p = start("exec", "-i", box, "--", "sh", "-c", script, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(lambda: (p.kill(), p.stdout.close(), p.stderr.close(), p.wait()))
        return p

    def ends(self, p):
        """The output that is left of a script which must succeed. `curl -Z` writes its progress to stderr."""
        out, err = p.stdout.read(), p.stderr.read()
        self.assertEqual(p.wait(), 0, (out, err))
        return out.decode("latin-1")

    def waiting(self, n, path):
        """Waits until the server holds n requests, and returns them."""
        eventually(lambda: len(self.requests(path=path)) == n, f"{n} requests for {path}", also=self.requests)
        return self.requests(path=path)


class Secrets(Http2Case):
    def test_a_value_for_its_placeholder(self):
        box = self.tapped(TOKEN)
        placeholder = self.placeholder(box, "GITHUB_TOKEN")
        out = self.http2(box, "-w '%{http_version}'", SENT, "-H 'X-Api-Key: of-the-sandbox'", f"https://{H2}/user?a=b").out
        self.assertEqual(out, f"ok {H2}\n2")
        seen = self.one(H2, "/user?a=b")
        self.assertEqual((seen["version"], seen["conn"]["alpn"], seen["conn"]["sni"]), (2, "h2", H2))
        self.assertEqual(credentials(seen), {"authorization": f"Bearer {self.value}"})
        self.assertNotIn(placeholder, json.dumps(self.connections()))
        self.http_log(box, path="/user", status=200, secret="GITHUB_TOKEN", verdict="allowed")

    def test_a_header_and_a_query(self):
        other = self.key("API_KEY")
        box = self.tapped({"GITHUB_TOKEN": {"hosts": [H2], "form": "query", "parameter": "key"}, "API_KEY": {"hosts": [H2_ALONE], "header": "x-api-key"}})
        self.http2(box, f'"https://{H2}/maps?a=1&key=$GITHUB_TOKEN"')
        self.http2(box, f'-H "X-Api-Key: $API_KEY" https://{H2_ALONE}/push')
        self.assertEqual(hits(self.one(H2, "/maps")["target"].encode(), self.value), ["url"])
        self.assertEqual(credentials(self.one(H2, "/maps")), {})
        self.assertEqual(credentials(self.one(H2_ALONE, "/push")), {"x-api-key": other})
        self.nothing_of(other, H2)
        self.nothing_of(self.value, H2_ALONE)

    def test_nothing_for_another_host(self):
        box = self.tapped(TOKEN, http=[{"host": H2_ALONE, "paths": ["/**"]}], domains=[H2_PLAIN])
        for host in (H2_ALONE, H2_PLAIN):
            self.http2(box, SENT, f"https://{host}/elsewhere")
            self.assertEqual(headers(self.one(host, "/elsewhere"), "authorization"), [f"Bearer {self.placeholder(box, 'GITHUB_TOKEN')}"])
        self.nothing_of(self.value)
        self.arrives(box, H2, self.value)

    def test_reflections_are_masked(self):
        """In the body, in one whose frames have a byte each, in the head and in a trailer."""
        box = self.tapped(TOKEN)
        for form in ("plain", "bytes", "head", "trailer"):
            out = self.http2(box, "-i", SENT, f"https://{H2}/reflect/{form}").out
            self.assertEqual(headers(self.one(H2, f"/reflect/{form}"), "authorization"), [f"Bearer {self.value}"])
            self.assertEqual(hits(out.encode("latin-1"), self.value), [], out)
            self.assertIn("*" * len(self.value), out)
            self.http_log(box, path=f"/reflect/{form}", masked="the response contained the secret")

    def test_control_of_reflections(self):
        """A sandbox with the value gets all of them back."""
        box = self.tapped(domains=[H2], opts=("-e", f"GITHUB_TOKEN={self.value}"))
        for form in ("plain", "bytes", "head", "trailer"):
            out = self.http2(box, "-i", SENT, f"https://{H2}/reflect/{form}").out
            self.assertIn("plain", hits(out.encode("latin-1"), self.value), form)

    def test_node(self):
        box = self.tapped(TOKEN, http=[{"host": H2, "paths": ["/admin/**"], "deny": True}])
        r = run(box, "node", "-e", NODE.replace("HOST", H2))
        self.assertEqual(r.code, 0, r)
        node, reflected, sink, admin = json.loads(r.out)
        self.assertEqual((node, sink), ([200, f"ok {H2}\n"], [200, "300000\n"]))
        self.assertEqual(reflected, [200, f"before {'*' * len(self.value)} after\n"])
        self.assertEqual(admin[0], 403)
        self.assertIn("hutch: GET /admin/x is denied by rule", admin[1])
        self.assertEqual(len(self.connections(to=H2)), 1)
        self.assertEqual({tuple(headers(x, "authorization")) for x in self.requests(H2)}, {(f"Bearer {self.value}",)})
        self.assertEqual(self.requests(H2, "/admin"), [])


class Streams(Http2Case):
    """Many requests on one connection."""

    N = 20

    def test_parallel_requests(self):
        """All run at the same time: the server answers none before it has them all."""
        box = self.tapped(TOKEN)
        p = self.begin(box, f'curl -sS --http2 -Z --parallel-max {self.N} {SENT} "https://{H2}/hold?all&[1-{self.N}]"')
        held = self.waiting(self.N, "/hold")
        self.assertEqual(len(self.connections(to=H2)), 1)
        self.assertEqual({x["version"] for x in held}, {2})
        self.assertEqual({tuple(headers(x, "authorization")) for x in held}, {(f"Bearer {self.value}",)})
        self.assertEqual(len({x["target"] for x in held}), self.N)
        WORLD("release", gate="all")
        self.assertEqual(self.ends(p), f"ok {H2}\n" * self.N)
        eventually(lambda: len([x for x in log(box) if x.get("path") == "/hold" and x.get("status") == 200]) == self.N, "a record of each")

    def test_server_sent_events(self):
        """The first event arrives before the server sends the second one."""
        box = self.tapped(TOKEN)
        p = self.begin(box, f'exec curl -sSN --http2 {SENT} "https://{H2}/sse?events"')
        self.assertEqual(p.stdout.readline(), b"data: first\n")
        WORLD("release", gate="events")
        self.assertEqual(self.ends(p), "\ndata: second\n\n")
        self.assertEqual(credentials(self.one(H2, "/sse")), {"authorization": f"Bearer {self.value}"})

    def test_large_bodies(self):
        """Some MB in both directions, many times the flow control windows of both sides."""
        box, n = self.tapped(TOKEN), 8_000_000
        self.assertEqual(self.curl(box, script=f"head -c {n} /dev/zero | exec curl -sS --http2 -T - https://{H2}/sink").out, f"{n}\n")
        self.assertEqual(self.curl(box, script=f'curl -sS --http2 "https://{H2}/big?{n}" | wc -c').out.strip(), str(n))
        self.assertEqual((self.one(H2, "/sink")["bytes"], self.one(H2, "/sink")["complete"]), (n, True))
        self.http_log(box, path="/sink", bytes_out=n)
        self.http_log(box, path="/big", bytes_in=n)

    def test_large_bodies_at_the_same_time(self):
        box, n = self.tapped(TOKEN), 2_000_000
        down = " ".join(f'-o big{i} "https://{H2}/big?{n}&{i}"' for i in range(4))
        up = "".join(f' --next --http2 -sS -T body -o sink{i} "https://{H2}/sink?{i}"' for i in range(4))
        out = self.curl(box, script=f"cd /tmp && head -c {n} /dev/zero >body && curl -sS --http2 -Z {down}{up} && cat big? | wc -c && cat sink?").out
        self.assertEqual(out.split(), [str(4 * n)] + [str(n)] * 4)
        self.assertEqual([x["bytes"] for x in self.requests(H2, "/sink")], [n] * 4)
        self.assertEqual({x["bytes_in"] for x in eventually(lambda: self.finished(box, "/big", 4), "four downloads")}, {n})

    def finished(self, box, path, n):
        found = [x for x in log(box) if x.get("path") == path and x.get("status") == 200]
        return found if len(found) == n else None

    def test_a_client_that_leaves(self):
        """Its requests end at the server, and another connection is not disturbed."""
        box = self.tapped(TOKEN)
        stays = self.begin(box, f'exec curl -sSN --http2 "https://{H2}/sse?stays"')
        self.assertEqual(stays.stdout.readline(), b"data: first\n")
        leaves = self.begin(box, f'exec curl -sSN --http2 "https://{H2}/half?leaves"')
        self.assertEqual(leaves.stdout.read(10), b"first half")
        run(box, "pkill", "-9", "-f", "half.leaves")
        line = self.http_log(box, path="/half", reason="closed by the program")
        self.assertEqual(line["status"], 200)
        WORLD("release", gate="stays")
        self.assertEqual(self.ends(stays), "\ndata: second\n\n")
        WORLD("release", gate="leaves")


class Rules(Http2Case):
    DENY = [{"host": H2, "paths": ["/admin/**"], "deny": True}]

    def test_a_denied_request_disturbs_no_other(self):
        box = self.tapped(TOKEN, http=self.DENY)
        p = self.begin(box, f'cd /tmp && curl -sS --http2 -Z -w "%{{http_code}} %{{http_version}}\\n" {SENT} -o held "https://{H2}/hold?rule" '
                            f'-o denied -D head "https://{H2}/admin/x" && cat head denied held')
        self.waiting(1, "/hold")
        self.assertIn(" is denied by rule tapped-", self.http_log(box, path="/admin/x", status=403)["detail"])
        WORLD("release", gate="rule")
        out = self.ends(p)
        self.assertEqual(sorted(out.split("\n")[:2]), ["200 2", "403 2"])
        self.assertIn("x-hutch-denied: rule", out)
        self.assertRegex(out, rf"hutch: GET /admin/x is denied by rule tapped-\d+\.yaml:\d+\nok {H2}\n$")
        self.assertEqual(len(self.connections(to=H2)), 1)
        self.assertEqual([x["target"] for x in self.requests(H2)], ["/hold?rule"])

    def test_methods_and_max_body(self):
        box = self.tapped(TOKEN, http=[{"host": H2, "methods": ["GET", "POST"], "max_body": "1KiB"}])
        send = "head -c {} /dev/zero | exec curl -sS --http2 -o /dev/null -w '%{{http_code}}' {} https://" + H2 + "/sink"
        for how in ("--data-binary @-", "-X POST -T -"):
            self.assertEqual(self.curl(box, script=send.format(1024, how)).out, "200", how)
            self.assertEqual(self.curl(box, script=send.format(1025, how), code=None).out, "413", how)
        self.assertEqual(self.status(box, "--http2 -X DELETE", f"https://{H2}/x"), "403")
        self.assertEqual({x["bytes"] for x in self.requests(H2) if x["complete"]}, {1024})
        self.assertEqual({x["method"] for x in self.requests(H2)}, {"POST"})

    def test_rate(self):
        box = self.tapped(TOKEN, http=[{"host": H2, "rate": 2}])
        out = self.curl(box, script=f'curl -sS --http2 -o /dev/null -w "%{{http_code}}\\n" "https://{H2}/rate?[1-3]"').out
        self.assertEqual(out.split(), ["200", "200", "429"])
        self.assertEqual(len(self.requests(H2, "/rate")), 2)


class Versions(Http2Case):
    """A program gets HTTP/2 if both sides speak it. Never does hutch-tap translate one to the other."""

    def setUp(self):
        super().setUp()
        self.box_ = self.tapped({"GITHUB_TOKEN": {"hosts": [API, H2, H2_ALONE]}}, domains=[EVIL])

    def version(self, host, *args):
        out = self.curl(self.box_, *args, "-w '%{http_version}'", f"https://{host}/version").out
        self.assertEqual(credentials(self.requests(host, "/version")[-1]), {"authorization": f"Bearer {self.value}"})
        return out.split("\n")[-1], self.connections(to=host)[-1]["alpn"]

    def test_both_speak_both(self):
        self.assertEqual(self.version(H2, "--http2"), ("2", "h2"))
        self.assertEqual(self.version(H2, "--http1.1"), ("1.1", "http/1.1"))
        self.assertEqual(self.version(H2, "--no-alpn"), ("1.1", "http/1.1"))
        self.assertEqual(self.version(H2_ALONE, "--http2"), ("2", "h2"))

    def test_a_server_with_http_1_alone(self):
        self.assertEqual(self.version(API, "--http2"), ("1.1", "http/1.1"))

    def test_a_program_with_http_2_alone(self):
        """It sees an alert, and the log says why; the same program works with a server of HTTP/2."""
        before = len(self.connections(to=API))
        [bad, good] = self.raw(self.box_, probe(API, session(), alpn=("h2",)), probe(H2, session(), alpn=("h2",)))
        self.assertIn("no application protocol", bad)
        self.assertIn((SETTINGS, 0), read(good).frames)
        self.assertIn("offers HTTP/2 alone", json.dumps(self.logged(self.box_, over=True, name=API)[0]))
        self.assertEqual([c["requests"] for c in self.connections(to=API)[before:]], [[]])

    def test_a_server_with_http_2_alone(self):
        r = self.curl(self.box_, "--http1.1 -i", f"https://{H2_ALONE}/x")
        self.assertIn("HTTP/1.1 502 ", r.out)
        self.assertIn("X-Hutch-Denied: server", r.out)
        self.assertEqual([c["alpn"] for c in self.connections(to=H2_ALONE)], [None])


GRPC_CLIENT = """
import json, os, sys, threading, grpc
host, test = sys.argv[1:3]
auth = (("authorization", "Bearer " + os.environ["GITHUB_TOKEN"]),)
channel = grpc.secure_channel(host + ":443", grpc.ssl_channel_credentials())
service = "/google.pubsub.v1.Publisher/"
got = {}

def error(e):
    return [e.code().name, e.details()]

def unary(method, message=b"hello", **more):
    return channel.unary_unary(service + method).with_call(message, metadata=auth, timeout=more.pop("timeout", 60), **more)

if test == "all":
    answer, call = unary("Unary")
    got["unary"] = [answer.decode(), dict(call.initial_metadata()).get("x-first"), dict(call.trailing_metadata()).get("x-count"), call.code().name]
    answer, call = unary("Unary", b"x" * 3000000)
    got["large"] = [len(answer), dict(call.trailing_metadata())["x-count"]]
    got["count"] = [int(m) for m in channel.unary_stream(service + "Count")(b"1000", metadata=auth)]
    got["sum"] = channel.stream_unary(service + "Sum")((b"x" * 100000 for _ in range(30)), metadata=auth).decode()
    # Each message is sent once the answer to the last one is there.
    turn, heard = threading.Semaphore(1), []
    def ask():
        for i in range(20):
            turn.acquire()
            yield b"%d" % i
    for m in channel.stream_stream(service + "Chat")(ask(), metadata=auth):
        heard.append(m.decode())
        turn.release()
    got["chat"] = heard
    answer, call = unary("Reflect")
    got["reflect"] = [answer.decode(), dict(call.trailing_metadata())["x-reflected"]]
    for name in ("Fail", "None"):
        try:
            unary(name)
        except grpc.RpcError as e:
            got[name] = error(e)
elif test == "deadline":
    try:
        for m in channel.unary_stream(service + "Wait")(b"", metadata=auth, timeout=1):
            got.setdefault("messages", []).append(m.decode())
    except grpc.RpcError as e:
        got["error"] = error(e)
    got["after"] = unary("Unary")[0].decode()
elif test == "cancel":
    call = channel.unary_stream(service + "Wait")(b"", metadata=auth)
    got["message"] = next(call).decode()
    call.cancel()
    got["code"] = call.code().name
    got["after"] = unary("Unary")[0].decode()
elif test == "denied":
    try:
        unary("Unary")
    except grpc.RpcError as e:
        got["error"] = error(e)
    got["after"] = [int(m) for m in channel.unary_stream(service + "Count")(b"3", metadata=auth)]
print(json.dumps(got))
"""


class Grpc(Http2Case):
    def setUp(self):
        super().setUp()
        self.earlier = len(WORLD("grpc"))
        self.token = {"GITHUB_TOKEN": {"hosts": [GRPC]}}

    def client(self, box, test):
        r = run(box, "python3", "-c", GRPC_CLIENT, GRPC, test)
        self.assertEqual(r.code, 0, r)
        return json.loads(r.out)

    def calls(self, method=None, event="begin"):
        """The calls that reached the server during this test."""
        made = [c for c in WORLD("grpc")[self.earlier:] if c["event"] == event]
        return [c for c in made if method is None or c["method"].endswith("/" + method)]

    def test_calls(self):
        """Each kind of call, with metadata in both directions, errors, and a value in a response."""
        box = self.tapped(self.token)
        got, stars = self.client(box, "all"), "*" * len(self.value)
        self.assertEqual(got["unary"], ["got hello", "yes", "5", "OK"])
        self.assertEqual(got["large"], [3000004, "3000000"])
        self.assertEqual((got["count"], got["sum"]), (list(range(1000)), "3000000"))
        self.assertEqual(got["chat"], [f"heard {i}" for i in range(20)])
        self.assertEqual(got["reflect"], [f"before Bearer {stars} after", f"Bearer {stars}"])
        self.assertEqual(got["Fail"], ["NOT_FOUND", "no hello here"])
        self.assertEqual(got["None"][0], "UNIMPLEMENTED")
        fields = [[v for k, v in c["metadata"] if k == "authorization"] for c in self.calls()]
        self.assertEqual(fields, [[f"Bearer {self.value}"]] * len(fields))
        self.assertGreaterEqual(len(fields), 7)
        self.assertNotIn(self.placeholder(box, "GITHUB_TOKEN"), json.dumps(WORLD("grpc")))
        self.http_log(box, method="POST", path="/google.pubsub.v1.Publisher/Reflect", status=200, masked="the response contained the secret")

    def test_a_deadline(self):
        """The client ends its call, and the server hears of it; the connection stays."""
        got = self.client(self.tapped(self.token), "deadline")
        self.assertEqual(got["error"][0], "DEADLINE_EXCEEDED")
        self.assertEqual((got["messages"], got["after"]), (["waiting"], "got hello"))
        eventually(lambda: self.calls("Wait", "end"), "the end of the call at the server")

    def test_a_cancelled_call(self):
        box = self.tapped(self.token)
        self.assertEqual(self.client(box, "cancel"), {"message": "waiting", "code": "CANCELLED", "after": "got hello"})
        eventually(lambda: self.calls("Wait", "end"), "the end of the call at the server")
        self.http_log(box, path="/google.pubsub.v1.Publisher/Wait", reason="closed by the program")

    def test_a_denied_call(self):
        """gRPC has a name for the status 403. Other calls of the connection continue."""
        box = self.tapped(self.token, http=[{"host": GRPC, "paths": ["/google.pubsub.v1.Publisher/Unary"], "deny": True}])
        got = self.client(box, "denied")
        self.assertEqual((got["error"][0], got["after"]), ("PERMISSION_DENIED", [0, 1, 2]))
        self.assertEqual((len(self.calls("Unary")), len(self.calls("Count"))), (0, 1))
        self.http_log(box, path="/google.pubsub.v1.Publisher/Unary", status=403)
