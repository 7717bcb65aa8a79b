# SPDX-License-Identifier: Apache-2.0
"""
The servers of origin.py by HTTP/2, which python3-h2 speaks. They note the frames and requests of
each connection, and answer by the first segment of the path:

  /reflect/FORM  the credential that the request carried, as FORM: plain, bytes (one in each frame),
                 head (a header), trailer
  /hold?GATE     answers after World.do_release(GATE)
  /sse?GATE      two server-sent events          /half?GATE  half of an announced body, then the rest
  /big?N         N bytes                         /sink       the number of bytes of the request's body
  anything else  "ok"

They are lax on purpose: fields in upper case, two authorities, a length unlike the body, CONNECT and
HTTP/2 without TLS are served and noted. A strict program in front must not let such bytes through;
without one, they are the tests' control.
"""

import collections
import contextlib
import select
import socket
import ssl
import threading
import time
from urllib.parse import unquote

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import h2.stream

KEEP, BODY_MAX, IDLE = 1 << 16, 1 << 26, 60
GATE_SECONDS = 300
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAMES = ("DATA", "HEADERS", "PRIORITY", "RST_STREAM", "SETTINGS", "PUSH_PROMISE", "PING", "GOAWAY", "WINDOW_UPDATE", "CONTINUATION")
# The library has no option for this check. A strict program in front must make it.
h2.stream.H2Stream._track_content_length = lambda *_: None


class Gone(Exception):
    """The stream was reset, or the connection has ended."""


class Frames:
    """Counts frames by type, also those that the library rejects."""

    def __init__(self):
        self.data, self.count = b"", collections.Counter()

    def feed(self, data):
        self.data += data
        self.data = self.data.removeprefix(PREFACE) if len(self.data) >= len(PREFACE) else self.data
        while len(self.data) >= 9 and not self.data.startswith(b"PRI"):
            n = 9 + int.from_bytes(self.data[:3], "big")
            if len(self.data) < n:
                break
            kind = self.data[3]
            self.count[FRAMES[kind] if kind < len(FRAMES) else str(kind)] += 1
            self.data = self.data[n:]


