# SPDX-License-Identifier: Apache-2.0
"""
Tries to get out of a sandbox. Runs inside: test_egress.py sends this text followed by a few lines
of its own, which print JSON. Uses only Python's standard library. Each try returns a word: "ok",
the name of an error, or the peer's answer.
"""

import errno
import json
import os
import socket
import struct
import time

PROXY = ("127.0.0.1", 3128)
LATE = 120  # seconds; a longer try counts as hung
GO = "/tmp/go"  # a pipe


def say(value):
    print(json.dumps(value))


def word(e):
    return errno.errorcode.get(e.errno, str(e)) if isinstance(e, OSError) and e.errno else type(e).__name__


def attempt(what):
    """Returns [result of the try, seconds]."""
    start = time.monotonic()
    try:
        result = what()
    except (OSError, UnicodeError) as e:
        result = word(e)
    return [result, time.monotonic() - start]


def go():
    """Waits until the test has made its observations."""
    with open(GO, "rb") as f:
        f.read()


# ---- sockets ----
def tcp(host, port):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(LATE)
        s.connect((host, port))
        return "ok"


def udp(host, port, data=b"by udp", reply=LATE):
    """Returns the reply. A successful send alone shows nothing."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        s.settimeout(reply)
        s.connect((host, port))
        s.send(data)
        s.recv(2048)
        return "ok"


def other(family, kind, proto):
    with socket.socket(family, kind, proto):
        return "ok"


# ---- the resolver inside ----
def query(labels, kind=1):
    """Sends a DNS query whose labels may hold any bytes. Returns the response code and the
    address."""
    ident = os.urandom(2)
    name = b"".join(bytes([len(p)]) + p for p in labels) + b"\0"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(LATE)
        s.connect(("127.0.0.1", 53))
        s.send(ident + struct.pack(">HHHHH", 0x0100, 1, 0, 0, 0) + name + struct.pack(">HH", kind, 1))
        data = s.recv(4096)
    if data[:2] != ident:
        return "another answer"
    answers = struct.unpack(">H", data[6:8])[0]
    return ["rcode", data[3] & 15, socket.inet_ntoa(data[-4:]) if answers and kind == 1 else answers]


def lookup(name):
    return sorted({a[4][0] for a in socket.getaddrinfo(name, 443, proto=6)})


# ---- the proxy inside ----
def connect_line(target, headers=b"", more=b""):
    """Sends CONNECT with a target of any bytes. Returns the numeric status."""
    with socket.create_connection(PROXY, LATE) as s:
        s.sendall(b"CONNECT " + target + b" HTTP/1.1\r\nHost: " + target + b"\r\n" + headers + b"\r\n" + more)
        data = s.recv(4096)
        return int(data.split()[1]) if data.startswith(b"HTTP/1.") else "closed"


def socks(name, port, kind=3):
    """Sends a SOCKS5 request with a name of any bytes. Returns the reply code; 0 is success."""
    with socket.create_connection(PROXY, LATE) as s:
        s.sendall(b"\5\1\0")
        if s.recv(2) != b"\5\0":
            return "no"
        s.sendall(b"\5\1\0" + bytes([kind]) + (bytes([len(name)]) if kind == 3 else b"") + name + struct.pack(">H", port))
        data = s.recv(256)
        return data[1] if len(data) > 1 else "closed"


# ---- TLS, by hand ----
def extension(number, data):
    return struct.pack(">HH", number, len(data)) + data


def server_name(name):
    entry = b"\0" + struct.pack(">H", len(name)) + name
    return extension(0, struct.pack(">H", len(entry)) + entry)


def hello(names=(), ech=False, padding=0):
    """Returns the handshake message without records around it."""
    exts = b"".join(server_name(n) for n in names)
    exts += extension(10, b"\0\4\0\x1d\0\x17") + extension(11, b"\1\0") + extension(13, b"\0\x08\x04\x03\x08\x04\x04\x01\x08\x05")
    exts += extension(43, b"\4\3\4\3\3") + extension(51, b"\0\0")
    if ech:  # outer: HKDF-SHA256, AES-128-GCM, config 7, a random key and payload, as in GREASE
        exts += extension(0xfe0d, b"\0\0\1\0\1\7" + struct.pack(">H", 32) + os.urandom(32) + struct.pack(">H", 144) + os.urandom(144))
    if padding:
        exts += extension(21, b"\0" * padding)
    body = b"\3\3" + os.urandom(32) + b"\0" + b"\0\x0e\x13\x01\x13\x02\x13\x03\xc0\x2b\xc0\x2f\xc0\x30\x00\x9c" + b"\1\0"
    body += struct.pack(">H", len(exts)) + exts if exts else b""
    return b"\1" + struct.pack(">I", len(body))[1:] + body


def records(message, size=16384):
    return b"".join(b"\x16\3\1" + struct.pack(">H", len(message[i:i + size])) + message[i:i + size] for i in range(0, len(message), size))


def told(s):
    """Returns the peer's reaction: "answer N" with the type of the first record, "closed",
    "ECONNRESET" or "silent"."""
    s.settimeout(LATE)
    try:
        data = s.recv(4096)
    except TimeoutError:
        return "silent"
    except OSError as e:
        return word(e)
    return f"answer {data[0]}" if data else "closed"


def send(name, port, data, piece=0, end=False):
    """Connects by name, sends, and returns the peer's reaction."""
    with socket.create_connection((name, port), LATE) as s:
        try:
            for i in range(0, len(data), piece or len(data) or 1):
                s.sendall(data[i:i + (piece or len(data))])
            if end:
                s.shutdown(socket.SHUT_WR)
        except OSError as e:
            return word(e)
        return told(s)


def http(name, head, port=80):
    """Returns the status of the response, or how the connection ended."""
    with socket.create_connection((name, port), LATE) as s:
        try:
            s.sendall(head)
            s.settimeout(LATE)
            data = s.recv(4096)
        except OSError as e:
            return word(e)
        return int(data.split()[1]) if data.startswith(b"HTTP/1.") else "closed" if not data else "other"
