# SPDX-License-Identifier: Apache-2.0
"""
The keeper's end of the guest channel, written from src/wire/PROTOCOL.md alone: a second
implementation that checks the page. A thread reads; everything else waits with a deadline.
"""

import socket
import struct
import threading
import time

from sandbox import LONG

VERSION = 1
HEADER = struct.Struct(">IIBBH")
PAYLOAD_MAX = 65536
OPEN_MAX = 1048576
CREDIT_START = 262144
CREDIT_MAX = 1048576
SEED = 32
TIMEOUT = LONG

HELLO, PING, PONG, OPEN, ACCEPT, DATA, EOF, CREDIT, MSG, CLOSE, SLEEP, ASLEEP, WAKE = range(1, 14)
OPS = ["", "exec", "read", "write", "stat", "list", "mkdir", "move", "remove", "watch", "pack", "unpack", "attach", "egress", "life",
       "port", "connect", "ask", "adopt", "save", "trace"]
SIGNAL, RESIZE, EXIT, ENTRY, EVENT, LIMIT = range(1, 7)
CREATED, WRITTEN, REMOVED, RENAMED, ATTRIBUTES, LOST = range(1, 7)
FILE, DIRECTORY, SYMLINK, OTHER = range(1, 5)
(DONE, INVALID, NOT_FOUND, EXISTS, PERMISSION, NOT_DIRECTORY, IS_DIRECTORY, NOT_EMPTY, NO_SPACE, TOO_MANY, NO_USER,
 CANNOT_EXECUTE, IO, UNSUPPORTED, GONE, TIME_LIMIT) = range(16)

# name: (tag, type)
TAGS = {
    "version": (1, "number"), "agent": (2, "text"), "hostname": (3, "text"), "read": (4, "bytes"),
    "write": (5, "bytes"), "execute": (6, "bytes"), "argv": (7, "bytes"), "env": (8, "bytes"), "cwd": (9, "bytes"),
    "path": (10, "bytes"), "target": (11, "bytes"), "user": (12, "text"), "stdin": (13, "flag"),
    "columns": (14, "number"), "rows": (15, "number"), "rlimit": (16, "bytes"), "offset": (17, "number"),
    "length": (18, "number"), "mode": (19, "number"), "parents": (20, "flag"), "depth": (21, "number"),
    "recursive": (22, "flag"), "pid": (23, "number"), "number": (24, "number"), "event": (25, "number"),
    "kind": (26, "number"), "size": (27, "number"), "uid": (28, "number"), "gid": (29, "number"),
    "mtime_ns": (30, "number"), "code": (31, "number"), "signal": (32, "number"), "user_us": (33, "number"),
    "system_us": (34, "number"), "max_rss_kib": (35, "number"), "text": (36, "text"), "landlock": (37, "number"),
    "timeout": (38, "number"), "name": (39, "text"), "detach": (40, "flag"), "record": (41, "number"),
    "rule": (42, "text"), "deny": (43, "flag"), "replace": (48, "flag"),
    "on_timeout": (49, "number"), "want": (50, "number"), "deadline": (53, "number"),
    "owners": (52, "flag"), "port": (44, "number"), "owner": (45, "text"), "group": (46, "text"), "meta": (47, "bytes"), "follow": (51, "flag"),
    "seed": (54, "raw"), "time": (55, "number"), "machine": (56, "text"), "network": (57, "text"), "pids": (58, "number"),
    "host": (59, "text"), "egress": (60, "flag"), "limit": (61, "number"), "request": (62, "text"),
    "ca": (63, "text"),
}
NAMES = {tag: (name, kind) for name, (tag, kind) in TAGS.items()}

ENTRY_FIELDS = {"path", "kind", "size", "mode", "uid", "gid", "mtime_ns"}
ENTRY_MAY = {"target", "owner", "group", "meta"}
REPEATED = {"meta"}  # fields that a guest may repeat
EXIT_FIELDS = {"user_us", "system_us", "max_rss_kib"}


class Broken(Exception):
    """The guest violated the protocol."""


def as_bytes(value):
    return value.encode() if isinstance(value, str) else bytes(value)


def encode(**fields):
    """Fields by name; a list is a repeated field; None and False are left out."""
    out = []
    for name, value in fields.items():
        tag, kind = TAGS[name]
        for v in value if isinstance(value, (list, tuple)) else [value]:
            if v is None or v is False:
                continue
            raw = struct.pack(">Q", v) if kind == "number" else b"" if kind == "flag" else as_bytes(v)
            out.append((tag, bytes([tag]) + len(raw).to_bytes(3, "big") + raw))
    return b"".join(raw for _, raw in sorted(out, key=lambda x: x[0]))