class Http2:
    """One connection: a thread reads, and each answer has a thread of its own."""

    def __init__(self, origin, s, conn, settings_field=None):
        """With the field HTTP2-Settings of a request that asked for h2c. Its response is left out."""
        self.origin, self.s, self.note = origin, s, conn
        self.frames, self.streams, self.left = Frames(), {}, 0
        self.lock, self.over = threading.Condition(), False
        self.wake, self.woken = socket.socketpair()
        self.wake.setblocking(False)
        config = h2.config.H2Configuration(client_side=False, header_encoding="latin-1", validate_inbound_headers=False,
                                           normalize_inbound_headers=False, validate_outbound_headers=False, normalize_outbound_headers=False)
        self.h2 = h2.connection.H2Connection(config)
        settings = h2.settings.SettingCodes
        self.h2.local_settings = h2.settings.Settings(client=False, initial_values={settings.MAX_CONCURRENT_STREAMS: 1000,
                                                                                    settings.MAX_HEADER_LIST_SIZE: 1 << 24})
        self.h2.decoder.max_header_list_size = 1 << 24
        conn["frames"] = {}
        if settings_field:
            self.h2.initiate_upgrade_connection(settings_field)
        else:
            self.h2.initiate_connection()
        self.send()

    # ---- bytes ----
    def send(self):
        if data := self.h2.data_to_send():
            self.s.sendall(data)

    def read(self):
        """b"" at the end. Reads only if there are bytes, because a call with the lock must not wait:
        OpenSSL does not allow two calls at once."""
        while not self.is_done():
            with self.lock:
                ready = isinstance(self.s, ssl.SSLSocket) and self.s.pending() > 0
            found = [self.s] if ready else select.select([self.s, self.woken], [], [], IDLE)[0]
            if self.s in found:
                with self.lock:
                    return self.s.recv(65536)
            if not found:
                break
            self.woken.recv(64)
        return b""

    def serve(self, early=b""):
        try:
            while data := early or self.read():
                early = b""
                self.frames.feed(data)
                self.note["frames"] = dict(self.frames.count)
                with self.lock:
                    self.take(data)
                    self.lock.notify_all()
        except (OSError, ValueError) as e:
            self.note["error"] = f"{type(e).__name__}: {e}"
        finally:
            with self.lock:
                self.over = True
                self.lock.notify_all()
            self.wake.close()

    def is_done(self):
        """After the client's GOAWAY, once all requests are answered or cannot be."""
        with self.lock:
            return self.frames.count["GOAWAY"] > 0 and (self.left == 0 or self.note["error"] is not None)

    def take(self, data):
        if self.note["error"]:
            return  # counts frames only
        try:
            events = self.h2.receive_data(data)
        except h2.exceptions.ProtocolError as e:
            self.note["error"] = f"{type(e).__name__}: {e}"
            events = []
        for event in events:
            self.on(event)
        self.send()

    # ---- requests ----
    def on(self, e):
        note = self.streams.get(getattr(e, "stream_id", None))
        if isinstance(e, h2.events.RequestReceived):
            self.begin(e)
        elif isinstance(e, h2.events.ConnectionTerminated):
            self.h2.state_machine.state = h2.connection.ConnectionState.SERVER_OPEN  # requests are still answered
        elif note is None:
            return
        elif isinstance(e, h2.events.DataReceived):
            note["bytes"] += len(e.data)
            note["body"] += e.data[:max(0, KEEP - len(note["body"]))].decode("latin-1")
            self.h2.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
        elif isinstance(e, h2.events.TrailersReceived):
            note["trailers"] = [[str(k), str(v)] for k, v in e.headers]
        elif isinstance(e, h2.events.StreamEnded):
            note["complete"] = True
            self.start(e.stream_id)
        elif isinstance(e, h2.events.StreamReset):
            note["reset"] = int(e.error_code)

    def begin(self, e):
        fields = [[str(k), str(v)] for k, v in e.headers]
        pseudo = {k: v for k, v in fields if k.startswith(":")}
        note = {"time": time.time(), "version": 2, "stream": e.stream_id, "method": pseudo.get(":method", ""), "target": pseudo.get(":path", ""),
                "host": pseudo.get(":authority", ""), "scheme": pseudo.get(":scheme"), "headers": [f for f in fields if not f[0].startswith(":")],
                "trailers": [], "body": "", "bytes": 0, "complete": False, "reset": None}
        self.streams[e.stream_id] = note
        self.note["requests"].append(note)

    # ---- responses ----
    def start(self, stream):
        self.left += 1
        threading.Thread(target=self.answer, args=(stream, self.streams[stream]), daemon=True).start()

    def answer(self, stream, note):
        try:
            kind, _, rest = note["target"].partition("?")[0].lstrip("/").partition("/")
            getattr(self, f"do_{kind}", self.do_other)(stream, note, rest, note["target"].partition("?")[2])
        except (Gone, OSError, h2.exceptions.ProtocolError):
            pass
        with self.lock:
            self.left -= 1
            with contextlib.suppress(OSError):  # enough bytes wait, or the connection has ended
                self.wake.send(b"x")

    def check(self, note):
        if self.over or note["reset"] is not None or self.note["error"]:
            raise Gone

    def head(self, stream, note, *fields, end=False, status="200"):
        with self.lock:
            self.check(note)
            self.h2.send_headers(stream, [(":status", status), *fields], end_stream=end)
            self.send()

    def data(self, stream, note, data, end=False):
        """Sends as much as the client's windows allow, and waits for more."""
        while data or end:
            with self.lock:
                self.check(note)
                n = min(len(data), self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size)
                if n == 0 and data:
                    self.lock.wait(1)
                    continue
                last = end and n == len(data)
                self.h2.send_data(stream, data[:n], end_stream=last)
                self.send()
                data, end = data[n:], end and not last

    def whole(self, stream, note, body, *fields, status="200"):
        self.head(stream, note, ("content-length", str(len(body))), *fields, status=status)
        self.data(stream, note, body, end=True)

    def wait(self, gate):
        if not self.origin.gate(gate.partition("&")[0]).wait(GATE_SECONDS):
            raise Gone

    def do_other(self, stream, note, *_):
        self.whole(stream, note, f"ok {note['host']}\n".encode("latin-1"), ("content-type", "text/plain"))

    def do_reflect(self, stream, note, form, _):
        value = next((v.split()[-1] for k, v in note["headers"] if k.lower() in ("authorization", "x-api-key") and v), "")
        if form == "head":
            return self.whole(stream, note, b"in the head\n", ("x-reflected", value))
        if form == "plain":
            return self.whole(stream, note, f"before {value} after\n".encode("latin-1"))
        self.head(stream, note, ("content-type", "text/plain"))
        if form == "bytes":
            for byte in f"before {value} after\n".encode("latin-1"):
                self.data(stream, note, bytes([byte]))
            return self.data(stream, note, b"", end=True)
        self.data(stream, note, b"in the trailer\n")
        with self.lock:
            self.check(note)
            self.h2.send_headers(stream, [("x-reflected", value)], end_stream=True)
            return self.send()

    def do_hold(self, stream, note, _, gate):
        self.wait(gate)
        self.do_other(stream, note)

    def do_sse(self, stream, note, _, gate):
        self.head(stream, note, ("content-type", "text/event-stream"))
        self.data(stream, note, b"data: first\n\n")
        self.wait(gate)
        self.data(stream, note, b"data: second\n\n", end=True)

    def do_half(self, stream, note, _, gate):
        self.head(stream, note, ("content-length", "20"))
        self.data(stream, note, b"first half")
        self.wait(gate)
        self.data(stream, note, b"and second", end=True)

    def do_to(self, stream, note, _, url):
        self.whole(stream, note, b"", ("location", unquote(url)), status="307")

    def do_big(self, stream, note, _, query):
        n = query.partition("&")[0]
        self.head(stream, note, ("content-length", n))
        left = int(n)
        while left > 0:
            part = min(left, 1 << 16)
            left -= part
            self.data(stream, note, b"x" * part, end=left == 0)

    def do_sink(self, stream, note, *_):
        self.whole(stream, note, f"{note['bytes']}\n".encode())
