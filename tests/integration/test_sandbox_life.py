# SPDX-License-Identifier: Apache-2.0
"""The life of long-running sandboxes: created, used, inspected, ended; and killed at any moment."""

import concurrent.futures
import contextlib
import os
import random
import signal
import subprocess
import time

from sandbox import (BOX, ID, LONG, MACHINE, PATIENCE, LOOSE, RUN, SandboxCase, as_root, children_of, eventually, hutch, ledger, named, settle, start, warden_of)
from waiting import until_clock

FOREVER = ("sleep", "4321")


def kill(pid):
    os.kill(pid, signal.SIGKILL)


class Life(SandboxCase):
    def test_is_created_used_and_removed(self):
        sandbox = self.create()
        self.assertRegex(sandbox, ID)
        self.assertEqual(self.ps()[sandbox]["state"], "running")
        self.assertEqual(self.sh(sandbox, "echo hello"), "hello\n")
        self.ended(hutch("rm", "-f", sandbox), 0)
        self.assertEqual(self.ps("-a"), {})

    def test_files_stay_between_commands(self):
        sandbox = self.create()
        self.sh(sandbox, "echo kept >file")
        self.assertEqual(self.sh(sandbox, "cat /workspace/file"), "kept\n")

    def test_a_process_in_the_background_stays(self):
        sandbox = self.create()
        self.sh(sandbox, "setsid sleep 4321 >/dev/null 2>&1 &")
        eventually(lambda: self.commands_in(sandbox) == ["sleep 4321"], "what was left running")

    def test_codes_of_exec(self):
        sandbox = self.create()
        for cmd, code in ((("sh", "-c", "exit 9"), 9), (("sh", "-c", "kill -9 $$"), 137), (("no-such-program",), 127),
                          (("/etc/motd",), 126)):
            with self.subTest(cmd=cmd):
                self.exec_(sandbox, *cmd, code=code)

    def test_a_directory_that_is_not_there(self):
        r = hutch("exec", "-w", "/no/such", self.create(), "--", "true")
        self.assertIn(r.returncode, (125, 126, 127))
        self.assertRegex(r.stderr.decode(), "^hutch exec: .*/no/such")

    def test_what_cannot_be_asked_for_is_said_at_once(self):
        sandbox = self.create()
        for opts, said in ((("-u", "\udc9b"), "the name of the user is not valid UTF-8"), (("-u", "x" * 65), "longer than 64 bytes"),
                           (("-w", "/" * 5000), "the working directory is longer than 4096 bytes")):
            with self.subTest(said=said):
                self.assertIn(said, self.refused("exec", *opts, sandbox, "--", "true"))
        self.assertEqual(self.sh(sandbox, "echo alive"), "alive\n")

    def test_one_whose_id_nobody_gets_is_ended_again(self):
        with open("/dev/full", "wb") as full:
            for name, out in (("closed", None), ("full", full), ("pipe", subprocess.PIPE)):
                for opts in ((), ("--json",)):
                    with self.subTest(stdout=name, opts=opts):
                        before = set(self.ps("-a"))
                        p = subprocess.Popen(["sh", "-c", 'exec "$@" >&-' if name == "closed" else 'exec "$@"', "sh", os.environ["HUTCH"], "create",
                                              *opts], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE)
                        if name == "pipe":
                            p.stdout.close()
                        said = p.communicate(timeout=LONG)[1].decode()
                        self.assertEqual(p.returncode, 125, said)
                        self.assertRegex(said, "(?m)^hutch create: sandbox [a-z0-9]+ was ended again")
                        [sandbox] = set(self.ps("-a")) - before
                        self.gone(sandbox, "killed")
                        self.ended(hutch("rm", sandbox), 0)

    def test_exec_takes_the_options_of_run(self):
        sandbox = self.create()
        r = self.exec_(sandbox, "sh", "-c", "id -u; pwd; echo $X; cat", input=b"in", opts=["-i", "-u", "12", "-w", "/usr", "-e", "X=y"])
        self.assertEqual(r.stdout, b"12\n/usr\ny\nin")

    def test_commands_at_once(self):
        sandbox = self.create()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            said = list(pool.map(lambda i: self.sh(sandbox, f"sleep 0.2; echo {i}"), range(24)))
        self.assertEqual(said, [f"{i}\n" for i in range(24)])

    def test_a_flood_does_not_starve_another(self):
        sandbox = self.create()
        flood = start("exec", sandbox, "--", "yes", stdout=subprocess.PIPE)
        self.assertEqual(flood.stdout.read(2), b"y\n")
        self.assertEqual(self.sh(sandbox, "echo through"), "through\n")
        flood.kill()
        flood.wait()
        flood.stdout.close()

    def test_sandboxes_at_once(self):
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            ids = list(pool.map(lambda _: self.create(), range(6)))
        self.assertEqual(set(self.ps()), set(ids))
        # VMs have their own kernels, and so the same ids inside.
        own = "cat /proc/sys/kernel/random/boot_id" if MACHINE else "cat /proc/self/uid_map; readlink /proc/self/ns/net"
        said = {self.sh(i, own) for i in ids}
        self.assertEqual(len(said), 6, "each has its own")
        for sandbox in ids:
            self.ended(hutch("rm", "-f", sandbox), 0)

    def test_ends_when_told(self):
        sandbox = self.create()
        self.ended(hutch("kill", sandbox), 0)
        self.assertEqual(self.ps(), {})
        self.gone(sandbox, "killed")
        self.assertEqual(named("hutch-keeper", BOX), [])
        self.ended(hutch("kill", sandbox), 0)

    def test_kill_ends_the_command_of_a_client(self):
        sandbox = self.create()
        p = start("exec", sandbox, "--", *FOREVER, stderr=subprocess.PIPE)
        eventually(lambda: self.commands_in(sandbox) == ["sleep 4321"], "the command")
        self.ended(hutch("kill", sandbox), 0)
        said = p.communicate(timeout=LONG)[1]
        self.assertEqual(p.returncode, 125, said)

    def test_an_ended_one_runs_nothing(self):
        sandbox = self.create()
        hutch("kill", sandbox)
        self.assertRegex(self.refused("exec", sandbox, "--", "true"), "kill|ended")

    def test_a_living_one_is_removed_only_by_force(self):
        sandbox = self.create()
        self.assertIn("rm -f", self.refused("rm", sandbox))
        self.assertEqual(self.sh(sandbox, "echo alive"), "alive\n")
        self.ended(hutch("rm", "-f", sandbox), 0)

    def test_the_beginning_of_an_id_will_do(self):
        sandbox = self.create()
        self.ended(hutch("exec", sandbox[:6], "--", "true"), 0)

    def test_an_id_that_is_not_there(self):
        for command in (["exec", "zzzzzzzz", "--", "true"], ["kill", "zzzzzzzz"], ["rm", "zzzzzzzz"], ["inspect", "zzzzzzzz"],
                        ["receipt", "zzzzzzzz"]):
            with self.subTest(command=command):
                r = hutch(*command)
                self.assertIn(r.returncode, (1, 125))
                self.assertIn(b"hutch ps -a", r.stderr)

    def test_what_cannot_be_an_id(self):
        for name in ("..", "../../etc", "A" * 16, "", "x" * 5000):
            with self.subTest(name=name):
                self.assertIn(hutch("inspect", name).returncode, (1, 2, 125))

    def test_ps_and_inspect_for_people(self):
        sandbox = self.create(*LOOSE, "--memory", "256MiB")
        for command in (["ps"], ["ps", "-a"], ["inspect", sandbox]):
            with self.subTest(command=command):
                self.assertIn(sandbox, self.ended(hutch(*command), 0).stdout.decode())

    def test_inspect_says_what_it_is(self):
        sandbox = self.create(*LOOSE, "--memory", "256MiB", "--pids", "77", "--ttl", "1h")
        said = self.inspect(sandbox)
        self.assertEqual((said["id"], said["state"], said["image"]), (sandbox, "running", "base"))
        limits = said["limits"]
        self.assertEqual((limits["memory"], limits["pids"], limits["ttl"]), (256 << 20, 77, 3600000))


