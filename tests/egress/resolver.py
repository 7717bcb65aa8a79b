# SPDX-License-Identifier: Apache-2.0
"""
A DNS server that answers as the test sets it up and records every question. UDP and TCP.

A name's entry: {"a": [...], "aaaa": [...], "cname": NAME, "ttl": N} and, for dishonest or broken
servers:
  "then": ENTRY        the answers after the first one of each type (rebinding)
  "silent": true       no answer
  "rcode": N           an error
  "truncated": true    over UDP, only the truncation bit
  "wrong": "id" | "question" | "garbage" | "loop" | "long"
  "extra": {NAME: A}   unrequested records, in all three sections
A name without an entry does not exist.
"""

import ipaddress
import random
import socket
import struct
import threading
import time

TYPES = {1: "A", 2: "NS", 5: "CNAME", 12: "PTR", 15: "MX", 16: "TXT", 28: "AAAA", 33: "SRV", 65: "HTTPS", 255: "ANY"}
NXDOMAIN = 3


def encode(name):
    return b"".join(bytes([len(p)]) + p.encode("latin-1") for p in name.split(".") if p) + b"\0"


def decode(data, at):
    labels = []
    while data[at]:
        labels.append(data[at + 1:at + 1 + data[at]].decode("latin-1"))
        at += 1 + data[at]
    return ".".join(labels), at + 1


def record(name, kind, value, ttl):
    if kind in (1, 28):
        value = ipaddress.ip_address(value).packed
    elif kind == 5:
        value = encode(value)
    return encode(name) + struct.pack(">HHIH", kind, 1, ttl, len(value)) + value


class Resolver:
    def __init__(self, entries):
        self.entries = {k.lower(): v for k, v in entries.items()}
        self.asked = []  # (time, name as asked, type, "udp" or "tcp")
        self.seen = {}  # number of questions for each name and type
        self.lock = threading.Lock()

    def listen(self, ns, address="127.0.0.1", port=53):
        with ns:
            udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            udp.bind((address, port))
            tcp = socket.create_server((address, port), backlog=64)
        threading.Thread(target=self.serve_udp, args=(udp,), daemon=True).start()
        threading.Thread(target=self.serve_tcp, args=(tcp,), daemon=True).start()

    def serve_udp(self, s):
        while True:
            data, peer = s.recvfrom(4096)
            threading.Thread(target=self.reply, args=(data, "udp", lambda out, peer=peer: s.sendto(out, peer)), daemon=True).start()

    def serve_tcp(self, listener):
        while True:
            s, _ = listener.accept()
            threading.Thread(target=self.converse, args=(s,), daemon=True).start()

    def converse(self, s):
        with s, s.makefile("rb") as f:
            s.settimeout(300)
            try:
                while len(head := f.read(2)) == 2:
                    data = f.read(struct.unpack(">H", head)[0])
                    self.reply(data, "tcp", lambda out: s.sendall(struct.pack(">H", len(out)) + out))
            except OSError:
                pass

    def reply(self, data, how, send):
        try:
            name, end = decode(data, 12)
            kind = struct.unpack(">H", data[end:end + 2])[0]
        except (IndexError, struct.error):
            with self.lock:
                self.asked.append((time.time(), "unreadable " + data.hex(), "?", how))
            return
        with self.lock:
            self.asked.append((time.time(), name, TYPES.get(kind, str(kind)), how))
            count = self.seen[name.lower(), kind] = self.seen.get((name.lower(), kind), 0) + 1
            entry = self.find(name.lower(), count)
        if entry and entry.get("silent"):
            return
        try:
            for out in self.answers(data, end + 4, name, kind, entry, how):
                send(out)
        except OSError:
            pass

    def find(self, name, count):
        entry = self.entries.get(name)
        if entry is None:
            for suffix, e in self.entries.items():
                if suffix.startswith(".") and name.endswith(suffix):
                    entry = e
        if entry and count > 1 and "then" in entry:
            entry = entry["then"]
        return entry

    def answers(self, data, end, name, kind, entry, how):
        """Yields the bytes of each answer; usually there is one."""
        ident, question = data[:2], data[12:end]
        if entry is None or "rcode" in entry:
            yield ident + struct.pack(">HHHHH", 0x8580 | (NXDOMAIN if entry is None else entry["rcode"]), 1, 0, 0, 0) + question
            return
        if entry.get("truncated") and how == "udp":
            yield ident + struct.pack(">HHHHH", 0x8780, 1, 0, 0, 0) + question
            return
        found = self.records(name, kind, entry)
        extra = [record(n, 1, a, 60) for n, a in entry.get("extra", {}).items()]
        body = question + b"".join(found + extra * 3)
        wrong = entry.get("wrong")
        if wrong == "id":
            ident = bytes([ident[0] ^ 0xff, ident[1] ^ 0xff])
        if wrong == "question":
            body = encode("other.example.test") + question[-4:] + b"".join(found)
        if wrong == "loop":
            body = question + b"\xc0" + bytes([len(question) + 12]) + struct.pack(">HHIH", 1, 1, 60, 4) + b"\1\2\3\4"
        if wrong == "long":
            body = question + b"".join(found) + record(name, 16, b"\xff" + b"x" * 255, 60) * 60
        out = ident + struct.pack(">HHHHH", 0x8580, 1, len(found + extra), len(extra), len(extra)) + body
        yield bytes(random.choices(range(256), k=200)) if wrong == "garbage" else out

    def records(self, name, kind, entry, depth=0):
        ttl = entry.get("ttl", 60)
        if "cname" in entry:
            target = entry["cname"]
            more = self.entries.get(target.lower()) if depth < 16 else None
            return [record(name, 5, target, ttl)] + (self.records(target, kind, more, depth + 1) if more else [])
        values = entry.get({1: "a", 28: "aaaa"}.get(kind, ""), [])
        return [record(name, kind, v, ttl) for v in values]
