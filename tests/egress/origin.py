# SPDX-License-Identifier: Apache-2.0
"""
API servers of the test's internet under real names, each with its own address, with and without
TLS. They record every byte of each connection and answer by the first segment of the path:

  /echo          the request as JSON: it reflects everything
  /reflect/FORM  the credential that the request carried, as FORM: plain, base64, url, hex, gzip,
                 chunks (one byte each), head (a header)
  /to?URL        a redirection                 /status?N   an answer with that status
  /big?N         N bytes                       /sink       reads the body
  /sse?GATE      two server-sent events        /half?GATE  half of an announced body, then the rest
  /ws            a WebSocket that echoes       /chunked?N  N bytes in chunks, with a trailer
  /h2c           continues by HTTP/2, if the request asks for that
  anything else  "ok"

The servers in PROTOCOLS speak HTTP/2, too, as http2.py describes.

Requests to a model's API are answered by models.py. A server for which World.do_expect() names a
value answers 401 to requests without it.

Between the two parts of /sse and /half the server waits for World.do_release(GATE).

The parser is lax on purpose: it accepts bare LF, obsolete folding, spaces before a colon and two
framings at once, so that a smuggled request is served and recorded. `lax=cl` anywhere in the target
makes Content-Length win over Transfer-Encoding. A strict program in front must not let such bytes
through; without one, they are the tests' control.
"""

import base64
import gzip
import hashlib
import itertools
import json
import os
import socket
import ssl
import subprocess
import threading
import time
from urllib.parse import quote, unquote

import http2
import models
import servers

HOSTS = {"api.github.com": "93.184.216.40", "github.com": "93.184.216.41", "api.anthropic.com": "93.184.216.42", "api.openai.com": "93.184.216.43",
         "registry.npmjs.org": "93.184.216.44", "generativelanguage.googleapis.com": "93.184.216.45", "upload.pypi.org": "93.184.216.46",
         "s3.eu-west-1.amazonaws.com": "93.184.216.47", "rules.hutch.test": "93.184.216.48", "evil.hutch.test": "93.184.216.49",
         "chatgpt.com": "93.184.216.52", "api.cloudflare.com": "93.184.216.53", "api.push.apple.com": "93.184.216.54", "h2.hutch.test": "93.184.216.55"}
# The protocols of ALPN; all others speak HTTP/1.1 only. A server may speak HTTP/2 alone.
PROTOCOLS = {"api.cloudflare.com": ["h2", "http/1.1"], "api.push.apple.com": ["h2"], "h2.hutch.test": ["h2", "http/1.1"]}
# Their certificates are not valid for these names.
BAD = {"selfsigned.hutch.test": "93.184.216.50", "othername.hutch.test": "93.184.216.51"}
CREDENTIALS = ("authorization", "x-api-key", "api-key", "x-goog-api-key", "private-token", "x-auth-token")
WS_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
KEEP, BODY_MAX, HEAD_MAX, IDLE = 1 << 16, 1 << 23, 1 << 18, 60
GATE_SECONDS = 1800  # far above the time of a test in an emulated VM


def openssl(*args):
    subprocess.run(["openssl", *args], check=True, capture_output=True)


def self_signed(where, name):
    cert, key = where / f"{name}.pem", where / f"{name}.key"
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}",
            "-keyout", key, "-out", cert)
    return cert, key