def decode(payload):
    payload = bytes(payload)
    out, last, pos = {}, 0, 0
    while pos < len(payload):
        if len(payload) - pos < 4:
            raise Broken("a field without a whole header")
        tag, n = payload[pos], int.from_bytes(payload[pos + 1 : pos + 4], "big")
        raw = payload[pos + 4 : pos + 4 + n]
        name, kind = NAMES.get(tag, ("", ""))
        if not name or tag < last or (tag == last and name not in REPEATED) or len(raw) != n:
            raise Broken(f"field {tag} is unknown, out of order, repeated or cut")
        if kind == "number":
            if n != 8:
                raise Broken(f"number {name} has {n} bytes")
            out[name] = int.from_bytes(raw, "big")
        else:
            if kind != "raw" and b"\0" in raw:
                raise Broken(f"NUL in {name}")
            value = raw.decode() if kind == "text" else raw
            out[name] = out.get(name, []) + [value] if name in REPEATED else value
        last, pos = tag, pos + 4 + n
    return out


def rlimit(resource, soft, hard):
    return struct.pack(">BQQ", resource, soft, hard)


class Stream:
    def __init__(self):
        self.data = bytearray()
        self.total = 0
        self.got_eof = self.sent_eof = False
        self.may_send = CREDIT_START
        self.may_receive = CREDIT_START


class Channel:
    def __init__(self, link, number, op):
        self.link, self.number, self.op = link, number, op
        self.streams = [Stream() for _ in range(3)]
        self.accepted = None  # fields
        self.msgs = []  # (kind, fields)
        self.closed = None  # fields
        self.sent_close = False
        self.give_credit = True
        self.keep = True  # keep the received bytes; otherwise only count them

    # ---- sending ----
    def send(self, data, stream=0):
        data = memoryview(as_bytes(data))
        s = self.streams[stream]
        while data:
            self.link.wait(lambda: s.may_send > 0 or self.closed, "credit")
            if self.closed:
                raise BrokenPipeError(str(self.closed))
            piece = data[: min(s.may_send, PAYLOAD_MAX)]
            with self.link.lock:
                s.may_send -= len(piece)
            self.link.frame(DATA, self.number, stream, piece)
            data = data[len(piece) :]

    def eof(self, stream=0):
        self.streams[stream].sent_eof = True
        self.link.frame(EOF, self.number, stream)

    def credit(self, n, stream):
        with self.link.lock:
            self.streams[stream].may_receive += n
        self.link.frame(CREDIT, self.number, stream, struct.pack(">I", n))

    def signal(self, number):
        self.link.frame(MSG, self.number, SIGNAL, encode(number=number))

    def resize(self, columns, rows):
        self.link.frame(MSG, self.number, RESIZE, encode(columns=columns, rows=rows))

    def accept(self):
        """Accept a request of the guest, unless the guest has withdrawn it."""
        with self.link.lock:
            if self.sent_close:
                return False
            self.accepted = {}
        self.link.frame(ACCEPT, self.number)
        return True

    def close(self, code=0, text=None):
        with self.link.lock:
            if self.sent_close:
                return
            self.sent_close = True
        self.link.frame(CLOSE, self.number, 0, encode(code=code, text=text))

    # ---- waiting ----
    def wait_accepted(self, timeout=TIMEOUT):
        self.link.wait(lambda: self.accepted is not None or self.closed, "ACCEPT", timeout)
        return self.accepted

    def wait_closed(self, timeout=TIMEOUT):
        self.link.wait(lambda: self.closed, "CLOSE", timeout)
        return self.closed["code"]

    def wait_data(self, what, stream=1, timeout=TIMEOUT):
        """Waits until the bytes `what` have arrived; returns all bytes so far."""
        s = self.streams[stream]
        self.link.wait(lambda: what in s.data or self.closed, repr(what), timeout)
        if what not in s.data:
            raise AssertionError(f"{what!r} did not come, but {bytes(s.data)!r}, {self.closed}")
        return bytes(s.data)

    def wait_msg(self, test, what="a message", timeout=TIMEOUT):
        self.link.wait(lambda: any(test(k, f) for k, f in self.msgs) or self.closed, what, timeout)
        return next((f for k, f in self.msgs if test(k, f)), None)

    def entries(self):
        return [f for k, f in self.msgs if k == ENTRY]

    @property
    def exit(self):
        return next((f for k, f in self.msgs if k == EXIT), None)

    def out(self, stream=1):
        return bytes(self.streams[stream].data)


