# SPDX-License-Identifier: Apache-2.0
"""
process.Process of hutchd, byte by byte: behaviour that the SDKs do not show. tests/conformance
tests the SDKs.
"""

import base64
import contextlib
import http.client
import json
import re
import unittest
import uuid

import hutchd
import sandbox
from hutchd import JSON, STREAM, envelope
from sandbox import PATIENCE, eventually, hutch


class Events(hutchd.Messages):
    """The events of a stream, as they arrive."""

    def close(self):
        self.connection.close()

    def __next__(self):
        return super().__next__()["event"]

    def pid(self):
        return next(self)["start"]["pid"]

    def outcome(self):
        """Returns the output on each stream, its end or None, and the error's code or None."""
        out, end = {"stdout": b"", "stderr": b"", "pty": b""}, None
        for event in self:
            for name, text in event.get("data", {}).items():
                if name != "offset":
                    out[name] += base64.b64decode(text)
            end = event.get("end", end)
        return out, end, self.trailer.get("error", {}).get("code")


class ProcessCase(sandbox.SandboxCase):
    @classmethod
    def setUpClass(cls):
        cls.server = hutchd.Server("--default-agent", sandbox.agent("process", "extends: e2b\nresources:\n  output: 4MiB\n"))
        cls.addClassCleanup(cls.server.stop)
        status, made = cls.server.api("POST", "/sandboxes", {"templateID": "base", "timeout": 3600 * PATIENCE})
        if status != 201:
            raise AssertionError(made)
        cls.box, cls.token = made["sandboxID"], made["envdAccessToken"]
        cls.addClassCleanup(cls.remove)

    @classmethod
    def remove(cls):
        hutch("rm", "-f", cls.box)

    def headers(self, kind, **more):
        named = {k.replace("_", "-"): v for k, v in more.items()}
        return {"E2b-Sandbox-Id": self.box, "E2b-Sandbox-Port": "49983", "X-Access-Token": self.token, "Content-Type": kind, **named}

    def stream(self, method, message, **headers):
        c = self.server.connection()
        self.addCleanup(c.close)
        c.request("POST", f"/process.Process/{method}", envelope(message), self.headers(STREAM, **headers))
        return Events(c)

    def start(self, script, more=None, **headers):
        return self.stream("Start", {"process": {"cmd": "/bin/sh", "args": ["-c", script]}, **(more or {})}, **headers)

    def call(self, method, message, kind=JSON):
        with contextlib.closing(self.server.connection()) as c:
            c.request("POST", f"/process.Process/{method}", message if isinstance(message, bytes) else json.dumps(message), self.headers(kind))
            answer = c.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if kind == JSON else text

    def done(self, method, message):
        self.assertEqual(self.call(method, message), (200, {}))

    def fails(self, method, message, status, code):
        got, answer = self.call(method, message)
        self.assertEqual((got, answer.get("code")), (status, code), answer)
        return answer["message"]

    def running(self):
        status, answer = self.call("List", {})
        self.assertEqual(status, 200)
        return {p["pid"]: p for p in answer["processes"]}

    # ---- Start ----
    def test_the_first_event_is_start_and_the_last_is_end(self):
        events = list(self.start("echo out; echo err >&2"))
        self.assertIn("start", events[0])
        self.assertEqual(events[-1], {"end": {"exitCode": 0, "exited": True, "status": "exit status 0"}})

    def test_a_status_a_signal(self):
        self.assertEqual(self.start("exit 7").outcome()[1], {"exitCode": 7, "exited": True, "status": "exit status 7", "error": "exit status 7"})
        _, end, _ = self.start("kill -TERM $$").outcome()
        self.assertEqual((end["exitCode"], end["exited"], end["status"]), (-1, False, "signal: terminated"))

    def test_large_output_is_whole_and_in_pieces_that_fit(self):
        sizes, total = [], b""
        for event in self.start("i=0; while [ $i -lt 20000 ]; do echo \"$i héllo wörld\"; i=$((i+1)); done"):
            if text := event.get("data", {}).get("stdout"):
                piece = base64.b64decode(text)
                piece.decode()  # between characters
                sizes.append(len(piece))
                total += piece
        self.assertEqual(total.decode(), "".join(f"{i} héllo wörld\n" for i in range(20000)))
        self.assertLessEqual(max(sizes), 32 * 1024)

    def test_half_a_character_is_not_kept_for_ever(self):
        events = self.start("printf 'a\\303'; sleep 1000")
        pid, seen = events.pid(), b""
        while seen != b"a\xc3":
            seen += base64.b64decode(next(events)["data"]["stdout"])
        self.done("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
        self.assertEqual(events.outcome()[1]["status"], "signal: killed")

    def test_the_environment(self):
        out, _, _ = self.stream("Start", {"process": {"cmd": "env", "envs": {"A": "b=c", "E": ""}, "args": None}, "unknown": [1]}).outcome()
        lines = out["stdout"].decode().splitlines()
        self.assertLessEqual({"E2B_SANDBOX=true", "A=b=c", "E="}, set(lines))

    def test_what_is_wrong_is_said_in_the_last_envelope(self):
        for message, code in (
            ({}, "invalid_argument"),
            ({"process": {"cmd": ""}}, "invalid_argument"),
            ({"process": {"cmd": "true", "args": "x"}}, "invalid_argument"),
            ({"process": {"cmd": "true", "args": [1]}}, "invalid_argument"),
            ({"process": {"cmd": "true", "envs": {"A=B": "c"}}}, "invalid_argument"),
            ({"process": {"cmd": "true", "envs": {"": "c"}}}, "invalid_argument"),
            ({"process": {"cmd": "true", "cwd": "/no/such"}}, "invalid_argument"),
            ({"process": {"cmd": "true"}, "tag": "Not A Name"}, "invalid_argument"),
            ({"process": {"cmd": "true"}, "stdin": "yes"}, "invalid_argument"),
            ({"process": {"cmd": "true", "args": ["x" * 200000]}}, "invalid_argument"),
            ({"process": {"cmd": "/no/such/program"}}, "not_found"),
            (b"[]", "invalid_argument"),
            (b"{", "invalid_argument"),
        ):
            events = self.stream("Start", message)
            self.assertEqual(events.answer.status, 200)
            self.assertEqual(events.outcome()[1:], (None, code), message)
        self.assertIn("cwd '/no/such' does not exist", json.dumps(self.trailer_of({"process": {"cmd": "true", "cwd": "/no/such"}})))

    def trailer_of(self, message):
        events = self.stream("Start", message)
        list(events)
        return events.trailer

    def test_broken_envelopes(self):
        good = envelope({"process": {"cmd": "true"}})
        for body in (b"", b"\0", good[:-1], good + b"x", good + good, b"\1" + good[1:], b"\2" + good[1:], b"\0\xff\xff\xff\xff{}"):
            status, text = self.call("Start", body, STREAM)
            self.assertEqual(status, 200)
            self.assertEqual((text[0], json.loads(text[5:])["error"]["code"]), (2, "invalid_argument"), body)

    def test_content_types(self):
        self.assertEqual(self.call("Start", b"{}", JSON)[0], 415)
        self.assertEqual(self.call("List", b"{}", "text/plain")[0], 415)

    def test_users(self):
        def basic(text):
            return "Basic " + base64.b64encode(text.encode()).decode()

        self.assertEqual(self.start("id -un", Authorization=basic("root:")).outcome()[0]["stdout"], b"root\n")
        for wrong in (basic("nobody-at-all:"), basic(":"), "Basic !", "Bearer x", basic("x" * 100 + ":")):
            self.assertEqual(self.start("id", Authorization=wrong).answer.status, 401, wrong)

    def test_the_time_limit_kills(self):
        events = self.start("echo a; sleep 1000", Connect_Timeout_Ms=str(10000 * PATIENCE))
        pid = events.pid()
        out, end, code = events.outcome()
        self.assertEqual((out["stdout"], end, code), (b"a\n", None, "deadline_exceeded"))
        eventually(lambda: pid not in self.running(), "the end of the command")

    def test_keepalive(self):
        events = self.start("sleep 1000", Keepalive_Ping_Interval="1")
        pid = events.pid()
        self.assertEqual(next(events), {"keepalive": {}})
        self.assertEqual(next(events), {"keepalive": {}})
        self.done("SendSignal", {"process": {"pid": str(pid)}, "signal": 9})

    def test_a_client_that_goes_leaves_its_command(self):
        events = self.start("sleep 1000; echo x")
        pid = events.pid()
        events.close()
        again = self.stream("Connect", {"process": {"pid": pid}})
        self.assertEqual(again.pid(), pid)
        self.assertIn(pid, self.running())
        self.done("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGTERM"})
        self.assertEqual(again.outcome()[1]["status"], "signal: terminated")

    # ---- List, Connect ----
    def test_list(self):
        more = {"tag": "listed"}
        events = self.stream("Start", {"process": {"cmd": "sleep", "args": ["1000"], "cwd": "/tmp", "envs": {"S": "secret"}}, **more})
        pid = events.pid()
        self.assertEqual(self.running()[pid],
                         {"pid": pid, "tag": "listed", "config": {"cmd": "sleep", "args": ["1000"], "cwd": "/tmp", "envs": {}}})
        self.assertEqual(self.stream("Start", {"process": {"cmd": "true"}, **more}).outcome()[2], "already_exists")
        self.done("SendSignal", {"process": {"tag": "listed"}, "signal": "SIGNAL_SIGKILL"})
        events.outcome()
        eventually(lambda: pid not in self.running(), "the end of the command")

    def test_an_end_is_told_again(self):
        events = self.start("echo x; exit 3")
        pid = events.pid()
        events.outcome()
        late = self.stream("Connect", {"process": {"pid": pid}})
        self.assertEqual(late.pid(), pid)
        out, end, _ = late.outcome()
        self.assertEqual((out["stdout"], end["exitCode"]), (b"", 3))
        for selector in ({"pid": 123456}, {"tag": "nobody"}):
            self.assertEqual(self.stream("Connect", {"process": selector}).outcome()[2], "not_found")
        for selector in ({}, {"pid": 1, "tag": "x"}, {"pid": -1}, {"pid": "1x"}, {"pid": 1.5}, {"tag": 5}, None):
            self.assertEqual(self.stream("Connect", {"process": selector}).outcome()[2], "invalid_argument", selector)

    def test_nothing_is_missed_from_an_offset_on(self):
        gates = [f"/tmp/gate-{uuid.uuid4().hex}" for _ in range(2)]
        first, then = (f"until [ -e {gate} ]; do sleep 0.05; done" for gate in gates)
        events = self.start(f"printf abc; {first}; printf def >&2; {then}; printf ghi", {"offsets": True})
        pid, pieces = events.pid(), {}
        for event in events:
            if data := event.get("data"):
                offset = int(data.pop("offset"))
                (name, text), = data.items()
                for i, byte in enumerate(base64.b64decode(text)):
                    pieces[offset + i] = (name, byte)
                if len(pieces) % 3 == 0 and gates:  # one stream is complete: continue with the other
                    self.assertEqual(hutch("exec", self.box, "--", "touch", gates.pop(0)).returncode, 0)
        whole = [("stdout", c) for c in b"abc"] + [("stderr", c) for c in b"def"] + [("stdout", c) for c in b"ghi"]
        self.assertEqual(pieces, dict(enumerate(whole)))
        for offset in (0, "4", 8, 9, 1000):
            out, end, _ = self.stream("Connect", {"process": {"pid": pid}, "offset": offset}).outcome()
            self.assertEqual(end["exitCode"], 0)
            rest = whole[int(offset):]
            self.assertEqual(out["stdout"], bytes(b for n, b in rest if n == "stdout"))
            self.assertEqual(out["stderr"], bytes(b for n, b in rest if n == "stderr"))

    def test_a_client_that_does_not_read_stops_nobody(self):
        total = 20000000
        events = self.start(f"head -c {total} /dev/zero; exec sleep 1000")
        other = self.stream("Connect", {"process": {"pid": events.pid()}})
        pid = other.pid()
        self.assertEqual(self.start("echo fine").outcome()[0]["stdout"], b"fine\n")
        eventually(lambda: "sleep" in hutch("exec", self.box, "--", "cat", f"/proc/{pid}/comm").stdout.decode(), "the end of the output")
        # The client was resumed while the command still printed, so there may be more than one gap.
        kept, next_ = 0, 0
        while True:
            size, next_ = self.read_to_gap(events, next_, total)
            kept += size
            if next_ == total:
                break
            events = self.stream("Connect", {"process": {"pid": pid}, "offset": str(next_)})
            events.pid()
        self.assertGreater(kept, 1 << 20)
        self.assertLess(kept, total)
        self.done("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})

    def read_to_gap(self, events, offset, total):
        """The number of bytes from an offset to the next gap or to the end, and the offset to
        continue at."""
        size = 0
        for event in events:
            size += len(base64.b64decode(event["data"]["stdout"]))
            if offset + size == total:
                return size, total
        self.assertEqual(events.trailer["error"]["code"], "aborted")
        said = re.match(r"(\d+) bytes of output from offset (\d+) on are not kept.* continue at offset (\d+)$", events.trailer["error"]["message"])
        self.assertEqual(int(said[2]), offset + size)
        self.assertEqual(int(said[1]) + int(said[2]), int(said[3]))
        return size, int(said[3])

    # ---- input ----
    def send(self, pid, data):
        self.done("SendInput", {"process": {"pid": pid}, "input": {"stdin": base64.b64encode(data).decode()}})

    def test_input_in_order(self):
        events = self.start("cat")
        pid = events.pid()
        for i in range(200):
            self.send(pid, b"%d\n" % i)
        self.done("CloseStdin", {"process": {"pid": pid}})
        self.assertEqual(events.outcome()[0]["stdout"], b"".join(b"%d\n" % i for i in range(200)))

    def test_much_input_waits_for_its_reader(self):
        events = self.start("sleep 1; wc -c")
        pid = events.pid()
        self.send(pid, b"x" * 3000000)
        self.done("CloseStdin", {"process": {"pid": pid}})
        self.assertEqual(events.outcome()[0]["stdout"].strip(), b"3000000")

    def test_what_cannot_be_sent(self):
        events = self.start("sleep 1000", {"stdin": False})
        pid = events.pid()
        text = {"input": {"stdin": "eA=="}}
        self.fails("SendInput", {"process": {"pid": pid}, **text}, 500, "internal")
        self.fails("CloseStdin", {"process": {"pid": pid}}, 500, "internal")
        self.fails("SendInput", {"process": {"pid": 123456}, **text}, 404, "not_found")
        self.fails("SendSignal", {"process": {"pid": 123456}, "signal": "SIGNAL_SIGKILL"}, 404, "not_found")
        self.fails("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGHUP"}, 501, "unimplemented")
        self.fails("SendSignal", {"process": {"pid": pid}}, 501, "unimplemented")
        for wrong in ({"input": {}}, {"input": {"stdin": "eA=", }}, {"input": {"stdin": "e A=="}}, {"input": {"stdin": "eA==", "pty": "eA=="}}, {}):
            self.fails("SendInput", {"process": {"pid": pid}, **wrong}, 400, "invalid_argument")
        self.done("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
        events.outcome()
        self.fails("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"}, 404, "not_found")
        events = self.start("exec cat")
        pid = events.pid()
        self.done("CloseStdin", {"process": {"pid": pid}})
        self.assertEqual(events.outcome()[1]["exitCode"], 0)
        self.assertIn(self.call("SendInput", {"process": {"pid": pid}, **text})[0], (404, 500))

    def test_stream_input(self):
        events = self.start("cat")
        pid = events.pid()
        parts = [base64.b64encode(b"%d\n" % i * 1000).decode() for i in range(100)]
        body = envelope({"start": {"process": {"pid": pid}}}) + b"".join(envelope({"data": {"input": {"stdin": p}}}) for p in parts)
        status, text = self.call("StreamInput", body + envelope({"keepalive": {}}), STREAM)
        self.assertEqual((status, text), (200, envelope({}) + b"\2\0\0\0\2{}"))
        self.done("CloseStdin", {"process": {"pid": pid}})
        self.assertEqual(events.outcome()[0]["stdout"], b"".join(b"%d\n" % i * 1000 for i in range(100)))
        for body in (envelope({}), envelope({"start": {}}), envelope({"start": {"process": {"pid": 1}}})[:-1],
                     envelope({"start": {"process": {"pid": pid}}}) + envelope({"what": 1})):
            status, text = self.call("StreamInput", body, STREAM)
            self.assertEqual((status, json.loads(text[5:])["error"]["code"]), (200, "invalid_argument"))

    def test_a_terminal(self):
        events = self.start("stty size; read x; stty size; echo got $x", {"pty": {"size": {"cols": 100, "rows": 30}}})
        pid, seen = events.pid(), b""
        while b"30 100" not in seen:
            seen += base64.b64decode(next(events)["data"]["pty"])
        self.done("Update", {"process": {"pid": pid}, "pty": {"size": {"cols": 90, "rows": "20"}}})
        self.done("SendInput", {"process": {"pid": pid}, "input": {"pty": "eWVzCg"}})
        self.assertRegex(events.outcome()[0]["pty"].decode(), r"20 90\r\n(.|\s)*got yes")

    # ---- others ----
    def test_commands_of_the_command_line(self):
        r = hutch("exec", "-d", "-i", "--name", "by-hand", self.box, "--", "cat")
        self.assertEqual(r.returncode, 0, r.stderr)
        row = next(p for p in self.running().values() if p.get("tag") == "by-hand")
        events = self.stream("Connect", {"process": {"tag": "by-hand"}})
        self.assertEqual(events.pid(), row["pid"])
        self.done("SendInput", {"process": {"tag": "by-hand"}, "input": {"stdin": "eA=="}})
        self.done("SendInput", {"process": {"pid": row["pid"]}, "input": {"stdin": "eQ=="}})
        self.done("CloseStdin", {"process": {"pid": row["pid"]}})
        out, end, _ = events.outcome()
        self.assertEqual((out["stdout"], end["exitCode"]), (b"xy", 0))
        hutch("exec", "-d", "--name", "by-hand", self.box, "--", "sleep", "1000")
        events = self.stream("Connect", {"process": {"tag": "by-hand"}})
        events.pid()
        self.done("SendSignal", {"process": {"tag": "by-hand"}, "signal": "SIGNAL_SIGTERM"})
        self.assertEqual(events.outcome()[1]["status"], "signal: terminated")

    def test_a_server_that_was_killed_is_not_missed(self):
        events = self.start("cat; exit 5", Connect_Timeout_Ms="600000")
        pid = events.pid()
        self.send(pid, b"before ")
        self.server.kill()
        with self.assertRaises((EOFError, OSError, http.client.HTTPException)):
            list(events)
        self.server.start()
        self.before.update(str(p) for p in sandbox.found([self.server.process.pid]))  # no leftover
        self.assertIn(pid, self.running())
        again = self.stream("Connect", {"process": {"pid": pid}, "offset": 0})
        self.send(pid, b"after")
        self.done("CloseStdin", {"process": {"pid": pid}})
        out, end, _ = again.outcome()
        self.assertEqual((out["stdout"], end["exitCode"]), (b"before after", 5))

    def test_the_end_of_a_sandbox_cuts_its_streams(self):
        _, made = self.server.api("POST", "/sandboxes", {"templateID": "base", "timeout": 3600 * PATIENCE})
        own, token = self.box, self.token
        self.box, self.token = made["sandboxID"], made["envdAccessToken"]
        try:
            events = self.start("sleep 1000")
            events.pid()
            self.assertEqual(self.server.api("DELETE", f"/sandboxes/{self.box}")[0], 204)
            with self.assertRaises((EOFError, OSError, http.client.HTTPException)):
                list(events)
            self.assertEqual(self.call("List", {})[0], 502)
        finally:
            self.box, self.token = own, token


if __name__ == "__main__":
    unittest.main()