class Origin:
    """All these servers: `connections` has a record of each."""

    def __init__(self, ns, certificate, self_made):
        self.names = {a: n for n, a in {**HOSTS, **BAD}.items()}
        self.certificates = {name: certificate for name in HOSTS} | {"othername.hutch.test": certificate, "selfsigned.hutch.test": self_made}
        self.connections, self.gates, self.lock = [], {}, threading.Lock()
        self.expected, self.hold = {}, None  # {host: value}, and the gate before the end of a model's task
        self.listeners = [servers.Tcp(ns, address, port, self.serve_tls if port == 443 else self.serve_plain, reuse_port=True)
                          for address in self.names for port in (80, 443)]

    def gate(self, name):
        with self.lock:
            return self.gates.setdefault(name, threading.Event())

    def record(self, s, tls):
        to = s.getsockname()[0]
        conn = {"time": time.time(), "to": self.names[to], "tls": tls, "sni": None, "alpn": None, "offered": None, "error": None, "raw": "",
                "requests": []}
        with self.lock:
            self.connections.append(conn)
        return conn

    def serve_plain(self, s, _):
        conn = self.record(s, False)
        s.settimeout(IDLE)
        if conn["to"] in PROTOCOLS and s.recv(3, socket.MSG_PEEK | socket.MSG_WAITALL) == b"PRI":
            http2.Http2(self, s, conn).serve()
        else:
            self.serve(s, conn)

    def serve_tls(self, s, _):
        conn = self.record(s, True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.certificates[conn["to"]])
        protocols = PROTOCOLS.get(conn["to"], ["http/1.1"])
        context.set_alpn_protocols(protocols)
        context.sni_callback = lambda _, name, __: conn.__setitem__("sni", name)
        try:
            s = context.wrap_socket(s, server_side=True)
        except OSError as e:
            conn["error"] = f"{type(e).__name__}: {e}"
            return
        conn["alpn"] = s.selected_alpn_protocol()
        if conn["alpn"] == "h2":
            s.settimeout(IDLE)
            with s:
                http2.Http2(self, s, conn).serve()
        elif "http/1.1" in protocols:
            self.serve(s, conn)
        else:
            s.settimeout(IDLE)
            with s:
                conn["raw"] = s.recv(65536).decode("latin-1")

    def serve(self, s, conn):
        s.settimeout(IDLE)
        stream = Stream(s, conn)
        try:
            while request := stream.request():
                conn["requests"].append(request)
                if not Answer(self, s, stream, request).give():
                    break
        except (OSError, ValueError) as e:
            conn["error"] = f"{type(e).__name__}: {e}"
        finally:
            with s:
                if isinstance(s, ssl.SSLSocket):
                    try:
                        s.unwrap()
                    except (OSError, ValueError):
                        pass


class Stream:
    """The bytes of one connection; reads requests as a careless server does."""

    def __init__(self, s, conn):
        self.s, self.conn, self.data = s, conn, b""
        self.full = b""  # the whole body of the last request; the record has its beginning

    def more(self):
        got = self.s.recv(65536)
        if len(self.conn["raw"]) < KEEP:
            self.conn["raw"] += got.decode("latin-1")
        self.data += got
        return got

    def line(self):
        while b"\n" not in self.data:
            if len(self.data) > HEAD_MAX or not self.more():
                return None
        line, _, self.data = self.data.partition(b"\n")
        return line.removesuffix(b"\r").decode("latin-1")

    def exactly(self, n, keep):
        """Reads n bytes and returns the first `keep` of them."""
        kept = b""
        while n > 0:
            if not self.data and not self.more():
                raise ValueError("end in a body")
            part, self.data = self.data[:n], self.data[n:]
            n -= len(part)
            kept += part[:max(0, keep - len(kept))]
        return kept

    def request(self):
        first = ""
        while first == "":
            first = self.line()
            if first is None:
                return None
        method, _, rest = first.partition(" ")
        note = {"time": time.time(), "method": method, "target": rest.rpartition(" ")[0] or rest, "headers": [], "body": "", "bytes": 0,
                "complete": False}
        while line := self.line():
            if line[0] in " \t" and note["headers"]:
                note["headers"][-1][1] += line
            else:
                name, _, value = line.partition(":")
                note["headers"].append([name, value.strip()])
        if line is None:
            raise ValueError(f"end in a head: {first}")
        note["host"] = field(note, "host")
        return note

    def body(self, note):
        """Reads the body, chunked or not."""
        chunked, length = "chunked" in field(note, "transfer-encoding").lower(), field(note, "content-length")
        if chunked and not ("lax=cl" in note["target"] and length):
            self.full = self.chunks(note)
        else:
            note["bytes"] = int(length or 0)
            self.full = self.exactly(note["bytes"], BODY_MAX)
        if field(note, "content-encoding") == "gzip":
            self.full = gzip.decompress(self.full)
        note["body"], note["complete"] = self.full[:KEEP].decode("latin-1"), True

    def chunk_size(self):
        if (line := self.line()) is None:
            raise ValueError("end in a chunked body")
        return int(line.split(";")[0].strip() or "0", 16)

    def chunks(self, note):
        kept = b""
        while size := self.chunk_size():
            kept += self.exactly(size, max(0, BODY_MAX - len(kept)))
            note["bytes"] += size
            self.line()
        while self.line():
            pass
        return kept