class Clocks(SandboxCase):
    def test_the_longest_life(self):
        self.gone(self.create("--ttl", "1s"), "ttl")

    def test_the_longest_life_ends_a_command(self):
        sandbox = self.create("--ttl", "2s")
        p = start("exec", sandbox, "--", *FOREVER)
        self.assertEqual(p.wait(LONG), 125)
        self.gone(sandbox, "ttl")

    def test_nothing_to_do(self):
        self.gone(self.create("--idle", "1s"), "idle")

    @as_root  # a pause needs a freezer
    def test_idle_or_deadline(self):
        """The first to pass counts, whatever the deadline would do."""
        for then in ("end", "pause"):
            with self.subTest(on_timeout=then):
                self.gone(self.create("--idle", "1s", "--deadline", "1h", "--on-timeout", then), "idle")
        self.gone(self.create("--idle", "1h", "--deadline", "1s", "--on-timeout", "end"), "ttl")
        # Created without an idle clock that could pass first on a busy host; it runs again after the resume.
        sandbox = self.create("--idle", f"{20 * PATIENCE}s", "--deadline", "1s", "--on-timeout", "pause")
        eventually(lambda: self.ps()[sandbox]["state"] in ("paused", "suspended"), "its pause")
        self.ended(hutch("resume", sandbox), 0)
        self.gone(sandbox, "idle")

    @as_root
    def test_idle_and_deadline_at_once(self):
        """Either may win; the sandbox ends, or pauses, once, and says why."""
        for then in ("end", "pause"):
            sandbox = self.create("--idle", "1s", "--deadline", "1s", "--on-timeout", then)
            state = eventually(lambda box=sandbox: (s := self.ps("-a")[box]["state"]) != "running" and s, "its end or pause")
            self.assertIn(state, ("ended",) if then == "end" else ("ended", "paused", "suspended"))
            if state == "ended":
                self.assertIn(self.inspect(sandbox)["end"]["reason"], ("idle", "ttl") if then == "end" else ("idle",))

    def test_a_command_is_something_to_do(self):
        def attempt(seconds):
            sandbox = self.create("--idle", f"{seconds}s")
            r = hutch("exec", sandbox, "--", "sh", "-c", f"echo begun; sleep {seconds + 2}")
            return (sandbox, r) if r.stdout else None

        sandbox, r = self.first_in_time(attempt)
        self.ended(r, 0)
        self.gone(sandbox, "idle")

    def test_a_command_has_a_time_limit(self):
        began = time.monotonic()
        self.run_("sh", "-c", "sleep 4321 & sleep 4321", code=124, opts=["--timeout", "1s"])
        self.assertGreaterEqual(time.monotonic() - began, 1)

    def test_the_time_limit_ends_the_children_and_not_the_sandbox(self):
        sandbox = self.create()
        self.exec_(sandbox, "sh", "-c", "sleep 4321 & sleep 4321", code=124, opts=["--timeout", "1s"])
        eventually(lambda: self.commands_in(sandbox) == [], "the end of the children")

    def test_a_command_that_ignores_signals_is_ended_too(self):
        self.run_("sh", "-c", "trap '' TERM INT HUP; sleep 4321; sleep 4321", code=124, opts=["--timeout", "1s"])

    def test_output_before_the_time_limit_is_there(self):
        r = self.run_("sh", "-c", "echo early; sleep 4321", code=124, opts=["--timeout", f"{10 * PATIENCE}s"])
        self.assertEqual(r.stdout, b"early\n")


