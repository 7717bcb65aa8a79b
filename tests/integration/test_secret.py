# SPDX-License-Identifier: Apache-2.0
"""hutch secret: sources of values, stored files, shown and hidden data. The values are read from the
files by a reader that was written from hutch-state(5) alone."""

import base64
import fcntl
import itertools
import json
import os
import pty
import select
import shutil
import signal
import stat
import struct
import subprocess
import tempfile
import termios
import unittest
from pathlib import Path

from support import Case, environment, hutch, hutch_path
from waiting import LONG, equals, eventually

VALUE = "ghp_0123456789abcdefghij"
NAMES = ("key", "lock")
CALLS = ("write", "fsync", "fchmod", "rename,renameat", "flock", "unlink,unlinkat", "openat2")


# ---- XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha-03, RFC 8439) ----

def rounds(state):
    """20 rounds of ChaCha20, without the final addition."""
    x = list(state)
    for _ in range(10):
        for a, b, c, d in ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15), (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)):
            for p, q, r, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                x[p] = (x[p] + x[q]) & 0xffffffff
                x[r] ^= x[p]
                x[r] = (x[r] << bits | x[r] >> 32 - bits) & 0xffffffff
    return x


def words(data):
    return list(struct.unpack(f"<{len(data) // 4}I", data))


