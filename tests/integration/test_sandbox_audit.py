# SPDX-License-Identifier: Apache-2.0
"""The audit log of real sandboxes: every operation has a record before and after it; without a
record, an operation is refused."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from pathlib import Path

from sandbox import LONG, PATIENCE, LOOSE, RUN, SandboxCase, as_root, children_of, eventually, hutch, start, warden_of
from waiting import until_clock

OF_THE_LOG = ("begin", "seal", "checkpoint", "rotate")


def blake2b(data):
    return hashlib.blake2b(data, digest_size=32).hexdigest()


class AuditCase(SandboxCase):
    """Tests with their own log."""

    def setUp(self):
        # Outside the run directory, so that other suites on this host do not count these mounts as
        # theirs.
        top = tempfile.mkdtemp(prefix="audit-", dir="/tmp")
        self.addCleanup(shutil.rmtree, top)
        self.log = Path(top) / "audit"
        self.log.mkdir(mode=0o700)
        self.set_env("HUTCH_AUDIT_DIR", str(self.log))
        super().setUp()

    def set_env(self, name, value):
        before = os.environ.get(name)
        os.environ[name] = value
        self.addCleanup(lambda: os.environ.update({name: before}) if before is not None else os.environ.pop(name, None))

    def records(self, *opts):
        said = self.ended(hutch("audit", "show", "--json", *opts), 0).stdout.decode()
        return [json.loads(line) for line in said.splitlines()]

    def kinds(self, sandbox):
        return [r["kind"] for r in self.records("--sandbox", sandbox) if r["kind"] not in OF_THE_LOG]

    def show(self, *opts):
        return self.ended(hutch("audit", "show", *opts), 0).stdout.decode()

    def verify(self, *opts, code=0):
        r = self.ended(hutch("audit", "verify", "--json", *opts), code)
        return json.loads(r.stdout)

    def good(self, live=0):
        said = self.verify()
        self.assertEqual((said["good"], said["live"]), (True, live), said)

    def sealed(self, sandbox):
        """The chain has an end record, and a seal after it."""
        kinds = [r["kind"] for r in self.records("--sandbox", sandbox) if r["chain"] == "host"]
        self.assertEqual([k for k in kinds if k in ("end", "seal")], ["end", "seal"], kinds)


class Acts(AuditCase):
    def test_the_life_of_a_sandbox(self):
        sandbox = self.create()
        self.exec_(sandbox, "sh", "-c", "exit 3", code=3)
        self.ended(hutch("kill", sandbox), 0)
        self.assertEqual(self.kinds(sandbox), ["create", "exec", "exec-end", "kill", "end"])
        create, run, run_end, kill, end = (r["payload"] for r in self.records("--sandbox", sandbox) if r["kind"] not in OF_THE_LOG)
        self.assertEqual((create["agent"], create["image"], create["uid"]), ("default", "base", os.getuid()))
        self.assertEqual((run["n"], run["argv"], run["argc"]), (1, ["sh", "-c", "exit 3"], 3))
        self.assertEqual((run_end["n"], run_end["exit"]), (1, 3))
        self.assertEqual((kill["uid"], end["reason"]), (os.getuid(), "killed"))
        self.sealed(sandbox)
        self.good()

    def test_the_policy_that_a_digest_is_of(self):
        sandbox = self.create(*LOOSE, "--memory", "100MiB")
        [digest] = [r["payload"]["policy"] for r in self.records("--sandbox", sandbox) if r["kind"] == "create"]
        text = (RUN / "sandboxes" / sandbox / "policy.json").read_bytes()
        self.assertEqual(hashlib.sha256(text).hexdigest(), digest)
        self.assertIn(100 << 20, json.loads(text)["resources"].values())
        self.assertEqual(self.json("receipt", "--json", sandbox)["policy"], digest)

    def test_intents_come_before_outcomes(self):
        sandbox = self.create()
        source = Path(self.log.parent) / "file"
        source.write_text("contents\n")
        self.ended(hutch("cp", str(source), f"{sandbox}:/workspace/copy"), 0)
        runs = [start("exec", sandbox, "--", "sleep", "1") for _ in range(4)]
        self.assertEqual([p.wait(LONG) for p in runs], [0] * 4)
        seen = {}
        for r in self.records("--sandbox", sandbox):
            pair = {"exec": ("exec", 0), "exec-end": ("exec", 1), "file-write": ("file", 0), "file-end": ("file", 1)}.get(r["kind"])
            if pair:
                seen.setdefault((pair[0], r["payload"]["n"]), []).append(pair[1])
        self.assertEqual(seen, {("file", 1): [0, 1], **{("exec", n): [0, 1] for n in range(1, 5)}})

    def test_nothing_runs_before_its_record(self):
        """A command's record is older than its first action."""
        sandbox = self.create()
        began = int(self.sh(sandbox, "date +%s%N"))
        [record] = [r for r in self.records("--sandbox", sandbox) if r["kind"] == "exec"]
        day, fraction = record["time"].rstrip("Z").split(".")
        wall = subprocess.run(["date", "-u", "-d", day + "Z", "+%s"], capture_output=True, text=True, check=True).stdout.strip()
        self.assertLess(int(wall) * 10**9 + int(fraction.ljust(9, "0")), began)

    def test_signals_and_limits(self):
        sandbox = self.create()
        self.exec_(sandbox, "sleep", "1000", code=124, opts=["--timeout", "1s"])
        run = start("exec", "-n", "long", sandbox, "--", "sleep", "4321")
        eventually(lambda: self.kinds(sandbox).count("exec") == 2, "the record of a command")
        # The record is written before the command runs; a signal reaches only a running command.
        eventually(lambda: hutch("signal", f"{sandbox}/long", "TERM").returncode == 0, "its beginning")
        run.wait(LONG)
        said = [(r["kind"], r["payload"]["n"]) for r in self.records("--sandbox", sandbox) if "n" in r["payload"]]
        self.assertEqual(said, [("exec", 1), ("limit", 1), ("exec-end", 1), ("exec", 2), ("signal", 2), ("exec-end", 2)])

    def test_code_on_standard_input_is_hashed(self):
        code = b"print(6 * 7)\n" * 9999
        sandbox = self.create()
        self.exec_(sandbox, "python3", "-", input=code, opts=["-i"])
        [end] = [r["payload"] for r in self.records("--sandbox", sandbox) if r["kind"] == "exec-end"]
        self.assertEqual((end["bytes"], end["blake2b"]), (len(code), blake2b(code)))
        said = subprocess.run(["b2sum", "-l", "256"], input=code, capture_output=True, check=True).stdout.decode()
        self.assertEqual(said.split()[0], end["blake2b"])

    def test_a_file_is_hashed(self):
        sandbox = self.create()
        with tempfile.NamedTemporaryFile() as f:
            f.write(b"x" * 100_000)
            f.flush()
            self.ended(hutch("cp", f.name, f"{sandbox}:/workspace/x"), 0)
        intent, outcome = (r["payload"] for r in self.records("--sandbox", sandbox) if r["kind"].startswith("file"))
        self.assertEqual(intent["op"], outcome["op"])
        self.assertIn("/workspace", intent["path"])
        self.assertGreaterEqual(outcome["bytes"], 100_000)
        self.assertRegex(outcome["blake2b"], "^[0-9a-f]{64}$")

    def test_values_of_variables_are_nowhere(self):
        secret = "s3cr3t-5a1c9e77"
        sandbox = self.create("-e", f"TOKEN={secret}")
        self.assertEqual(self.exec_(sandbox, "sh", "-c", "echo $TOKEN$MORE", opts=["-e", f"MORE={secret}"]).stdout.decode(), 2 * secret + "\n")
        self.run_("true", opts=["-e", f"TOKEN={secret}"])
        for file in self.log.rglob("*.log"):
            self.assertNotIn(secret.encode(), file.read_bytes(), file)

    def test_what_a_terminal_could_obey_is_escaped(self):
        sandbox = self.create()
        self.exec_(sandbox, "true", "\x1b[2J", "a\u202eb", "l1\nl2", "it's", "a\\b", "")
        self.exec_(sandbox, "true", opts=["-w", "/workspace"])
        with tempfile.TemporaryDirectory() as d:
            (Path(d) / "x").write_text("x")
            hutch("cp", f"{d}/x", f"{sandbox}:/workspace/\x1b[31m\u202e/x")
        said = self.show("--sandbox", sandbox)
        self.assertNotRegex(said, "[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e]")
        self.assertIn(r"""true $'\x1b[2J' $'a\u{202e}b' $'l1\nl2' 'it'\''s' 'a\b' ''""", said)
        self.assertIn(r"\x1b[31m\u{202e}", said)

    def test_kill_and_rm(self):
        one, two = self.create(), self.create()
        self.ended(hutch("kill", one), 0)
        self.ended(hutch("rm", "-f", one, two), 0)
        said = [(r["kind"], r["sandbox"], r["payload"].get("op")) for r in self.records() if r["kind"] in ("kill", "end")]
        self.assertEqual(said, [("kill", one, "kill"), ("end", one, None), ("kill", one, "rm"), ("kill", two, "rm"), ("end", two, None)])
        self.good()

    def test_trees_and_their_names(self):
        tree = Path(self.log.parent) / "tree"
        (tree / "etc").mkdir(parents=True)
        (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        tar = f"{tree}.tar"
        subprocess.run(["tar", "-C", tree, "-cf", tar, "."], check=True)
        made = self.ended(hutch("image", "import", "audited", tar), 0).stdout.decode()
        self.ended(hutch("image", "rm", "audited"), 0)
        self.assertNotEqual(hutch("image", "import", "audited", "/dev/null").returncode, 0)
        said = [r["payload"] for r in self.records() if r["kind"] == "image"]
        digest = re.search("sha256:([0-9a-f]{64})", made)[1]
        self.assertEqual([(p["op"], p["image"], p["uid"], p.get("result"), p.get("sha256")) for p in said],
                         [("import", "audited", os.getuid(), None, None), ("import", "audited", os.getuid(), "done", digest),
                          ("rm", "audited", os.getuid(), None, digest), ("rm", "audited", os.getuid(), "done", None),
                          ("import", "audited", os.getuid(), None, None), ("import", "audited", os.getuid(), "failed", None)])

    def test_gc(self):
        sandbox = self.create()
        self.ended(hutch("kill", sandbox), 0)
        self.ended(hutch("gc", "--ended"), 0)
        said = [r["payload"] for r in self.records() if r["kind"] == "gc"]
        self.assertEqual(said[0], {"op": "gc", "uid": os.getuid()})
        self.assertIn({"took": "ended sandbox", "sandbox": sandbox}, said)

    def test_a_start_that_was_refused(self):
        (Path(os.environ["HUTCH_CONFIG_PATH"]) / "agents").mkdir(parents=True, exist_ok=True)
        (Path(os.environ["HUTCH_CONFIG_PATH"]) / "agents/wants.yaml").write_text(
            "agent:\n  name: wants\n  type: test\nisolation:\n  require: [kvm]\n")
        self.refused("run", "--rm", "--agent", "wants", "--", "true")
        made = [r for r in self.records() if r["kind"] not in OF_THE_LOG]
        self.assertEqual([r["kind"] for r in made], ["create", "refused", "end"])
        self.assertIn("kvm", made[1]["payload"]["reason"])
        self.assertEqual(made[2]["payload"]["reason"], "not started")
        self.sealed(made[0]["sandbox"])
        self.good()

    def test_switched_off(self):
        self.set_env("HUTCH_AUDIT", "off")
        sandbox = self.create()
        self.exec_(sandbox, "true")
        [row] = [r for r in self.json("receipt", "--json", sandbox)["layers"] if r["name"] == "audit"]
        self.assertEqual((row["enforced"], row["required"], row["seen"]), (False, False, "switched off by HUTCH_AUDIT=off"))
        self.ended(hutch("rm", "-f", sandbox), 0)
        self.assertEqual(list(self.log.iterdir()), [])

    def test_the_receipt_names_the_chain(self):
        sandbox = self.create()
        [row] = [r for r in self.json("receipt", "--json", sandbox)["layers"] if r["name"] == "audit"]
        self.assertTrue(row["enforced"] and row["required"])
        number = int(re.fullmatch(rf"chain {sandbox} has begun, by record (\d+) of the host chain", row["seen"])[1])
        [begin] = [r for r in self.records() if r["chain"] == "host" and r["seq"] == number]
        self.assertEqual((begin["kind"], begin["sandbox"]), ("begin", sandbox))

    def test_show_finds_by_prefix_what_is_gone(self):
        sandbox, other = self.create(), self.create()
        self.ended(hutch("rm", "-f", sandbox, other), 0)
        said = self.show("--sandbox", sandbox[:6])
        self.assertEqual({line.split()[1] for line in said.splitlines()}, {sandbox})
        self.assertIn("create", said)
        self.assertNotIn("signature", self.show())

    def test_show_follows(self):
        follower = start("audit", "show", "-f", "--json", stdout=subprocess.PIPE)
        try:
            sandbox = self.create()
            self.exec_(sandbox, "true")
            self.ended(hutch("rm", "-f", sandbox), 0)
            kinds = []
            while "seal" not in kinds:
                kinds.append(json.loads(follower.stdout.readline())["kind"])
        finally:
            follower.kill()
            follower.wait()
            follower.stdout.close()
        for one in ("create", "exec", "exec-end", "kill", "end"):
            self.assertEqual(kinds.count(one), 1, kinds)


class Night(AuditCase):
    """The session of docs/INVESTIGATE.md and its questions."""

    def test_what_did_it_do_last_night(self):
        night = Path(__file__).resolve().parent / "night.sh"
        limit = f"{15 * PATIENCE}s"
        r = subprocess.run(["sh", night], capture_output=True, text=True, timeout=3 * LONG, check=True, env={**os.environ, "NIGHT_TIMEOUT": limit})
        sandbox = r.stdout.strip()
        self.addCleanup(hutch, "rm", sandbox)
        kinds = [kind for kind in self.kinds(sandbox) if not kind.startswith(("egress", "policy"))]
        self.assertEqual(kinds, ["create", "file-write", "file-end", *["exec", "exec-end"] * 4, "exec", "limit", "exec-end", "kill", "end"])
        said = self.show("--sandbox", sandbox)
        for words in (r"exec +#1  head -n 1 sales\.csv", r"exec-end +#2  exit=0 .*bytes=87B  blake2b=[0-9a-f]{12}",
                      r"exec +#3  sh -c 'cat /etc/shadow; ls /root'", r"exec-end +#3  exit=[1-9]", r"egress +verdict=deny  host=collector\.example\.net ", f"limit +#5 .*time limit of {limit} reached",
                      r"kill +uid=", r"end +killed"):
            self.assertRegex(said, words)
        self.assertNotIn("s3cr3t", said + self.show("-v"))
        self.assertIn("name,amount", self.ended(hutch("logs", f"{sandbox}/1"), 0).stdout.decode())
        self.assertIn("collector.example.net", self.ended(hutch("egress", "log", sandbox), 0).stdout.decode())
        export = self.log.parent / "export"
        with export.open("wb") as out:
            self.assertEqual(start("audit", "export", stdout=out).wait(LONG), 0)
        key = self.json("audit", "key", "--json")["key"]
        self.assertIn("all good", self.ended(hutch("audit", "verify", "--key", key, str(export)), 0).stdout.decode())
        self.good()


class Killed(AuditCase):
    """Any process is killed at any moment: the log is intact, and after the next command it has
    an end and a seal."""

    def kept_busy(self):
        sandbox = self.create()
        run = start("exec", sandbox, "--", "sleep", "4321")
        eventually(lambda: "exec" in self.kinds(sandbox), "the record of a command")
        return sandbox, run

    def ended_well(self, sandbox):
        hutch("ps", "-a")
        eventually(lambda: not hutch("ps").stdout.decode().count(sandbox), "its end")
        self.sealed(sandbox)
        self.good()

    def test_the_warden(self):
        sandbox, run = self.kept_busy()
        os.kill(warden_of(sandbox), signal.SIGKILL)
        run.wait(LONG)
        self.ended_well(sandbox)

    def test_the_keeper(self):
        sandbox, run = self.kept_busy()
        [keeper] = children_of(warden_of(sandbox), "hutch-keeper")
        os.kill(keeper, signal.SIGKILL)
        run.wait(LONG)
        self.ended_well(sandbox)

    def test_the_command_line(self):
        sandbox, run = self.kept_busy()
        run.kill()  # the operation that it requested continues
        run.wait(LONG)
        self.ended(hutch("kill", sandbox), 0)
        self.ended_well(sandbox)

    def test_at_any_moment_of_a_start(self):
        began = time.monotonic()
        self.run_("true")
        whole = time.monotonic() - began
        for part in (0, 0.1, 0.2, 0.4, 0.6, 0.9):
            run = start("run", "--rm", "--", "true")
            until_clock(time.monotonic() + part * whole)
            run.kill()
            run.wait(LONG)
        eventually(lambda: not hutch("ps", "-a", "--json").stdout.strip().strip(b"[]"), "the end of all")
        eventually(lambda: self.verify()["live"] == 0, "the seals")
        self.assertTrue(self.verify()["good"])


class Unwritable(AuditCase):
    """An unwritable log: hutch refuses operations that need a record, allows the others, and
    recovers afterwards."""

    @contextlib.contextmanager
    def unwritable(self):
        """For a user, makes the files of the log read-only. Root can write to any file and gets
        a full disk: see below."""
        files = list(self.log.glob("host-*.log"))
        for file in files:
            file.chmod(0o400)
        yield
        for file in files:
            file.chmod(0o600)

    def check(self, sandbox, unwritable):
        tree = Path(self.log.parent) / "t.tar"
        subprocess.run(["tar", "-C", str(self.log.parent), "--exclude=audit", "--exclude=t.tar", "-cf", tree, "."], check=False)
        with unwritable():
            for command in (["create"], ["run", "--rm", "--", "touch", "/workspace/x"], ["image", "import", "never", str(tree)]):
                with self.subTest(command=command):
                    self.assertIn("audit log", self.refused(*command))
            self.assertNotIn("never", hutch("image", "ls").stdout.decode())
            self.assertEqual(set(self.ps()), {sandbox})
            self.verify()
        self.run_("true")

    def small_disk(self):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160k,mode=700", "tmpfs", self.log], check=True)
        self.addCleanup(subprocess.run, ["umount", self.log], check=True)

    def fill(self, *sandboxes):
        """Fills every page, and the last page of each chain: then no record fits anywhere."""
        with open(self.log / "fill", "wb", buffering=0) as f, contextlib.suppress(OSError):
            while True:
                f.write(b"x" * 4096)
        for sandbox in sandboxes:
            while hutch("exec", sandbox, "--", "true").returncode == 0:
                pass
        while hutch("gc").stderr == b"":
            pass

    @contextlib.contextmanager
    def full(self, *sandboxes):
        self.fill(*sandboxes)
        yield
        (self.log / "fill").unlink()

    @as_root
    def test_a_full_disk(self):
        self.small_disk()
        sandbox = self.create()
        run = start("exec", sandbox, "--", "sh", "-c", "while [ ! -e go ]; do sleep 0.1; done; exit 7")
        eventually(lambda: "exec" in self.kinds(sandbox), "the record of a command")
        source = self.log.parent / "f"
        source.write_text("x")

        @contextlib.contextmanager
        def full():
            with self.full(sandbox):
                self.assertIn("audit log", self.refused("exec", sandbox, "--", "touch", "/workspace/touched"))
                self.assertIn("audit log", self.refused("cp", str(source), f"{sandbox}:/workspace/copied"))
                yield

        self.check(sandbox, full)
        self.assertEqual(self.sh(sandbox, "ls /workspace"), "", "nothing was done")
        self.sh(sandbox, "touch go")
        self.assertEqual(run.wait(LONG), 7, "what ran went on")
        self.ended(hutch("rm", "-f", sandbox), 0)
        self.good()

    @as_root
    def test_an_outcome_that_was_lost_is_told(self):
        self.small_disk()
        sandbox = self.create()
        runs = [start("exec", "-i", sandbox, "--", "cat", stdin=subprocess.PIPE) for _ in range(3)]
        eventually(lambda: self.kinds(sandbox).count("exec") == 3, "the records of commands")
        with self.full(sandbox):
            for run in runs:
                run.stdin.close()
            self.assertEqual([run.wait(LONG) for run in runs], [0] * 3)
        self.exec_(sandbox, "true")
        lost = [r["payload"]["outcomes_lost"] for r in self.records("--sandbox", sandbox) if "outcomes_lost" in r["payload"]]
        self.assertIn(sum(lost), (3, 4), "and that of the last one that was begun to fill a page")
        self.ended(hutch("rm", "-f", sandbox), 0)
        self.good()

    @as_root
    def test_killing_works_on_a_full_disk(self):
        self.small_disk()
        sandbox, more = self.create(), self.create()
        with self.full():
            r = self.ended(hutch("kill", sandbox), 0)
            self.assertIn("warning", r.stderr.decode())
            self.assertIsNone(warden_of(sandbox))
            self.assertIn("stays until that can be recorded", self.refused_at_end("rm", "-f", more))
            self.assertIsNone(warden_of(more))
        hutch("ps", "-a")
        for one in (sandbox, more):
            self.sealed(one)
        [reason] = [r["payload"]["reason"] for r in self.records("--sandbox", sandbox) if r["kind"] == "end"]
        self.assertEqual(reason, "killed")
        self.good()
        self.ended(hutch("rm", "-f", sandbox, more), 0)

    def refused_at_end(self, *args):
        return self.ended(hutch(*args), 125).stderr.decode()

    def test_read_only(self):
        sandbox = self.create()
        if os.geteuid() == 0:
            subprocess.run(["mount", "--bind", self.log, self.log], check=True)
            self.addCleanup(subprocess.run, ["umount", self.log], check=True)

            @contextlib.contextmanager
            def read_only():
                subprocess.run(["mount", "-o", "remount,ro,bind", self.log], check=True)
                yield
                subprocess.run(["mount", "-o", "remount,rw,bind", self.log], check=True)
            self.check(sandbox, read_only)
        else:
            self.check(sandbox, self.unwritable)
        self.ended(hutch("rm", "-f", sandbox), 0)
        self.good()


class Tampering(AuditCase):
    def setUp(self):
        super().setUp()
        self.sandbox = self.create()
        self.exec_(self.sandbox, "echo", "evidence")
        self.ended(hutch("rm", "-f", self.sandbox), 0)
        self.good()
        self.chain = self.log / f"sandbox/{self.sandbox}-00000000.log"
        self.chain.chmod(0o600)

    def named(self):
        said = self.verify(code=1)
        self.assertEqual(said["bad"]["file"], self.chain.name)
        return said["bad"]["what"]

    def test_edited(self):
        self.chain.write_bytes(self.chain.read_bytes().replace(b"evidence", b"innocent"))
        self.assertIn("payload", self.named())

    def test_cut(self):
        self.chain.write_bytes(self.chain.read_bytes()[:-200])
        self.named()

    def test_emptied(self):
        self.chain.write_bytes(b"")
        self.named()

    def test_deleted(self):
        self.chain.unlink()
        self.assertIn(self.sandbox, json.dumps(self.verify(code=1)["bad"]))


    def test_every_record(self):
        """Row 160: each record of both chains is changed, removed, duplicated, moved and cut
        off; verify names the first bad record. A checkpoint stored elsewhere detects a truncated
        host chain."""
        kept = self.log.parent / "kept"
        kept.write_bytes(self.ended(hutch("audit", "checkpoint"), 0).stdout)
        tried = 0
        for file in (self.chain, self.log / "host-00000000.log"):
            good = file.read_bytes()
            records = pieces(good)
            # The checkpoint's own record follows the records that it covers.
            n = len(records) - (file != self.chain)
            self.assertGreater(n, 2)
            for first, change, data in changes(records, n):
                file.write_bytes(data)
                bad = self.verify("--from", str(kept), code=1)["bad"]
                with self.subTest(file=file.name, record=first, change=change):
                    self.assertEqual((bad["file"], bad["record"]), (file.name, first), bad)
                tried += 1
            file.write_bytes(good)
            self.verify("--from", str(kept))
        self.assertGreater(tried, 100)


def pieces(data):
    """The records of a chain."""
    found, at = [], 0
    while at < len(data):
        length = 152 + struct.unpack_from(">I", data, at + 8)[0]
        found.append(data[at:at + length])
        at += length
    return found


def changes(records, n):
    """(first bad record, change, chain) for the first n records of a chain."""
    for k, (before, one, after) in enumerate((records[:k], records[k], records[k + 1:]) for k in range(n)):
        for bit in range(k % 89, 8 * len(one), 89):
            flipped = one[:bit // 8] + bytes([one[bit // 8] ^ 1 << bit % 8]) + one[bit // 8 + 1:]
            yield k, f"bit {bit}", b"".join([*before, flipped, *after])
        yield k + 1, "doubled", b"".join([*before, one, one, *after])
        yield k, "cut in the middle", b"".join([*before, one[:len(one) // 2]])
        yield k, "cut off", b"".join(before)
        if k + 1 < len(records):
            yield k, "taken away", b"".join([*before, *after])
            yield k, "moved", b"".join([*before, after[0], one, *after[1:]])


class Load(AuditCase):
    def test_a_chain_goes_over_files(self):
        """Concurrent records of 4 KiB and more, past the size limit of a file."""
        sandbox = self.create()
        script = "for i in $(seq 700); do \"$0\" exec \"$1\" -- true \"$2\" \"$2\" \"$2\" \"$2\" || exit; done"
        runs = [subprocess.Popen(["sh", "-c", script, os.environ["HUTCH"], sandbox, chr(97 + i) * 4000]) for i in range(2)]
        self.assertEqual([p.wait(1800) for p in runs], [0, 0])
        files = sorted(p.name for p in (self.log / "sandbox").iterdir())
        self.assertEqual(files[:2], [f"{sandbox}-00000000.log", f"{sandbox}-00000001.log"])
        self.assertEqual(self.kinds(sandbox).count("exec"), 1400)
        self.assertEqual(self.kinds(sandbox).count("exec-end"), 1400)
        self.good(live=1)
        self.ended(hutch("rm", "-f", sandbox), 0)
        self.good()
