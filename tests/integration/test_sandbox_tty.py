# SPDX-License-Identifier: Apache-2.0
"""Terminals: `hutch run -it` used interactively; tmux plays the person."""

import os
import re
import subprocess
import tempfile
import uuid
from pathlib import Path

from sandbox import BOX, LONG, MACHINE, SandboxCase, eventually, hutch, named, start


class Terminal:
    """A terminal of 80 by 24 with a shell command in it; afterwards it shows [exit CODE]."""

    def __init__(self, command):
        self.name = f"hutch-{uuid.uuid4().hex[:8]}"
        self.dir = tempfile.TemporaryDirectory(prefix="tmux-")
        self.tmux("-f", "/dev/null", "new-session", "-d", "-s", "t", "-x", "80", "-y", "24", "sh", "-c",
                  f'stty -g >{self.dir.name}/before; {command}; echo "[exit $?]"; stty -g >{self.dir.name}/after; sleep 4321',
                  ";", "set", "-g", "status", "off")

    def tmux(self, *args):
        env = {**os.environ, "TMUX_TMPDIR": self.dir.name}
        env.pop("TMUX", None)
        return subprocess.run(["tmux", "-L", self.name, *args], env=env, stdin=subprocess.DEVNULL, capture_output=True, check=True,
                              timeout=LONG).stdout.decode()

    def type(self, text, *keys):
        if text:
            self.tmux("send-keys", "-t", "t", "-l", text)
        for key in keys:
            self.tmux("send-keys", "-t", "t", key)

    def screen(self):
        return self.tmux("capture-pane", "-p", "-t", "t")

    def wait(self, pattern):
        def seen():
            shown = self.screen()
            found = re.search(pattern, shown, re.M)
            if not found and "[exit " in shown:
                raise AssertionError("the command has ended")
            return found
        try:
            return eventually(seen, f"{pattern!r} on the screen")
        except AssertionError as e:
            raise AssertionError(f"{e}; it shows:\n{self.screen().rstrip()}") from None

    def exit(self):
        return int(self.wait(r"\[exit (\d+)\]")[1])

    def modes(self, when):
        path = Path(self.dir.name, when)
        return path.read_text() if path.exists() else ""

    def resize(self, columns, rows):
        self.tmux("resize-window", "-t", "t", "-x", str(columns), "-y", str(rows))

    def end(self):
        subprocess.run(["tmux", "-L", self.name, "kill-server"], env={**os.environ, "TMUX_TMPDIR": self.dir.name},
                       capture_output=True, check=False)
        self.dir.cleanup()


class TerminalCase(SandboxCase):
    def terminal(self, command):
        t = Terminal(f"{os.environ['HUTCH']} {command}")
        self.addCleanup(t.end)
        return t


class Programs(TerminalCase):
    def test_vim_writes_a_file(self):
        sandbox = self.create()
        t = self.terminal(f"exec -it {sandbox} -- vim.tiny -u NONE /workspace/poem")
        t.wait("poem")
        t.type("i")
        t.type("roses are red", "Enter")
        t.type("violets are blue", "Escape")
        t.wait("violets are blue")
        t.type(":wq", "Enter")
        self.assertEqual(t.exit(), 0)
        self.assertEqual(self.sh(sandbox, "cat /workspace/poem"), "roses are red\nviolets are blue\n")

    def test_top_draws_and_quits(self):
        t = self.terminal("run --rm -it -- top")
        t.wait(r"PID +USER")
        # The VM's kernel threads count too.
        t.wait(r"Tasks: +[1-9]\d+ total" if MACHINE else r"Tasks: +2 total")
        t.type("q")
        self.assertEqual(t.exit(), 0)

    def test_the_python_prompt_and_ctrl_c(self):
        t = self.terminal("run --rm -it -- python3 -q")
        t.wait("^>>>")
        t.type("6 * 7", "Enter")
        t.wait("^42$")
        # After its first output it runs: earlier, the key would also discard typed input.
        t.type("while not print('r' + 'uns'): __import__('time').sleep(4321)", "Enter")
        t.type("", "Enter")
        t.wait("^runs$")
        t.type("", "C-c")
        t.wait("^KeyboardInterrupt")
        t.type("exit(3)", "Enter")
        self.assertEqual(t.exit(), 3)

    def test_a_shell_and_ctrl_d(self):
        t = self.terminal("run --rm -it -- sh")
        t.wait("^[$] ?")
        t.type("tty; echo is=$((1+1))", "Enter")
        t.wait("^/dev/pts/0$")
        t.wait("^is=2$")
        t.type("", "C-d")
        self.assertEqual(t.exit(), 0)

    def test_ctrl_z_stays_inside(self):
        t = self.terminal("run --rm -it -- bash --norc -i")
        t.wait("[$#] ?$")
        # After its first output it owns the terminal, and gets the key.
        t.type("sh -c 'echo go; sleep 4321'", "Enter")
        t.wait("^go$")
        t.type("", "C-z")
        t.wait("Stopped +sh -c")
        t.type("exec true", "Enter")
        self.assertEqual(t.exit(), 0)