class Force(SandboxCase):
    """kill -9 of each process. The next command cleans up all that the survivors could not."""

    def setUp(self):
        super().setUp()
        self.sandbox = self.create()

    def parts(self):
        warden = warden_of(self.sandbox)
        [keeper] = children_of(warden, "hutch-keeper")
        [guest] = children_of(warden, BOX)
        return warden, keeper, guest

    def nobody_lives(self):
        eventually(lambda: not named("hutch-keeper", BOX, "crun"), "the end of all processes")

    def test_of_a_client_ends_nothing(self):
        p = start("exec", "--name", "job", self.sandbox, "--", "sh", "-c", "sleep 4321 & sleep 4322")
        eventually(lambda: len(self.commands_in(self.sandbox)) == 3, "the command")
        p.kill()
        p.wait()
        for _ in range(3):  # a command starts and ends after it: by then the keeper knows
            self.assertEqual(len(self.commands_in(self.sandbox)), 3)
        self.ended(hutch("signal", f"{self.sandbox}/job", "KILL"), 0)
        eventually(lambda: self.commands_in(self.sandbox) == [], "the end of the command")
        self.assertEqual(self.ps()[self.sandbox]["state"], "running")

    def test_sigterm_of_a_client_ends_its_command_only(self):
        script = "trap '' TERM; sleep 4321 & sleep 4322 & trap 'echo got it' TERM; echo ready; while :; do wait; done"
        p = start("exec", self.sandbox, "--", "sh", "-c", script, stdout=subprocess.PIPE)
        self.assertEqual(p.stdout.readline(), b"ready\n")
        eventually(lambda: len(self.commands_in(self.sandbox)) == 3, "the command")
        p.terminate()
        self.assertEqual(p.stdout.readline(), b"got it\n")
        p.terminate()
        p.wait(LONG)
        p.stdout.close()
        eventually(lambda: self.commands_in(self.sandbox) == [], "the end of the command")
        self.assertEqual(self.ps()[self.sandbox]["state"], "running")

    def test_of_the_warden(self):
        kill(self.parts()[0])
        self.nobody_lives()
        self.gone(self.sandbox, "warden")
        self.ended(hutch("rm", self.sandbox), 0)

    def test_of_the_warden_while_a_command_runs(self):
        p = start("exec", self.sandbox, "--", *FOREVER, stderr=subprocess.PIPE)
        eventually(lambda: self.commands_in(self.sandbox) == ["sleep 4321"], "the command")
        kill(self.parts()[0])
        said = p.communicate(timeout=LONG)[1].decode()
        self.assertEqual(p.returncode, 125, said)
        self.assertRegex(said, "^hutch exec: ")
        self.nobody_lives()
        self.gone(self.sandbox, "warden")

    def test_of_the_keeper(self):
        kill(self.parts()[1])
        self.nobody_lives()
        self.gone(self.sandbox, "keeper")

    def test_of_pid_1(self):
        kill(self.parts()[2])
        self.nobody_lives()
        self.gone(self.sandbox, "guest-ended")

    def test_of_all_at_once(self):
        for pid in self.parts():
            kill(pid)
        self.nobody_lives()
        self.gone(self.sandbox, "warden")

    def test_of_a_warden_that_is_stopped(self):
        """hutch asks the warden first, and then kills it."""
        os.kill(self.parts()[0], signal.SIGSTOP)
        self.ended(hutch("rm", "-f", self.sandbox), 0)
        self.assertEqual(self.ps("-a"), {})