class Link:
    def __init__(self, sock):
        self.sock = sock
        self.lock = threading.Lock()
        self.write_lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.channels = {}
        self.next = 2
        self.guest = None  # HELLO
        self.pongs = []
        self.may_ask = False  # the guest has its own kernel, and egress is allowed
        self.asked = []  # requests that the guest has opened
        self.ended = False
        self.sleeping = self.asleep = False  # SLEEP was sent; ASLEEP was received
        self.held = []  # frames held until WAKE
        self.over = set()  # channels on which CLOSE was sent
        self.answered = set()  # channels that the guest closed first: later frames of a test are dropped
        self.broken = None  # the guest's protocol violation
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    # ---- sending ----
    def raw(self, data):
        with self.write_lock:
            self.sock.sendall(data)

    def frame(self, kind, channel=0, sub=0, payload=b"", answer=False):
        """`answer`: called by the reading thread; the channel may have been closed meanwhile."""
        data = HEADER.pack(len(payload), channel, kind, sub, 0) + bytes(payload)
        with self.write_lock:
            if channel in self.answered or (answer and kind == CREDIT and channel in self.over):
                return
            if kind == CLOSE:
                (self.answered if answer else self.over).add(channel)
            if self.sleeping and kind not in (WAKE, HELLO):
                self.held.append(data)
                return
            self.sleeping = kind == SLEEP
            self.sock.sendall(data + b"".join(self.held))
            self.held = []

    def hello(self, read=("/",), write=("/",), execute=("/",), hostname=None, wait=True, **more):
        self.may_ask = bool(more.get("egress"))
        self.frame(HELLO, 0, 0, encode(version=VERSION, hostname=hostname, read=list(read), write=list(write),
                                       execute=list(execute), **more))
        if wait:
            self.wait(lambda: self.guest, "HELLO")
        return self.guest

    def ping(self, token):
        self.frame(PING, 0, 0, struct.pack(">Q", token))
        self.wait(lambda: token in self.pongs, "PONG")

    def sleep(self, timeout=TIMEOUT):
        self.frame(SLEEP)
        self.wait(lambda: self.asleep, "ASLEEP", timeout)

    def wake(self, **fields):
        self.asleep = False
        self.frame(WAKE, 0, 0, encode(**fields))

    def hello_again(self, timeout=TIMEOUT, **fields):
        """Continues with a sleeping guest as another sandbox."""
        with self.lock:
            self.channels, self.next, self.guest = {}, 2, None
            self.asleep = False
        with self.write_lock:
            self.held, self.over, self.answered = [], set(), set()
        self.frame(HELLO, 0, 0, encode(version=VERSION, **fields))
        self.wait(lambda: self.guest, "HELLO", timeout)
        self.wake()

    def open(self, op, give_credit=True, **fields):
        with self.lock:
            ch = Channel(self, self.next, op)
            ch.give_credit = give_credit
            self.channels[ch.number] = ch
            self.next += 2
        self.frame(OPEN, ch.number, OPS.index(op), encode(**fields))
        return ch

    # ---- waiting ----
    def wait(self, test, what, timeout=TIMEOUT):
        end = time.monotonic() + timeout
        with self.changed:
            while not test():
                if self.broken:
                    raise Broken(self.broken)
                if self.ended:
                    raise EOFError(f"the link ended while waiting for {what}")
                if not self.changed.wait(max(0, end - time.monotonic())):
                    raise TimeoutError(f"{what} did not come within {timeout} s")

    def wait_ended(self, timeout=TIMEOUT):
        end = time.monotonic() + timeout
        with self.changed:
            while not self.ended:
                if not self.changed.wait(max(0, end - time.monotonic())):
                    raise TimeoutError("the link did not end")

    def close(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.thread.join(TIMEOUT)
        self.sock.close()

    # ---- receiving ----
    def _exactly(self, n):
        data = bytearray(n)
        view, got = memoryview(data), 0
        while got < n:
            k = self.sock.recv_into(view[got:])
            if k == 0:
                raise EOFError
            got += k
        return data

    def _run(self):
        try:
            while True:
                n, ch, kind, sub, zero = HEADER.unpack(self._exactly(HEADER.size))
                if n > PAYLOAD_MAX or zero:
                    raise Broken(f"frame of type {kind}: length {n}, zero {zero}")
                payload = self._exactly(n)
                with self.changed:
                    answers = self._take(ch, kind, sub, payload)
                    self.changed.notify_all()
                for a in answers:
                    self.frame(*a, answer=True)
        except (EOFError, OSError):
            pass
        except Exception as e:  # tests report it as the reason why nothing arrives
            self.broken = f"{type(e).__name__}: {e}"
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def _take(self, number, kind, sub, payload):
        if self.asleep:
            raise Broken(f"type {kind} from a guest that is asleep")
        if kind == HELLO:
            if self.guest or number or sub:
                raise Broken("HELLO again, or not on channel 0")
            self.guest = decode(payload)
            if self.guest.get("version") != VERSION or "agent" not in self.guest:
                raise Broken(f"HELLO {self.guest}")
            return []
        if not self.guest:
            raise Broken("something before HELLO")
        if kind in (PING, PONG):
            if number or sub or len(payload) != 8:
                raise Broken("a bad PING or PONG")
            token = struct.unpack(">Q", payload)[0]
            if kind == PING:
                return [(PONG, 0, 0, payload)]
            self.pongs.append(token)
            return []
        if kind == ASLEEP:
            if number or sub or payload or not self.sleeping:
                raise Broken("a bad ASLEEP")
            self.asleep = True
            return []
        if kind == OPEN:
            return self._take_open(number, sub, decode(payload))
        ch = self.channels.get(number)
        if ch is None or ch.closed:
            raise Broken(f"type {kind} on channel {number}, which is not open")
        return self._take_channel(ch, kind, sub, payload)

    def _take_open(self, number, sub, fields):
        op = OPS[sub] if sub < len(OPS) else ""
        if not self.may_ask or number % 2 == 0 or (self.asked and number <= self.asked[-1].number):
            raise Broken(f"OPEN of channel {number}")
        if set(fields) != {"connect": {"host", "port"}, "ask": {"host"}}.get(op):
            raise Broken(f"OPEN {op} with {fields}")
        ch = Channel(self, number, op)
        ch.fields = fields
        self.channels[number] = ch
        self.asked.append(ch)
        return []

    def _take_channel(self, ch, kind, sub, payload):
        if kind == CLOSE:
            fields = decode(payload)
            if "code" not in fields or set(fields) - {"code", "text"} or sub or len(fields.get("text", "").encode()) > 256:
                raise Broken(f"CLOSE {fields}")
            ch.closed = fields
            if ch.sent_close:
                return []
            ch.sent_close = True
            return [(CLOSE, ch.number, 0, encode(code=0))]
        if kind == ACCEPT:
            if ch.accepted is not None or sub:
                raise Broken("ACCEPT again")
            ch.accepted = decode(payload)
            self._check_accept(ch)
            return []
        if ch.accepted is None and not ch.sent_close:
            raise Broken(f"type {kind} before ACCEPT")
        if kind == MSG:
            return self._take_msg(ch, sub, decode(payload))
        if kind not in (DATA, EOF, CREDIT) or sub > 2:
            raise Broken(f"type {kind}, sub {sub} on channel {ch.number}")
        return self._take_stream(ch, kind, sub, payload)

    @staticmethod
    def _check_accept(ch):
        names = set(ch.accepted)
        if ch.op in ("exec", "attach", "adopt"):
            good = names - {"record"} == {"pid"}
        elif ch.op == "life":
            good = names == {"want", "deadline"}
        elif ch.op in ("list", "remove", "watch", "port", "egress"):
            good = not names
        else:
            good = names - ENTRY_MAY == ENTRY_FIELDS
        if not good:
            raise Broken(f"ACCEPT of {ch.op} with {names}")

    @staticmethod
    def _take_msg(ch, kind, fields):
        names = set(fields)
        if kind == EXIT:
            good = ch.op in ("exec", "adopt") and names - {"code", "signal"} == EXIT_FIELDS and len(names) == 4
        elif kind == ENTRY:
            good = ch.op in ("list", "write") and names - ENTRY_MAY == ENTRY_FIELDS
        elif kind == LIMIT:  # VMs only; can come at any time
            good = ch.op in ("exec", "adopt") and names == {"size", "limit"}
        else:
            good = kind == EVENT and ch.op == "watch" and {"event", "path"} <= names
        if not good:
            raise Broken(f"MSG {kind} with {names} for {ch.op}")
        if kind != LIMIT:
            ch.msgs.append((kind, fields))
        return []

    @staticmethod
    def _take_stream(ch, kind, sub, payload):
        s = ch.streams[sub]
        if kind == CREDIT:
            n = int.from_bytes(payload, "big")
            s.may_send += n
            if len(payload) != 4 or n == 0 or s.may_send > CREDIT_MAX:
                raise Broken(f"CREDIT of {n}")
            return []
        if s.got_eof:
            raise Broken("DATA or EOF after EOF")
        if kind == EOF:
            s.got_eof = True
            if payload:
                raise Broken("EOF with a payload")
            return []
        if not payload or len(payload) > s.may_receive:
            raise Broken(f"DATA of {len(payload)} with a credit of {s.may_receive}")
        s.total += len(payload)
        if ch.keep:
            s.data += payload
        if not ch.give_credit or ch.sent_close:
            s.may_receive -= len(payload)
            return []
        return [(CREDIT, ch.number, sub, struct.pack(">I", len(payload)))]
