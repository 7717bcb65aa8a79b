# SPDX-License-Identifier: Apache-2.0
"""
The LLM gateway: programs in a sandbox call scripted models (models.py) at the providers' own names.
The tests compare the requests and answers of the provider with the report of `hutch llm usage`, and
with the budget.
"""

import json
import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path

from boxes import run
from sandbox import hutch, in_machine
from tapped import CLAUDE, OPENAI, TapCase, credentials, taps_of
from test_docs import guide_examples, matches
from waiting import ended, eventually

GEMINI = "generativelanguage.googleapis.com"
KEYS = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY", "gemini": "GEMINI_API_KEY"}
HOSTS = {"anthropic": CLAUDE, "openai": OPENAI, "gemini": GEMINI}
# Sends requests side by side: a list of [url, body]. For each prints its status and text.
CALLS = r"""
import concurrent.futures, functools, http.client, json, socket, sys, urllib.parse
calls = json.load(sys.stdin)
# One look-up for all: on a busy host, fifty at once exceed the resolver's patience.
socket.getaddrinfo = functools.lru_cache(None)(socket.getaddrinfo)
for host in {urllib.parse.urlsplit(c[0]).hostname for c in calls}:
    for _ in range(9):
        try:
            socket.create_connection((host, 443), 240).close()
            break
        except socket.gaierror:
            pass
def one(call):
    u = urllib.parse.urlsplit(call[0])
    c = http.client.HTTPSConnection(u.hostname, timeout=240)
    body = call[1] if isinstance(call[1], str) else json.dumps(call[1])
    try:
        c.request('POST', u.path + ('?' + u.query if u.query else ''), body, {'Content-Type': 'application/json', 'Accept-Encoding': 'gzip'})
        r = c.getresponse()
        return [r.status, r.read().decode(), dict(r.getheaders())]
    except (OSError, http.client.HTTPException) as e:
        return [0, f'{type(e).__name__}: {e}', {}]
with concurrent.futures.ThreadPoolExecutor(64) as pool:
    print(json.dumps(list(pool.map(one, calls))))
"""