class Modes(TerminalCase):
    def test_the_size_of_the_window_goes_in(self):
        t = self.terminal("run --rm -it -- stty size")
        t.wait("^24 80$")
        self.assertEqual(t.exit(), 0)

    def test_a_new_size_goes_in(self):
        t = self.terminal("""run --rm -it -- sh -c 'trap "stty size" WINCH; echo ready; while :; do sleep 0.1; done'""")
        t.wait("^ready$")
        t.resize(100, 30)
        t.wait("^30 100$")
        t.type("", "C-c")
        self.assertEqual(t.exit(), 130)

    def test_exit_codes(self):
        for command, code in (("sh -c 'exit 7'", 7), ("sh -c 'kill -9 $$'", 137), ("no-such-program", 127)):
            with self.subTest(command=command):
                self.assertEqual(self.terminal(f"run --rm -it -- {command}").exit(), code)

    def test_the_terminal_is_as_before(self):
        for command in ("true", "sh -c 'stty raw -echo; kill -9 $$'", "no-such-program"):
            with self.subTest(command=command):
                t = self.terminal(f"run --rm -it -- {command}")
                t.exit()
                eventually(lambda: t.modes("after"), "the end of stty")
                self.assertEqual(t.modes("before"), t.modes("after"))

    def test_the_terminal_is_as_before_when_the_sandbox_dies(self):
        sandbox = self.create()
        t = self.terminal(f"exec -it {sandbox} -- sh -c 'echo ready; sleep 4321'")
        t.wait("^ready$")
        hutch("kill", sandbox)
        self.assertEqual(t.exit(), 125)
        eventually(lambda: t.modes("after"), "the end of stty")
        self.assertEqual(t.modes("before"), t.modes("after"))

    def test_a_time_limit(self):
        t = self.terminal("run --rm -it --timeout 1s -- sleep 4321")
        self.assertEqual(t.exit(), 124)

    def test_a_terminal_that_goes_ends_the_command(self):
        t = self.terminal("run --rm -it -- sh -c 'echo ready; sleep 4321'")
        t.wait("^ready$")
        t.end()
        eventually(lambda: not named("hutch", "hutch-keeper", BOX), "the end of the sandbox")

    def test_all_keys_go_in(self):
        t = self.terminal("run --rm -it -- python3 -c 'import os, tty; tty.setraw(0); print(\"ready\\r\"); "
                          "print(b\"\".join(os.read(0, 1) for _ in range(6)).hex(), end=\"\\r\\n\")'")
        t.wait("^ready$")
        t.type("", "C-c", "C-d", "C-z", "C-\\", "C-q", "C-s")
        t.wait("^03041a1c1113$")
        self.assertEqual(t.exit(), 0)

    def test_without_a_terminal_t_is_refused(self):
        p = start("run", "--rm", "-it", "--", "true", stderr=subprocess.PIPE)
        said = p.communicate(timeout=LONG)[1].decode()
        self.assertEqual(p.returncode, 125, said)
        self.assertIn("terminal", said)