def field(note, name):
    return next((v for k, v in note["headers"] if k.strip().lower() == name), "")


def credential(note):
    """The last word of the first credential of a request, or its query."""
    for name in CREDENTIALS:
        if value := field(note, name):
            return value.split()[-1]
    return note["target"].partition("?")[2]


class Answer:
    def __init__(self, origin, s, stream, note):
        self.origin, self.s, self.stream, self.note = origin, s, stream, note

    def give(self):
        """Answers; returns whether the connection stays."""
        note = self.note
        path, _, self.query = note["target"].partition("?")
        if "://" in path:
            path = "/" + path.split("/", 3)[-1]
        kind, _, self.rest = path.lstrip("/").partition("/")
        if field(note, "expect"):
            self.s.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        upgrade = field(note, "upgrade").lower().startswith("websocket")
        if kind == "h2c" and field(note, "upgrade").lower() == "h2c":
            self.do_h2c()
            return False
        if note["method"] != "CONNECT" and not upgrade:
            self.stream.body(note)
        if not self.expected():
            self.send(b"{\"error\": {\"message\": \"a wrong key\"}}\n", "401 Unauthorized", "Content-Type: application/json")
        elif upgrade or not self.model():
            (self.do_ws if upgrade else getattr(self, f"do_{kind}", self.do_other))()
        return field(note, "connection").lower() != "close" and not upgrade and kind != "half"

    def expected(self):
        """Whether the request has the value that its host expects."""
        value = self.origin.expected.get(self.stream.conn["to"])
        return not value or credential(self.note) == value

    def model(self):
        """Answers a request to a model, and returns whether it was one."""
        path = self.note["target"]
        if not (made := models.reply(path, self.stream.full)):
            return False
        events, whole, last, named = made
        self.wait_at_the_end(last)
        if not models.wants_stream(path, self.stream.full):
            self.send(json.dumps(whole).encode(), "200 OK", "Content-Type: application/json")
            return True
        self.s.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for event in events:
            text = (f"event: {event['type']}\n" if named else "") + f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n"
            self.s.sendall(b"%x\r\n%s\r\n" % (len(text.encode()), text.encode()))
        self.s.sendall(b"0\r\n\r\n")
        return True

    def wait_at_the_end(self, last):
        if last and self.origin.hold:
            self.origin.gate(self.origin.hold).wait(GATE_SECONDS)

    def send(self, body, status="200 OK", *headers):
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n" + "".join(f"{h}\r\n" for h in headers)
        self.s.sendall(head.encode("latin-1") + b"\r\n" + (b"" if self.note["method"] == "HEAD" else body))

    def do_other(self):
        self.send(f"ok {self.note['host']}\n".encode("latin-1"), "200 OK", "Content-Type: text/plain")

    def do_api(self):
        """Agent programs ask for settings and send statistics, and continue without."""
        self.send(b"{}\n", "404 Not Found", "Content-Type: application/json")

    def do_echo(self):
        shown = {k: v for k, v in self.note.items() if k != "time"}
        self.send(json.dumps(shown).encode(), "200 OK", "Content-Type: application/json")

    def do_reflect(self):
        value = credential(self.note).encode("latin-1")
        form = self.rest
        if form == "head":
            return self.send(b"in the head\n", "200 OK", f"X-Reflected: {value.decode('latin-1')}")
        if form == "gzip":
            return self.send(gzip.compress(b"before " + value + b" after\n"), "200 OK", "Content-Encoding: gzip")
        if form == "chunks":
            self.s.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for byte in b"before " + value + b" after\n":
                self.s.sendall(b"1\r\n%c\r\n" % byte)
            return self.s.sendall(b"0\r\n\r\n")
        turn = {"plain": bytes, "base64": base64.b64encode, "url": lambda v: quote(v.decode("latin-1"), safe="").encode(), "hex": lambda v: v.hex().encode()}
        return self.send(b"before " + turn[form](value) + b" after\n")

    def do_to(self):
        self.send(b"", "307 Temporary Redirect", f"Location: {unquote(self.query)}")

    def do_status(self):
        if self.query in ("204", "304"):
            return self.s.sendall(f"HTTP/1.1 {self.query} As Asked\r\n\r\n".encode())
        return self.send(b"as asked\n", f"{int(self.query)} As Asked")

    def do_sink(self):
        self.send(f"{self.note['bytes']}\n".encode())

    def do_big(self):
        left = int(self.query.split("&")[0])
        self.s.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {left}\r\n\r\n".encode())
        while left > 0:
            self.s.sendall(b"x" * min(left, 65536))
            left -= 65536

    def do_chunked(self):
        left = int(self.query)
        self.s.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n")
        while left > 0:
            part = min(left, 1000)
            self.s.sendall(b"%x\r\n%s\r\n" % (part, b"x" * part))
            left -= part
        self.s.sendall(b"0\r\nX-End: yes\r\n\r\n")

    def wait(self):
        if not self.origin.gate(self.query).wait(GATE_SECONDS):
            raise ValueError("the gate was not opened")

    def do_sse(self):
        self.s.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for i, event in enumerate((b"data: first\n\n", b"data: second\n\n")):
            if i:
                self.wait()
            self.s.sendall(b"%x\r\n%s\r\n" % (len(event), event))
        self.s.sendall(b"0\r\n\r\n")

    def do_half(self):
        self.s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nfirst half")
        self.wait()
        self.s.sendall(b"and second")

    def do_h2c(self):
        self.s.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
        server = http2.Http2(self.origin, self.s, self.stream.conn, field(self.note, "http2-settings").encode())
        server.serve(self.stream.data)

    def do_ws(self):
        key = field(self.note, "sec-websocket-key").encode()
        accept = base64.b64encode(hashlib.sha1(key + WS_GUID).digest()).decode()
        self.s.sendall(f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n".encode())
        while (text := websocket_read(self.stream)) is not None:
            for answer in self.frames(text):
                self.s.sendall(websocket_frame(answer))

    def frames(self, text):
        """A model's events for one request, or an echo."""
        if not (made := models.reply(self.note["target"], text)):
            return [text]
        self.wait_at_the_end(made[2])
        return [json.dumps(e).encode() for e in made[0]]


def websocket_read(stream):
    """The payload of one message of a client, or None at its close."""
    message = b""
    while True:
        head = stream.exactly(2, 2)
        size = head[1] & 0x7f
        if size >= 126:
            size = int.from_bytes(stream.exactly(2 if size == 126 else 8, 8), "big")
        mask = stream.exactly(4, 4)
        data = stream.exactly(size, BODY_MAX)
        data = bytes(a ^ b for a, b in zip(data, itertools.cycle(mask)))
        if head[0] & 0xf == 8:
            return None
        if head[0] & 0xf == 9:
            stream.s.sendall(b"\x8a" + bytes([len(data)]) + data)
            continue
        message += data
        if head[0] & 0x80:
            return message


def websocket_frame(data):
    size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + len(data).to_bytes(2, "big") if len(data) < 65536 else b"\x7f" + len(data).to_bytes(8, "big")
    return b"\x81" + size + data