def say(text, **more):
    """The body of a request to Anthropic or for a chat."""
    return {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": [{"role": "user", "content": text}], **more}


def messages(text, **more):
    return [f"https://{CLAUDE}/v1/messages", say(text, **more)]


def chat(text, **more):
    return [f"https://{OPENAI}/v1/chat/completions", say(text, model="gpt-4.1", **more)]


def responses(text, **more):
    return [f"https://{OPENAI}/v1/responses", {"model": "gpt-4.1", "input": text, **more}]


def gemini(text, method="generateContent"):
    return [f"https://{GEMINI}/v1beta/models/gemini-2.5-flash:{method}" + ("?alt=sse" if method.startswith("stream") else ""),
            {"contents": [{"role": "user", "parts": [{"text": text}]}]}]


class LlmCase(TapCase):
    def rules(self, *rules, opts=()):
        """A sandbox with these rules, and keys for them."""
        self.keys = {r["provider"]: self.key(KEYS[r["provider"]]) for r in rules}
        text = "llm:\n" + "".join(f"  - {json.dumps({'secret': KEYS[r['provider']], **r})}\n" for r in rules)
        return self.tapped(domains=[HOSTS[r["provider"]] for r in rules], more=text, opts=opts)

    def calls(self, box, *calls):
        r = run(box, "python3", "-c", CALLS, data=json.dumps(calls))
        self.assertEqual(r.code, 0, r)
        return json.loads(r.out)

    def call(self, box, call):
        return self.calls(box, call)[0]

    def usage(self, box, by="sandbox"):
        return json.loads(self.ended(hutch("llm", "usage", "--json", "--by", by, box), 0).stdout)

    def total(self, box, n):
        """The sandbox's row once it has so many calls and denials."""
        def look():
            rows = self.usage(box)
            return rows and rows[0]["calls"] + rows[0]["denied"] >= n and rows[0]
        return eventually(look, f"{n} calls of {box}", also=lambda: self.usage(box))

    def refused(self, answer, text, status=400):
        self.assertEqual(answer[0], status, answer)
        self.assertIn(text, json.loads(answer[1])["error"]["message"])
        self.assertTrue(json.loads(answer[1])["error"]["message"].startswith("hutch: "))


class Usage(LlmCase):
    def test_every_api_to_the_token(self):
        box = self.rules({"provider": "anthropic"}, {"provider": "openai"}, {"provider": "gemini"})
        made, want = [], [0, 0, 0]
        for i, kind in enumerate((messages, chat, responses)):
            for stream in (False, True):
                used = (1001 + 17 * i, 200 + i, 31 + i + stream)
                more = {"stream": True, **({"stream_options": {"include_usage": True}} if kind is chat else {})} if stream else {}
                made.append(kind("usage: %d %d %d" % used, **more))
                want = [a + b for a, b in zip(want, used)]
        for method in ("generateContent", "streamGenerateContent"):
            made.append(gemini("usage: 77 13 9", method))
            want = [a + b for a, b in zip(want, (77, 13, 9))]
        answers = self.calls(box, *made)
        self.assertEqual([a[0] for a in answers], [200] * 8, answers)
        self.assertIn("message_stop", answers[1][1])
        self.assertIn("[DONE]", answers[3][1])
        self.assertIn("response.completed", answers[5][1])
        row = self.total(box, 8)
        self.assertEqual([row["tokens_in"], row["tokens_cached"], row["tokens_out"]], want)
        self.assertEqual((row["calls"], row["denied"], row["calls_estimated"], row["calls_without_price"]), (8, 0, 0, 0))
        by_model = {r["model"]: r for r in self.usage(box, "model")}
        self.assertEqual(set(by_model), {"claude-sonnet-4-5", "gpt-4.1", "gemini-2.5-flash"})
        self.assertEqual(by_model["gemini-2.5-flash"]["tokens_out"], 18)
        # 2 x (1001 x 3 + 200 x 0.3) + (31 + 32) x 15 millionths of a dollar, each call rounded up
        self.assertEqual(by_model["claude-sonnet-4-5"]["microdollars"], 2 * (3003 + 60) + 63 * 15)
        [agent] = self.usage(box, "agent")
        self.assertEqual((agent["agent"], agent["calls"]), (f"tapped-{self.n}", 8))
        # The provider got the key, and no compressed answer was asked for.
        for host, name, form in ((CLAUDE, "x-api-key", "{}"), (OPENAI, "authorization", "Bearer {}"), (GEMINI, "x-goog-api-key", "{}")):
            provider = next(p for p, h in HOSTS.items() if h == host)
            for request in self.requests(host):
                self.assertEqual(credentials(request), {name: form.format(self.keys[provider])})
                self.assertNotIn("gzip", json.dumps(request["headers"]))
        line = self.logged(box, model="gpt-4.1")[0]
        self.assertEqual((line["verdict"], line["status"], line["agent"]), ("allowed", 200, f"tapped-{self.n}"))

    def test_estimated(self):
        """A chat that does not ask for usage."""
        box = self.rules({"provider": "openai"})
        self.assertEqual(self.call(box, chat("pieces: 10", stream=True))[0], 200)
        row = self.total(box, 1)
        self.assertEqual((row["tokens_out"], row["calls_estimated"]), (100, 1))

    def test_compressed_requests(self):
        """Claude Code can send gzip: the provider gets the same bytes, and the model is read in them."""
        box = self.rules({"provider": "anthropic", "models": ["claude-sonnet-*"]})
        for model, status in (("claude-sonnet-4-5", "200"), ("claude-opus-9", "400")):
            body = json.dumps(say("usage: 5 6 7", model=model))
            send = f"gzip -c | curl -sS -o /dev/null -w '%{{http_code}}' -H 'Content-Encoding: gzip' --data-binary @- https://{CLAUDE}/v1/messages"
            self.assertEqual(self.curl(box, script=f"printf %s '{body}' | {send}").out, status)
        self.assertEqual(json.loads(self.one(CLAUDE, "/v1/messages")["body"])["model"], "claude-sonnet-4-5")
        row = self.total(box, 2)
        self.assertEqual((row["tokens_in"], row["tokens_cached"], row["tokens_out"], row["denied"]), (5, 6, 7, 1))

    def test_large_requests(self):
        box = self.rules({"provider": "anthropic"})
        large, too_large = self.calls(box, messages("usage: 5 0 7 " + "x" * (7 << 20)), messages("x" * (32 << 20)))
        self.assertEqual(large[0], 200, large)
        self.assertEqual(self.one(CLAUDE, "/v1/messages")["bytes"] >> 20, 7)
        self.refused(too_large, "the body of a call has more than 33554432 bytes")
        self.assertEqual(self.total(box, 1)["tokens_in"], 5)

    def test_spans(self):
        """OTLP's JSON: one trace, equal ids each time, the usage of each call, and the error of a refused one."""
        box = self.rules({"provider": "anthropic", "models": ["claude-sonnet-*"]})
        self.calls(box, messages("usage: 70 20 9"), messages("usage: 800 0 11", stream=True), messages("x", model="claude-opus-9"))
        self.total(box, 3)
        lines = [self.ended(hutch("llm", "spans", box), 0).stdout for _ in range(2)]
        self.assertEqual(lines[0], lines[1])
        [resource] = json.loads(lines[0])["resourceSpans"]
        self.assertIn({"key": "service.name", "value": {"stringValue": "hutch"}}, resource["resource"]["attributes"])
        spans = resource["scopeSpans"][0]["spans"]
        self.assertEqual((len(spans), len({s["spanId"] for s in spans}), len({s["traceId"] for s in spans})), (3, 3, 1))
        for span in spans:
            self.assertRegex(span["traceId"] + span["spanId"], "^[0-9a-f]{48}$")
            self.assertGreaterEqual(int(span["endTimeUnixNano"]), int(span["startTimeUnixNano"]))
            self.assertEqual(span["kind"], 3)
            span["values"] = {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}
        used = sorted((int(s["values"]["gen_ai.usage.input_tokens"]), int(s["values"]["gen_ai.usage.output_tokens"])) for s in spans)
        self.assertEqual(used, [(0, 0), (90, 9), (800, 11)])
        [refused] = [s for s in spans if "status" in s]
        self.assertEqual((refused["name"], refused["status"]["code"]), ("chat claude-opus-9", 2))
        self.assertEqual(refused["values"]["gen_ai.provider.name"], "anthropic")
        self.assertEqual(refused["values"]["error.type"], "denied by a rule on models")

    def test_table(self):
        box = self.rules({"provider": "anthropic"})
        self.call(box, messages("usage: 1000 0 100"))
        self.total(box, 1)
        out = self.ended(hutch("llm", "usage", box), 0).stdout.decode()
        self.assertRegex(out, r"sandbox +calls +denied +tokens in +cached +tokens out +cost\n")
        self.assertRegex(out, rf"{box} +1 +0 +1000 +0 +100 +\$0\.0045\n")
        self.assertEqual(hutch("llm", "usage", "--by", "color").returncode, 2)
        self.assertEqual(hutch("llm", "usage", "znosuchsandbox").returncode, 1)


class Refusals(LlmCase):
    def test_models(self):
        """The provider sees nothing of a refused call."""
        box = self.rules({"provider": "anthropic", "models": ["claude-haiku-*", "claude-sonnet-4-*"]}, {"provider": "gemini", "models": ["gemini-3*"]})
        answer = self.call(box, messages("x", model="claude-opus-9"))
        self.refused(answer, "model claude-opus-9 is not allowed")
        self.assertEqual(json.loads(answer[1])["error"]["type"], "invalid_request_error")
        self.assertEqual({k.lower(): v for k, v in answer[2].items()}["x-should-retry"], "false")
        self.refused(self.call(box, gemini("x")), "model gemini-2.5-flash is not allowed", 403)
        self.refused(self.call(box, [messages("x")[0], '{"model": "claude-haiku-1", "model": "claude-opus-9", "messages": []}']), "two models")
        self.refused(self.call(box, [f"https://{CLAUDE}/v1/messages/batches", say("x")]), "is not a call of a model")
        self.assertEqual(self.requests(CLAUDE) + self.requests(GEMINI), [])
        self.assertEqual(self.call(box, messages("x"))[0], 200)  # the control
        line = self.logged(box, model="claude-opus-9")[0]
        self.assertEqual((line["verdict"], line["reason"]), ("denied", "denied by a rule on models"))
        self.assertIn("claude-haiku-*", line["detail"])

    def test_other_requests(self):
        """Lists get the key, other reads do not, and a WebSocket is refused."""
        box = self.rules({"provider": "openai"})
        self.curl(box, f"https://{OPENAI}/v1/models")
        self.assertEqual(credentials(self.one(OPENAI, "/v1/models")), {"authorization": f"Bearer {self.keys['openai']}"})
        self.curl(box, f"https://{OPENAI}/v1/files")
        self.assertEqual(credentials(self.one(OPENAI, "/v1/files")), {})
        ws = "-H 'Connection: Upgrade' -H 'Upgrade: websocket' -H 'Sec-WebSocket-Version: 13' -H 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=='"
        self.assertEqual(self.status(box, ws, f"https://{OPENAI}/v1/responses"), "426")
        self.assertEqual(self.requests(OPENAI, "/v1/responses"), [])

    def test_plain_http_is_checked_too(self):
        key = self.key("OPENAI_API_KEY")
        rule = {"provider": "openai", "models": ["none"], "secret": "OPENAI_API_KEY"}
        box = self.tapped(domains=[f"{OPENAI}:80"], more=f"llm:\n  - {json.dumps(rule)}\n")
        said = self.curl(box, f"-d '{json.dumps(say('x'))}' http://{OPENAI}/v1/chat/completions").out
        self.assertIn("is not allowed", said)
        self.nothing_of(key)


class Budgets(LlmCase):
    def test_requests(self):
        box = self.rules({"provider": "anthropic", "budget": {"requests": 2}})
        self.assertEqual([self.call(box, messages("x"))[0] for _ in range(2)], [200, 200])
        answer = self.call(box, messages("x"))
        self.refused(answer, "2 of 2 requests used")
        self.assertEqual(len(self.requests(CLAUDE)), 2)
        row = self.total(box, 3)
        self.assertEqual((row["calls"], row["denied"]), (2, 1))

    def test_dollars(self):
        box = self.rules({"provider": "anthropic", "price": {"input": 1000, "output": 2000}, "budget": {"usd": 5}})
        self.assertEqual(self.call(box, messages("usage: 3000 0 1000"))[0], 200)  # $3 and $2
        self.refused(self.call(box, messages("x")), "$5.0000 of $5.00 used")
        self.assertEqual(self.total(box, 2)["microdollars"], 5000000)

    def test_no_price(self):
        box = self.rules({"provider": "anthropic", "budget": {"usd": 5}})
        self.refused(self.call(box, messages("x", model="claude-of-the-future")), "has no known price")
        self.assertEqual(self.call(box, messages("x"))[0], 200)

    def test_ends_in_a_stream(self):
        """The stream ends as at the limit of output, and the next call is refused."""
        # 1,000 events of 10 tokens each. Anthropic reports 1,000 tokens of input at the beginning; for the others the input
        # is a guess by the length of the body until the end.
        for call, end, most in ((messages("pieces: 1000", stream=True, max_tokens=50000), '"stop_reason":"max_tokens"', 51),
                          (chat("pieces: 1000", stream=True, max_tokens=50000), '"finish_reason":"length"', 148),
                          (responses("pieces: 1000", stream=True), "response.incomplete", 148)):
            box = self.rules({"provider": "anthropic" if CLAUDE in call[0] else "openai", "budget": {"tokens": 1500}})
            status, text, _ = self.call(box, call)
            self.assertEqual(status, 200)
            passed = text.count("0123456789" * 4)
            self.assertIn(end, text)
            self.assertLessEqual(passed, most)
            self.assertGreater(passed, most - 10)
            self.refused(self.call(box, call), "the budget of rule")
            row = self.total(box, 2)
            self.assertEqual((row["calls"], row["denied"]), (1, 1))

    def test_fifty_at_once(self):
        """No more is used than the budget and one answer; with less in flight, more calls fit."""
        box = self.rules({"provider": "anthropic", "budget": {"tokens": 20000}})
        answers = self.calls(box, *(messages(f"usage: 900 0 {i + 30} " + "word " * 540) for i in range(50)))
        served = [a for a in answers if a[0] == 200]
        for a in answers:
            if a[0] != 200:
                self.refused(a, "the budget of rule")
        used = sum(sum(json.loads(a[1])["usage"].values()) for a in served)
        self.assertEqual(len(self.requests(CLAUDE)), len(served))
        self.assertLessEqual(used, 20000 + 1100)
        self.assertGreater(used, 20000 - 1100, "the budget was used")
        row = self.total(box, 50)
        self.assertEqual(row["tokens_in"] + row["tokens_out"], used)

    def test_survives_a_killed_tap(self):
        box = self.rules({"provider": "anthropic", "budget": {"requests": 3, "tokens": 1000000}})
        self.assertEqual([self.call(box, messages("x"))[0] for _ in range(2)], [200, 200])
        self.kill_tap(box)
        self.assertEqual(eventually(lambda: (a := self.call(box, messages("x")))[0] and a, "an answer")[0], 200)
        self.kill_tap(box)
        self.refused(eventually(lambda: (a := self.call(box, messages("x")))[0] and a, "an answer"), "3 of 3 requests used")

    def kill_tap(self, box):
        tap = self.tap(box)
        os.kill(tap.pid, signal.SIGKILL)
        ended(tap.pid)
        self.assertNotIn(tap.pid, [t.pid for t in taps_of(box)])

    @in_machine
    def test_forks_share_and_a_resume_continues(self):
        box = self.rules({"provider": "anthropic", "budget": {"requests": 4}})
        self.assertEqual(self.call(box, messages("x"))[0], 200)
        [fork] = self.ended(hutch("fork", "-n", "1", box, env=self.config), 0).stdout.decode().split()
        self.addCleanup(hutch, "rm", "-f", fork)
        self.own.append(fork)
        self.assertEqual(self.call(fork, messages("x"))[0], 200)
        self.ended(hutch("suspend", box, env=self.config), 0)
        self.assertEqual(self.call(fork, messages("x"))[0], 200)
        self.ended(hutch("resume", box, env=self.config), 0)
        self.assertEqual(self.call(box, messages("x"))[0], 200)
        for one in (box, fork):
            self.refused(self.call(one, messages("x")), "4 of 4 requests used")


class Documented(LlmCase):
    """The first section of docs/LLM.md, as written there."""

    def test_five_commands(self):
        [name, text], session = next(e[1:] for e in examples() if e[0] == "file"), next(e[1] for e in examples() if e[0] == "session")
        commands = [step.partition("\n") for step in re.split(r"^\$ ", session, flags=re.M)[1:]]
        self.assertEqual(len(commands), 5)
        with tempfile.TemporaryDirectory() as tmp:
            work = Path(tmp)
            (work / "hutch").symlink_to(os.environ["HUTCH"])
            (work / name).write_text(text)
            (work / "key").write_text("hk-of-the-documented-session-0123456789\n")
            self.addCleanup(hutch, "secret", "rm", "ANTHROPIC_API_KEY")
            env = {**os.environ, **self.config, "PATH": f"{work}:{os.environ['PATH']}"}
            for command, _, shown in commands:
                if command.startswith("hutch llm"):
                    self.total(self.own[0], 1)
                r = subprocess.run(["bash", "-c", command], cwd=work, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
                self.assertEqual(r.returncode, 0, r)
                if command.startswith("hutch create"):
                    self.own.append((work / "id").read_text().strip())
                    self.addCleanup(hutch, "rm", "-f", self.own[0])
                    self.addCleanup(self.account_once)
                self.assertTrue(not shown.strip() or matches(shown, r.stdout.rstrip("\n") + "\n"), (shown, r.stdout))
        self.assertEqual(credentials(self.one(CLAUDE, "/v1/messages")), {"x-api-key": "hk-of-the-documented-session-0123456789"})


def examples():
    return list(guide_examples(Path(__file__).resolve().parents[2] / "docs/LLM.md"))
