# SPDX-License-Identifier: Apache-2.0
"""hutch audit, checked by a verifier that was written from hutch-audit(5) alone."""

import hashlib
import json
import os
import re
import struct
import unittest
from pathlib import Path

from support import Case, environment, hutch

HEADER = struct.Struct(">4sHHIIQ16sQQ32s32s32s")


def records(data):
    """Parses the records of a chain; an AssertionError where they violate the page."""
    at, seq, prev = 0, 0, bytes(32)
    while at < len(data):
        magic, kind, zero, length, zero2, number, _boot, _wall, _mono, digest, before, own = \
            HEADER.unpack_from(data, at)
        payload = data[at + HEADER.size:at + HEADER.size + length]
        assert magic == b"HAR1" and (zero, zero2) == (0, 0), "header"
        assert own == hashlib.sha256(data[at:at + 120]).digest(), "hash"
        assert len(payload) == length and digest == hashlib.sha256(payload).digest(), "payload"
        assert (number, before) == (seq, prev), "order"
        yield kind, seq, own, json.loads(payload)
        at, seq, prev = at + HEADER.size + length, seq + 1, own


# ---- Ed25519 (RFC 8032); slow, but enough for a few signatures ----

P, Q = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P


def add(a, b):
    (x1, y1, z1, t1), (x2, y2, z2, t2) = a, b
    e, f = (y1 - x1) * (y2 - x2) % P, (y1 + x1) * (y2 + x2) % P
    g, h = 2 * t1 * t2 * D % P, 2 * z1 * z2 % P
    e, f, g, h = f - e, h - g, h + g, f + e
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(n, point):
    total = (0, 1, 1, 0)
    while n:
        if n & 1:
            total = add(total, point)
        point, n = add(point, point), n >> 1
    return total


def point_of(data):
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & (1 << 255) - 1
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    assert x * x % P == square
    if x & 1 != sign:
        x = P - x
    return x, y, 1, x * y % P


BASE = point_of((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


def signed(key, message, signature):
    r, s = signature[:32], int.from_bytes(signature[32:], "little")
    h = int.from_bytes(hashlib.sha512(r + key + message).digest(), "little") % Q
    left, right = times(s, BASE), add(point_of(r), times(h, point_of(key)))
    return s < Q and (left[0] * right[2] - right[0] * left[2]) % P == 0 and \
        (left[1] * right[2] - right[1] * left[2]) % P == 0


def host_chain(directory, key):
    """Rules 1, 2 and 4 of the page for a complete log: (records, checkpoints)."""
    files = sorted(Path(directory).glob("host-*.log"))
    assert [f.name for f in files] == [f"host-{i:08d}.log" for i in range(len(files))]
    count, marks, before = 0, 0, None
    for kind, seq, own, payload in records(b"".join(f.read_bytes() for f in files)):
        if kind == 3:
            assert (payload["seq"], payload["hash"]) == (seq - 1, before.hex())
            assert bytes.fromhex(payload["key"]) == key
            text = b"hutch-audit-1" + struct.pack(">Q", seq - 1) + before
            assert signed(key, text, bytes.fromhex(payload["signature"])), "signature"
            marks += 1
        count, before = count + 1, own
    return count, marks


class Audit(Case):
    def setUp(self):
        super().setUp()
        self.log = Path(self.dir) / "audit"
        self.env = environment(HUTCH_AUDIT_DIR=str(self.log))

    def audit(self, *args, code=0, env=None):
        r = hutch("audit", *args, env=env or self.env)
        self.assertEqual(r.returncode, code, r.stderr + r.stdout)
        return r.stdout.decode()

    def key(self):
        return json.loads(self.audit("key", "--json"))["key"]

    def test_python_agrees(self):
        for _ in range(3):
            self.audit("checkpoint")
        self.assertEqual(host_chain(self.log, bytes.fromhex(self.key())), (4, 3))
        self.assertEqual(self.audit("verify"), "4 records in 1 chains, 3 checkpoints, all good\n")

    def test_both_find_what_is_wrong(self):
        for _ in range(2):
            self.audit("checkpoint")
        file = self.log / "host-00000000.log"
        good = file.read_bytes()
        for at in range(0, len(good), 41):
            file.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1:])
            with self.assertRaises((AssertionError, struct.error, ValueError)):
                host_chain(self.log, bytes.fromhex(self.key()))
            said = self.audit("verify", code=1)
            self.assertRegex(said, r"^host-00000000\.log, record \d+, byte \d+: ")
            self.assertLessEqual(int(re.search(r"byte (\d+)", said)[1]), at)
        file.write_bytes(good)
        self.audit("verify")

    def test_checkpoint_kept_elsewhere(self):
        self.audit("checkpoint")
        kept = Path(self.dir) / "kept"
        kept.write_text(self.audit("checkpoint"))
        self.audit("verify", "--from", str(kept))
        file = self.log / "host-00000000.log"
        first = next(records(file.read_bytes()))
        self.assertEqual(first[0], 1)
        length = 152 + struct.unpack_from(">I", file.read_bytes(), 8)[0]
        file.write_bytes(file.read_bytes()[:length])
        self.audit("verify")
        self.assertIn("the chain ends here", self.audit("verify", "--from", str(kept), code=1))

    def test_export_is_verified_elsewhere(self):
        self.audit("checkpoint")
        export = Path(self.dir) / "export"
        with export.open("wb") as out:
            self.assertEqual(hutch("audit", "export", env=self.env, stdout=out).returncode, 0)
        elsewhere = environment(HUTCH_AUDIT_DIR=str(Path(self.dir) / "other"))
        said = self.audit("verify", "--key", self.key(), str(export), env=elsewhere)
        self.assertEqual(said, "2 records in 1 chains, 1 checkpoints, all good\n")
        self.assertIn("another key", self.audit("verify", "--key", "00" * 32, str(export), code=1))
        self.assertFalse((Path(self.dir) / "other").exists())

    def test_show(self):
        self.audit("checkpoint")
        lines = self.audit("show").splitlines()
        self.assertEqual([line.split()[2] for line in lines], ["begin", "checkpoint"])
        objects = [json.loads(line) for line in self.audit("show", "--json").splitlines()]
        self.assertEqual([o["seq"] for o in objects], [0, 1])
        self.assertEqual(objects[1]["payload"]["hash"], objects[0]["hash"])
        self.assertEqual(self.audit("show", "--since", "2099-01-01T00:00:00Z"), "")
        self.assertEqual(len(self.audit("show", "--since", "1h").splitlines()), 2)
        self.assertEqual(self.audit("show", "--sandbox", "nobody"), "")
        self.audit("show", "--since", "yesterday", code=2)

    def test_closed_to_others(self):
        self.audit("key")
        self.assertEqual(os.stat(self.log).st_mode & 0o777, 0o700)
        self.assertEqual(os.stat(self.log / "key").st_mode & 0o777, 0o600)
        self.log.chmod(0o755)
        self.audit("show", code=125)


if __name__ == "__main__":
    unittest.main()