class Blocked(SandboxCase):
    """A warden that does not run, as one that waits for a disk. SIGSTOP stands for that."""

    def setUp(self):
        super().setUp()
        self.sandbox = self.create()
        self.warden = warden_of(self.sandbox)
        os.kill(self.warden, signal.SIGSTOP)
        self.addCleanup(self.go_on)
        self.waiting = [self.ask("ttl", self.sandbox, "1h"), self.ask("pause", self.sandbox)]

    def go_on(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.warden, signal.SIGCONT)

    def ask(self, *args):
        p = start(*args, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(p.kill)
        return p

    def answer(self, p):
        out, said = p.communicate(timeout=LONG)
        return p.returncode, out.decode(), said.decode()

    @as_root
    def test_requests_wait_for_it(self):
        """Commands run without it, up to the record files that it has made ahead."""
        commands = [self.ask("exec", self.sandbox, "--", "echo", str(i)) for i in range(12)]
        eventually(lambda: any(p.poll() is not None for p in commands), "the end of a command")
        self.assertEqual(self.ps()[self.sandbox]["state"], "running")
        self.assertEqual(self.inspect(self.sandbox)["state"], "running")
        self.assertEqual([p.poll() for p in self.waiting], [None, None])
        self.assertIn(None, [p.poll() for p in commands], "more than it has made ahead")
        self.go_on()
        self.assertEqual([self.answer(p)[0] for p in self.waiting], [0, 0])
        self.ended(hutch("resume", self.sandbox), 0)
        done = [self.answer(p) for p in commands]
        # A pause refuses a command that has not begun.
        for i, (code, out, said) in enumerate(done):
            self.assertIn((code, out), ((0, f"{i}\n"), (125, "")), said)
            self.assertRegex(said, f"^$|the sandbox is paused: hutch resume {self.sandbox}")
        self.assertEqual(self.sh(self.sandbox, "echo alive"), "alive\n")

    def test_requests_end_with_the_sandbox(self):
        self.ended(hutch("kill", self.sandbox), 0)
        for p, name in zip(self.waiting, ("ttl", "pause")):
            code, out, said = self.answer(p)
            # One that came too late is refused.
            self.assertIn((code, out), ((125, ""), (1, "")), said)
            self.assertRegex(said, rf"^hutch {name}: .*(ended|gone|closed|not running|no sandbox)")
        self.assertEqual(self.ps("-a")[self.sandbox]["state"], "ended")
        eventually(lambda: not named("hutch-keeper", BOX), "the end of all processes")


class ForceOnce(SandboxCase):
    """The same for `hutch run`."""

    def begin(self, *opts):
        p = start("run", *opts, "--", "sh", "-c", "echo ready; exec sleep 4321", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(p.stdout.readline(), b"ready\n")
        return p

    def finish(self, p):
        p.communicate(timeout=LONG)
        return p.returncode

    def test_of_hutch_run_leaves_nothing_at_all(self):
        p = self.begin("--rm")
        p.kill()
        self.finish(p)
        self.nothing_is_left()  # before any other command cleans up

    def test_of_hutch_run_without_rm(self):
        p = self.begin()
        p.kill()
        self.finish(p)
        [sandbox] = self.ps("-a")
        self.addCleanup(hutch, "rm", "-f", sandbox)
        self.gone(sandbox, "client-gone")

    def test_of_what_is_behind_hutch_run(self):
        for name in ("hutch-keeper", BOX):
            with self.subTest(name=name):
                p = self.begin("--rm")
                kill(min(q.pid for q in named(name)))
                self.assertEqual(self.finish(p), 125)
                hutch("ps")
                self.nothing_is_left()

    def test_sigterm_to_hutch_run_ends_it(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(signal=number):
                p = self.begin("--rm")
                p.send_signal(number)
                self.assertIn(self.finish(p), (128 + number, -number))
                self.nothing_is_left()


class ForceAtStart(SandboxCase):
    """Kills at any moment between the first process and the first command."""

    def moments(self):
        began = time.monotonic()
        self.run_("true")
        whole = time.monotonic() - began
        return [random.uniform(0, whole) for _ in range(12)]

    def test_of_the_client(self):
        for moment in self.moments():
            p = start("run", "--rm", "--", *FOREVER)
            until_clock(time.monotonic() + moment)
            p.kill()
            p.wait()
            self.assertEqual(hutch("ps").returncode, 0)
            self.assertEqual(settle(self.before), set(), f"after {moment:.3f} s")

    def works(self):
        running = [sandbox for sandbox, row in self.ps().items() if row["state"] == "running"]
        return running and hutch("exec", running[0], "true").returncode == 0

    def test_of_the_others(self):
        for moment in self.moments():
            p = start("run", "--rm", "--", *FOREVER)
            until_clock(time.monotonic() + moment)
            victims = named("hutch-keeper", BOX, "crun")
            victim = random.choice(victims) if victims else None
            with contextlib.suppress(ProcessLookupError):
                kill(victim.pid if victim else p.pid)
            # A process that has done its work (crun, the holder of a namespace) is not missed: then
            # the sandbox works, and ends with its client.
            eventually(lambda p=p: p.poll() is not None or self.works(), f"an end, or a sandbox that works, after {victim} was killed", also=self.ps)
            p.kill()
            self.assertNotEqual(p.wait(LONG), 0)
            self.assertEqual(hutch("ps").returncode, 0)
            self.assertEqual(settle(self.before), set(), f"{victim} killed after {moment:.3f} s")

    def test_of_create(self):
        for moment in self.moments():
            p = start("create")
            until_clock(time.monotonic() + moment)
            p.kill()
            p.wait()
            hutch("ps")
            eventually(lambda: not [i for i, row in self.ps("-a").items() if row["state"] == "starting"], "an end of starting")
            for sandbox in self.ps("-a"):
                self.ended(hutch("rm", "-f", sandbox), 0)
            self.assertEqual(settle(self.before), set(), f"after {moment:.3f} s")


class Ledger(SandboxCase):
    """Positive control: the ledger sees a living sandbox."""

    def test_it_sees_a_living_one(self):
        sandbox = self.create()
        more = ledger() - self.before
        for what in ("hutch-keeper", BOX, f"file {sandbox}/spec.json", f"file {sandbox}/lock"):
            self.assertTrue([line for line in more if what in line], f"{what} is not in {sorted(more)}")
        if os.geteuid() == 0:
            self.assertTrue([line for line in more if line.startswith("control group") and sandbox in line], more)
            self.assertTrue([line for line in more if line.startswith("ids ")], more)
        self.assertTrue((RUN / "sandboxes" / sandbox).is_dir())