def unseal(key, nonce, about, sealed):
    """The plain text, or None."""
    start = words(b"expand 32-byte k")
    x = rounds(start + words(key) + words(nonce[:16]))
    subkey, rest = x[:4] + x[12:], [0, *words(nonce[16:])]

    def block(n):
        state = start + subkey + [n] + rest
        return struct.pack("<16I", *((a + b) & 0xffffffff for a, b in zip(state, rounds(state))))

    text, tag = sealed[:-16], sealed[-16:]
    pad = lambda data: data + bytes(-len(data) % 16)
    r = int.from_bytes(block(0)[:16], "little") & 0x0ffffffc0ffffffc0ffffffc0fffffff
    sum_ = 0
    whole = pad(about) + pad(text) + struct.pack("<QQ", len(about), len(text))
    for i in range(0, len(whole), 16):
        sum_ = (sum_ + int.from_bytes(whole[i:i + 16] + b"\1", "little")) * r % ((1 << 130) - 5)
    if (sum_ + int.from_bytes(block(0)[16:32], "little")) % (1 << 128) != int.from_bytes(tag, "little"):
        return None
    stream = b"".join(block(1 + i) for i in range(len(text) // 64 + 1))
    return bytes(a ^ b for a, b in zip(text, stream))


class Secrets(Case):
    def setUp(self):
        super().setUp()
        self.state = self.dir / "state"
        self.store = self.state / "secrets"
        self.env = environment(HUTCH_STATE_DIR=str(self.state), HUTCH_AUDIT_DIR=str(self.dir / "audit"))

    def call(self, *args, given=None, env=None, **more):
        """Runs hutch secret; `given` is its standard input."""
        return subprocess.run([hutch_path(), "secret", *args], input=(given or "").encode(), env={**self.env, **(env or {})},
                              capture_output=True, timeout=LONG, check=False, **more)

    def secret(self, *args, code=0, **more):
        r = self.call(*args, **more)
        self.assertEqual(r.returncode, code, r.stderr + r.stdout)
        return (r.stdout if code == 0 else r.stderr).decode()

    def listed(self):
        return json.loads(self.secret("ls", "--json"))

    def sealed(self, name):
        return (self.store / f"{name}.value").read_bytes()

    def value(self, name):
        """The value of a secret, found as hutch-state(5) says."""
        o = json.loads(self.sealed(name))
        about = json.dumps({k: o[k] for k in ("set", "source", "command") if k in o}, sort_keys=True, indent=2)
        sealed = base64.b64decode(o["sealed"], validate=True)
        text = unseal((self.store / "key").read_bytes(), sealed[:24], b"hutch-secret-1\0" + name.encode() + b"\0" + about.encode(), sealed[24:])
        self.assertIsNotNone(text, "it is sealed in another way")
        return text.decode()

    def files(self):
        return sorted(f.name for f in self.store.iterdir() if f.name not in NAMES)

    def command(self, text, name="value.sh"):
        """A command that prints a value; its file's path."""
        path = Path(self.write(name, f"#!/bin/sh\n{text}\n"))
        path.chmod(0o700)
        return str(path)

    def check_nowhere(self, *values):
        """No value is in a file of the state directory or the audit log, or is printed."""
        said = [f.read_bytes() for d in (self.state, self.dir / "audit") for f in d.rglob("*") if f.is_file()]
        said += [self.secret("ls").encode(), self.secret("ls", "--json").encode()]
        said.append(hutch("audit", "show", "--json", "-v", env=self.env).stdout)
        for value in values:
            for text in said:
                self.assertNotIn(value.encode(), text)


class Store(Secrets):
    def test_none(self):
        self.assertEqual(self.listed(), [])
        self.assertRegex(self.secret("ls"), r"^NAME +SOURCE +HOSTS +SET +LAST USED\n$")
        self.assertIn("no secret 'X'", self.secret("rm", "X", code=1))
        self.assertIn("no secret 'X'", self.secret("rotate", "X", code=1, given=VALUE))
        self.assertFalse(self.state.exists())

    def test_set(self):
        self.assertEqual(self.secret("set", "GITHUB_TOKEN", given=VALUE + "\n"), "GITHUB_TOKEN: set\n")
        (row,) = self.listed()
        self.assertEqual({k: row[k] for k in ("name", "source", "command", "hosts", "used", "error")},
                         {"name": "GITHUB_TOKEN", "source": "stdin", "command": None, "hosts": [], "used": None, "error": None})
        self.assertRegex(self.secret("ls"), r"(?m)^GITHUB_TOKEN +stdin +- +20\S+Z +never$")
        self.assertEqual(self.files(), ["GITHUB_TOKEN.value"])
        self.assertEqual(self.value("GITHUB_TOKEN"), VALUE)
        for f in self.store.iterdir():
            self.assertEqual(stat.S_IMODE(f.stat().st_mode), 0o600, f)
        for d in (self.store, self.state):
            self.assertEqual(stat.S_IMODE(d.stat().st_mode), 0o700, d)
        self.check_nowhere(VALUE)

    def test_umask_does_not_matter(self):
        for mask in ("000", "077", "777"):
            with self.subTest(mask=mask):
                r = subprocess.run(["sh", "-c", f'umask {mask}; printf %s {VALUE} | "$0" secret set --replace A', hutch_path()],
                                   env=self.env, capture_output=True, check=False)
                self.assertEqual(r.returncode, 0, r.stderr)
                self.assertEqual(stat.S_IMODE((self.store / "A.value").stat().st_mode), 0o600)
                self.assertEqual(stat.S_IMODE(self.store.stat().st_mode), 0o700)

    def test_an_existing_secret(self):
        self.secret("set", "A", given=VALUE)
        before = self.sealed("A")
        self.assertIn("hutch secret rotate A", self.secret("set", "A", given="other value", code=1))
        self.assertEqual(self.sealed("A"), before)
        self.secret("set", "A", "--replace", given="other value")
        self.assertNotEqual(self.sealed("A"), before)
        self.secret("set", "B", "--replace", given="other value")
        self.assertEqual(self.secret("rotate", "A", given="third value"), "A: rotated\n")

    def test_rm(self):
        for name in ("A", "B", "C"):
            self.secret("set", name, given=VALUE)
        self.assertIn("no secret 'D'", self.secret("rm", "A", "D", code=1))
        self.assertEqual(len(self.listed()), 3, "all or none")
        self.assertEqual(self.secret("rm", "A", "C"), "A: removed\nC: removed\n")
        self.assertEqual([s["name"] for s in self.listed()], ["B"])
        self.assertEqual(self.files(), ["B.value"])

    def test_did_you_mean(self):
        self.secret("set", "GITHUB_TOKEN", given=VALUE)
        for words in (("rm", "GITHUB_TOKN"), ("rotate", "GITHUB_TOKE")):
            self.assertIn("did you mean 'GITHUB_TOKEN'?", self.secret(*words, given=VALUE, code=1))

    def test_the_audit_log(self):
        script = self.command("echo value-$$-of-command")
        self.secret("set", "A", given=VALUE)
        self.secret("set", "B", "--exec", "--", script)
        self.secret("rotate", "B")
        self.secret("rm", "A")
        log = hutch("audit", "show", env=self.env).stdout.decode()
        for op, name, source in (("set", "A", "stdin"), ("set", "B", "exec"), ("rotate", "B", "exec")):
            self.assertRegex(log, rf"(?m) secret +{op} +name={name} .*source={source}$")
            self.assertRegex(log, rf"(?m) secret +{op} +name={name} .*result=done$")
        self.assertRegex(log, r"(?m) secret +rm +name=A .*result=done$")
        self.assertEqual(hutch("audit", "verify", env=self.env).returncode, 0)
        self.check_nowhere(VALUE, "of-command")

    def test_without_an_audit_log_nothing_changes(self):
        self.secret("set", "A", given=VALUE)
        before = self.sealed("A")
        broken = {"HUTCH_AUDIT_DIR": self.write("file", "")}
        for words in (("set", "B"), ("set", "A", "--replace"), ("rotate", "A"), ("rm", "A")):
            self.assertNotEqual(self.call(*words, given="other value", env=broken).returncode, 0)
        self.assertEqual(self.files(), ["A.value"])
        self.assertEqual(self.sealed("A"), before)


class Sources(Secrets):
    def test_never_an_argument(self):
        for words in (("set", "A", VALUE), ("set", f"A={VALUE}"), ("set", "A", "--env", "X", VALUE), ("set", "A", "--", VALUE)):
            said = self.secret(*words, given=VALUE, code=2)
            self.assertIn("consider this value leaked", said)
            self.assertNotIn(VALUE, said)
        self.secret("set", "B", given=VALUE)
        self.assertIn("leaked", self.secret("rotate", "B", VALUE, given=VALUE, code=2))
        self.assertEqual(self.files(), ["B.value"])

    def test_values(self):
        for bad, why in (("", "empty"), ("\n", "empty"), ("1234567", "shorter than 8"), ("12345678\n\n", "more than one line"),
                         ("12345678\nabc", "more than one line"), ("1234\t5678", "control character"), ("1234\0005678", "control character"),
                         (" 12345678", "space"), ("x" * 8193, "longer than 8192"), ("x" * 1000000, "longer than 8192")):
            with self.subTest(bad=bad[:20]):
                said = self.secret("set", "A", given=bad, code=1)
                self.assertIn(why, said)
                self.assertIn("nothing is changed", said)
                self.assertNotIn("1234\t", said)
        self.assertIn("UTF-8", subprocess.run([hutch_path(), "secret", "set", "A"], input=b"1234\xff5678", env=self.env,
                                              capture_output=True, check=False).stderr.decode())
        self.assertFalse(self.store.exists() and self.files())
        for i, good in enumerate(("12345678", "12345678\n", "12345678\r\n", "päss wörd", "x" * 8192, "x" * 8192 + "\r\n")):
            self.secret("set", f"GOOD_{i}", given=good)
            self.assertEqual(self.value(f"GOOD_{i}"), good.rstrip("\r\n"))

    def test_file(self):
        path = self.write("token", VALUE + "\n")
        os.chmod(path, 0o644)
        r = self.call("set", "A", "--file", path)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("other users can read this file", r.stderr.decode())
        os.chmod(path, 0o600)
        self.assertEqual(self.call("set", "B", "-f", path).stderr, b"")
        self.assertEqual([s["source"] for s in self.listed()], ["file", "file"])
        for bad in (str(self.dir), "/dev/zero", str(self.dir / "none")):
            self.secret("set", "C", "--file", bad, code=1)
        r = subprocess.run(["bash", "-c", f'"$0" secret set C --file <(printf %s {VALUE})', hutch_path()], env=self.env,
                           capture_output=True, check=False)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual([self.value(name) for name in "ABC"], [VALUE] * 3)
        self.check_nowhere(VALUE)

    def test_variable(self):
        self.secret("set", "A", "--env", "TOKEN", env={"TOKEN": VALUE})
        self.assertEqual((self.listed()[0]["source"], self.value("A")), ("env", VALUE))
        self.assertIn("no variable 'NONE'", self.secret("set", "B", "-e", "NONE", code=1))
        self.assertIn("longer", self.secret("set", "B", "-e", "LONG", code=1, env={"LONG": "x" * 9000}))
        self.check_nowhere(VALUE)

    def test_command(self):
        script = self.command('echo "value of $1, $(cat "$0.count")"\necho told >&2')
        Path(script + ".count").write_text("first")
        r = self.call("set", "A", "--exec", "--", script, "a b", "--json")
        self.assertEqual((r.returncode, r.stderr), (0, b"told\n"))
        (row,) = self.listed()
        self.assertEqual((row["source"], row["command"]), ("exec", [script, "a b", "--json"]))
        self.assertEqual(self.value("A"), "value of a b, first")
        Path(script + ".count").write_text("second")
        self.secret("rotate", "A", given="another value")  # the command wins over standard input
        self.assertEqual(self.value("A"), "value of a b, second")
        self.assertEqual(self.listed()[0]["command"], row["command"])
        self.secret("rotate", "A", "--env", "TOKEN", env={"TOKEN": VALUE})
        self.assertEqual((self.listed()[0]["source"], self.listed()[0]["command"]), ("env", None))
        self.check_nowhere("value of a b")

    def test_no_shell(self):
        self.secret("set", "A", "--exec", "--", "echo", "$HOME; `id` value")
        self.assertEqual(self.listed()[0]["command"], ["echo", "$HOME; `id` value"])
        self.assertEqual(self.value("A"), "$HOME; `id` value")

    def test_commands_that_fail(self):
        self.secret("set", "A", given=VALUE)
        before = self.sealed("A")
        failing = self.command(f"echo {VALUE}; exit 3")
        killed = self.command("kill -9 $$", "killed.sh")
        for words, why in (((failing,), "status 3"), ((killed,), "signal 9"), (("nonesuch-command",), "no program"),
                           (("./value.sh",), "absolute path"), (("yes",), "longer than"), (("true",), "empty"),
                           ((str(self.dir / "none"),), "none"), (("",), "empty")):
            said = self.secret("set", "A", "--replace", "--exec", "--", *words, code=1, cwd=self.dir)
            self.assertIn(why, said)
            self.assertNotIn(VALUE, said)
        self.secret("set", "A", "--exec", code=2)
        self.secret("set", "A", "--exec", "--env", "X", "--", "true", code=2)
        self.assertEqual(self.sealed("A"), before)

    def test_a_command_that_leaves_a_process_behind(self):
        """The end of the command is the end of the value: nothing waits for its children."""
        os.mkfifo(self.dir / "fifo")
        script = self.command(f'cat "{self.dir}/fifo" 2>/dev/null & echo "{VALUE}"')
        self.secret("set", "A", "--exec", "--", script)
        self.assertEqual(self.value("A"), VALUE)
        with open(self.dir / "fifo", "w", encoding="ascii"):  # ends the child
            pass

    def test_names(self):
        for bad in ("", "1A", "A-B", "../A", "A.value", "x" * 65, "ä"):
            self.secret("set", bad, given=VALUE, code=2)
            self.secret("rm", bad, code=2)
        self.secret("set", "x" * 64, given=VALUE)

    def test_memory_is_hidden(self):
        """No core dump, and no ptrace by other processes of the user: /proc/PID/environ then belongs
        to root. The leak check of a sanitized program needs ptrace."""
        owner = 65534 if os.geteuid() == 0 else os.geteuid()
        # Another user reaches neither a private build nor our own directory.
        place = Path(tempfile.mkdtemp(prefix="hutch-test-", dir="/tmp"))
        self.addCleanup(shutil.rmtree, place)
        program = shutil.copy(hutch_path(), place / "hutch")
        os.chown(place, owner, -1)
        env = {**self.env, "HUTCH_STATE_DIR": str(place / "state"), "HUTCH_AUDIT_DIR": str(place / "audit")}
        p = subprocess.Popen([program, "secret", "set", "A"], env=env, cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             user=owner if os.geteuid() == 0 else None)
        try:
            wanted = owner if b"__asan_init" in Path(program).read_bytes() else 0
            equals(lambda: os.stat(f"/proc/{p.pid}/environ").st_uid, wanted, "the owner of its memory")
        finally:
            p.communicate(VALUE.encode())
        self.assertEqual(p.returncode, 0)


class Terminal(Secrets):
    """The prompt, on a terminal of its own."""

    def start(self, *words):
        main, side = pty.openpty()
        self.addCleanup(os.close, main)
        p = subprocess.Popen([hutch_path(), "secret", *words], env=self.env, stdin=side, stdout=side, stderr=side, start_new_session=True,
                             preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        self.addCleanup(os.close, side)
        self.seen = ""
        return p, main, side

    def until(self, main, text):
        """Reads until the terminal shows `text`."""
        def more():
            while select.select([main], [], [], 0)[0]:
                self.seen += os.read(main, 4096).decode()
            return text in self.seen
        eventually(more, f"the terminal shows {text!r}", also=lambda: self.seen)

    def echoes(self, side):
        return bool(termios.tcgetattr(side)[3] & termios.ECHO)

    def answer(self, main, *answers):
        for prompt, text in zip(("value of A: ", "the same again for A: "), answers):
            self.until(main, prompt)
            self.seen = ""
            os.write(main, text.encode() + b"\n")

    def test_twice_and_silent(self):
        p, main, side = self.start("set", "A")
        self.answer(main, VALUE, VALUE)
        self.until(main, "A: set")
        self.assertEqual(p.wait(LONG), 0)
        self.assertNotIn(VALUE[:8], self.seen)
        self.assertTrue(self.echoes(side))
        self.assertEqual((self.listed()[0]["source"], self.value("A")), ("prompt", VALUE))
        self.check_nowhere(VALUE)

    def test_two_values(self):
        p, main, side = self.start("set", "A")
        self.answer(main, VALUE, VALUE + "x")
        self.until(main, "the two values differ")
        self.assertEqual(p.wait(LONG), 1)
        self.assertTrue(self.echoes(side))
        self.assertEqual(self.listed(), [])

    def test_interrupted(self):
        for keys, number in ((b"\x03", signal.SIGINT), (b"\x1c", signal.SIGQUIT)):
            p, main, side = self.start("set", "A")
            self.until(main, "value of A: ")
            self.assertFalse(self.echoes(side))
            os.write(main, b"half a val" + keys)
            self.assertEqual(p.wait(LONG), -number)
            self.assertTrue(self.echoes(side))
        p, main, side = self.start("set", "A")
        self.until(main, "value of A: ")
        os.write(main, b"\x04")
        self.assertEqual(p.wait(LONG), 1)
        self.until(main, "no value")
        self.assertEqual(self.listed(), [])

    def test_stopped_and_continued(self):
        p, main, side = self.start("set", "A")
        self.until(main, "value of A: ")
        self.seen = ""
        # The session's leader has no parent in it, so the key would not stop it: SIGTSTP, and
        # the kernel drops it for an orphaned group. The prompt comes again.
        os.kill(p.pid, signal.SIGTSTP)
        self.answer(main, VALUE, VALUE)
        self.until(main, "A: set")
        self.assertEqual(p.wait(LONG), 0)

    def test_a_line_that_the_terminal_cuts(self):
        p, main, _ = self.start("set", "A")
        self.until(main, "value of A: ")
        for _ in range(5):
            os.write(main, b"x" * 1000)
        os.write(main, b"\n")
        self.until(main, "too long for a line of a terminal")
        self.assertEqual(p.wait(LONG), 1)


class Damage(Secrets):
    def test_an_unreadable_file_hides_no_other(self):
        for name in ("A", "B", "C"):
            self.secret("set", name, given=VALUE)
        (self.store / "B.value").write_text("{}")
        (self.store / "C.json").write_text('{"version": 1, "hosts": [], "who": 1}')
        r = self.call("ls")
        self.assertEqual(r.returncode, 125)
        self.assertRegex(r.stdout.decode(), r"(?m)^A +stdin .*\nB +unreadable +- +- +-\nC +stdin ")
        self.assertIn("B.value", r.stderr.decode())
        self.assertIn("C.json", r.stderr.decode())
        rows = {s["name"]: s for s in json.loads(self.call("ls", "--json").stdout)}
        self.assertIsNone(rows["A"]["error"])
        self.assertIn("B.value", rows["B"]["error"])
        self.secret("set", "B", "--replace", given=VALUE)
        self.secret("rm", "C")
        self.assertEqual([s["error"] for s in self.listed()], [None, None])

    def test_links_and_others(self):
        self.secret("set", "A", given=VALUE)
        victim = Path(self.write("victim", "precious"))
        (self.store / "B.value").symlink_to(victim)
        self.assertNotEqual(self.call("ls").returncode, 0)
        self.secret("set", "B", "--replace", given=VALUE)
        self.secret("set", "C", given=VALUE)
        self.assertEqual(victim.read_text(), "precious")
        (self.store / "lock").unlink()
        (self.store / "lock").symlink_to(victim)
        self.secret("set", "D", given=VALUE, code=125)
        self.assertEqual(victim.read_text(), "precious")
        (self.store / "lock").unlink()
        self.store.rename(self.dir / "elsewhere")
        self.store.symlink_to(self.dir / "elsewhere")
        self.assertIn("symbolic link", self.secret("set", "D", given=VALUE, code=125))

    def test_access_by_others(self):
        self.secret("set", "A", given=VALUE)
        self.store.chmod(0o750)
        for words in (("ls",), ("set", "B"), ("rm", "A")):
            self.assertIn("others have access", self.secret(*words, given=VALUE, code=125))
        self.store.chmod(0o700)
        (self.store / "key").chmod(0o640)
        self.assertIn("others have access", self.secret("set", "B", given=VALUE, code=125))
        if os.geteuid() == 0:
            (self.store / "key").chmod(0o600)
            os.chown(self.store, 65534, 65534)
            self.assertIn("belongs to uid 65534", self.secret("ls", code=125))

    def test_a_lost_key(self):
        self.secret("set", "A", given=VALUE)
        (self.store / "key").unlink()
        said = self.secret("set", "B", given=VALUE, code=125)
        self.assertIn("host key", said)
        self.assertIn("hutch secret rm", said)
        self.secret("rm", "A")
        self.secret("set", "B", given=VALUE)

    @unittest.skipUnless(os.geteuid() == 0, "mounts a small file system")
    def test_a_full_disk(self):
        """In a mount namespace: the old value stays, and no file is left behind."""
        script = f"""set -e
            mkdir -p {self.state}; mount -t tmpfs -o size=64k,mode=700 none {self.state}
            printf %s {VALUE} | "$0" secret set A
            cp {self.store}/A.value {self.dir}/before
            cat /dev/zero > {self.state}/filler 2>/dev/null || true
            if printf %s {"x" * 6000} | "$0" secret set --replace A; then exit 3; fi
            if printf %s {"x" * 6000} | "$0" secret set B; then exit 4; fi
            cmp {self.store}/A.value {self.dir}/before
            ls {self.store} > {self.dir}/files
            rm {self.state}/filler
            printf %s {"x" * 6000} | "$0" secret set --replace A"""
        r = subprocess.run(["unshare", "-m", "sh", "-c", script, hutch_path()], env=self.env, capture_output=True, check=False)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("No space left", r.stderr.decode())
        self.assertEqual((self.dir / "files").read_text().split(), ["A.value", "key", "lock"])


class Many(Secrets):
    def test_the_first_secrets_at_once(self):
        """Several processes find no store: they agree on one key."""
        running = [subprocess.Popen([hutch_path(), "secret", "set", f"S{i}", "--env", "TOKEN"], env={**self.env, "TOKEN": f"{VALUE}{i}"},
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE) for i in range(12)]
        for p in running:
            _, err = p.communicate(timeout=LONG)
            self.assertEqual(p.returncode, 0, err)
        self.assertEqual(len(self.listed()), 12)
        self.assertEqual([self.value(f"S{i}") for i in range(12)], [f"{VALUE}{i}" for i in range(12)])

    def test_one_name_at_once(self):
        """One of them sets it, the others fail."""
        running = [subprocess.Popen([hutch_path(), "secret", "set", "A", "--env", "TOKEN"], env={**self.env, "TOKEN": f"{VALUE}{i}"},
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE) for i in range(8)]
        codes = []
        for p in running:
            p.communicate(timeout=LONG)
            codes.append(p.returncode)
        self.assertEqual(sorted(codes), [0] + [1] * 7)

    def test_killed_at_any_moment(self):
        """A killed writer leaves the old or the new file, whole, and the next writer continues."""
        self.secret("set", "A", given=VALUE)
        env = {**self.env, "TOKEN": VALUE + "x", "ASAN_OPTIONS": self.env.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
        killed, done = 0, set()
        for call, n in ((call, n) for call in CALLS for n in itertools.takewhile(lambda _, call=call: call not in done, range(1, 200))):
            p = subprocess.run(["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={n}",
                                hutch_path(), "secret", "set", "--replace", "A", "--env", "TOKEN"], env=env, capture_output=True, check=False)
            self.assertEqual([(s["name"], s["error"]) for s in self.listed()], [("A", None)], (call, n))
            self.assertIn(self.value("A"), (VALUE, VALUE + "x"))
            if p.returncode == 0:  # it makes fewer such calls
                done.add(call)
            killed += p.returncode != 0
        self.assertEqual(done, set(CALLS))
        self.assertGreater(killed, 20)
        self.secret("set", "B", given=VALUE)
        self.assertEqual(self.files(), ["A.value", "B.value"])


if __name__ == "__main__":
    unittest.main()
