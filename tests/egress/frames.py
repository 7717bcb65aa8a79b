# SPDX-License-Identifier: Apache-2.0
"""
HTTP/2 frames of a client that does as it likes: each function returns bytes as text (latin-1), as
probe() of tapped.py takes them. read() reads what came back.
"""

import re

import hpack

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
ACK = END_STREAM = 1
END_HEADERS, PADDED, PRIORITY = 4, 8, 0x20
PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags=0, stream=0, payload=b""):
    return (len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload).decode("latin-1")


def number(n, bits):
    """An integer of HPACK."""
    most = (1 << bits) - 1
    if n < most:
        return bytes([n])
    out, n = bytes([most]), n - most
    while n >= 128:
        out, n = out + bytes([n % 128 | 128]), n // 128
    return out + bytes([n])


def block(fields):
    """A head without tables and Huffman codes, so that any byte can be in it."""
    return b"".join(b"\0" + b"".join(number(len(t), 7) + t for t in (k.encode("latin-1"), v.encode("latin-1"))) for k, v in fields)


def head(stream, fields, end=True, split=None):
    """HEADERS, and CONTINUATION frames if `split` bytes are the most of one frame."""
    data = block(fields)
    parts = [data[i:i + split] for i in range(0, len(data), split)] if split else [data]
    flags = [END_HEADERS if i == len(parts) - 1 else 0 for i in range(len(parts))]
    flags[0] |= END_STREAM if end else 0
    return "".join(frame(CONTINUATION if i else HEADERS, flags[i], stream, part) for i, part in enumerate(parts))


def request(host, path, *more, method="GET", scheme="https"):
    return [(":method", method), (":scheme", scheme), (":authority", host), (":path", path), *more]


def data(stream, payload, end=True):
    return frame(DATA, END_STREAM if end else 0, stream, payload.encode("latin-1"))


def settings(*pairs):
    return frame(SETTINGS, 0, 0, b"".join(k.to_bytes(2, "big") + v.to_bytes(4, "big") for k, v in pairs))


def reset(stream, code=8):
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def goaway(code=0):
    """With it, a server closes the connection once all requests are answered."""
    return frame(GOAWAY, 0, 0, bytes(4) + code.to_bytes(4, "big"))


def session(*frames):
    """All that a client sends: it takes part in nothing, and says that this is all."""
    return "".join((PREFACE, settings(), *frames, goaway()))


class Answer:
    """`streams`: {number: {"heads": [{name: value}], "body", "reset"}}; a reset has its code."""

    def __init__(self, text):
        self.text, self.streams, self.goaway, self.frames = text, {}, None, []
        left, decoder, self.heads = text.encode("latin-1"), hpack.Decoder(), b""
        decoder.max_header_list_size = 1 << 24
        while len(left) >= 9 and len(left) >= 9 + int.from_bytes(left[:3], "big"):
            n = 9 + int.from_bytes(left[:3], "big")
            self.take(decoder, left[3], left[4], int.from_bytes(left[5:9], "big"), left[9:n])
            left = left[n:]

    def stream(self, i):
        return self.streams.setdefault(i, {"heads": [], "body": "", "reset": None, "ended": False})

    def take(self, decoder, kind, flags, i, payload):
        self.frames.append((kind, flags))
        if kind in (HEADERS, CONTINUATION):
            self.heads += payload
            if flags & END_HEADERS:
                self.stream(i)["heads"].append({str(k): str(v) for k, v in decoder.decode(self.heads)})
                self.heads = b""
        elif kind == DATA:
            self.stream(i)["body"] += payload.decode("latin-1")
        elif kind == RST_STREAM:
            self.stream(i)["reset"] = int.from_bytes(payload, "big")
        elif kind == GOAWAY:
            self.goaway = int.from_bytes(payload[4:8], "big")
        if kind in (HEADERS, DATA) and flags & END_STREAM:
            self.stream(i)["ended"] = True

    def status(self, i=1):
        """"" if the stream was reset, or if there was no answer."""
        heads = self.streams.get(i, {"heads": []})["heads"]
        return heads[0].get(":status", "") if heads else ""

    def __repr__(self):
        return f"<goaway {self.goaway}, {self.streams}, {re.sub('[^ -~]+', '.', self.text)[-200:]}>"


def read(text):
    return Answer(text)
