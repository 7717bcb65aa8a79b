# SPDX-License-Identifier: Apache-2.0
"""`hutch commit` makes an image of a sandbox's files, and a sandbox of that image has them."""

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import wire
from sandbox import LONG, MACHINE, RUN, SandboxCase, agent, eventually, hutch, start

STATE = Path(os.environ.get("HUTCH_STATE_DIR", "/nonexistent"))
# Owner, mode, type and contents of all given paths; names as bytes.
LOOK = r"""
import os, stat, sys
for top in sys.argv[1:]:
    for where, dirs, files in os.walk(os.fsencode(top)):
        dirs.sort()
        for name in [b'.'] + sorted([d for d in dirs if os.path.islink(os.path.join(where, d))] + files):
            path = os.path.normpath(os.path.join(where, name))
            st = os.lstat(path)
            what = b''
            if stat.S_ISLNK(st.st_mode):
                what = os.readlink(path)
            elif stat.S_ISREG(st.st_mode) and os.access(path, os.R_OK):
                what = open(path, 'rb').read()
            print(path, oct(st.st_mode), st.st_uid, st.st_gid, what)
"""
MAKE = r"""
import os
os.umask(0)
os.makedirs('/opt/tool/bin')
open('/opt/tool/bin/run', 'w').write('#!/bin/sh\necho it runs\n')
os.chmod('/opt/tool/bin/run', 0o755)
os.symlink('bin/run', '/opt/tool/again')
os.symlink('/nowhere', '/opt/tool/dangling')
os.link('/opt/tool/bin/run', '/opt/tool/hard')
open(b'/opt/tool/a\nb \xff\\', 'w').write('odd')
os.mkdir('/opt/tool/sticky', 0o1777)
os.mkdir('/opt/tool/closed', 0o700)
open('/opt/tool/closed/zero', 'w').write('hidden')
os.chmod('/opt/tool/closed/zero', 0)
os.makedirs('/opt/tool/' + 'd' * 200 + '/' + 'e' * 200)
open('/etc/added', 'w').write('by root')
open('/opt/tool/suid', 'w').write('x')
os.chmod('/opt/tool/suid', 0o4755)
os.mkfifo('/opt/tool/fifo')
open('/tmp/passing', 'w').write('x')
open('/run/passing', 'w').write('x')
os.remove('/etc/motd') if os.path.exists('/etc/motd') else None
os.rmdir('/mnt')
"""
# Root cannot read it without a capability.
MAKE_HOME = r"""
import os
os.mkdir('/home/user/private', 0o700)
open('/home/user/private/key', 'w').write('of the user')
os.chmod('/home/user/private/key', 0o600)
"""


class CommitCase(SandboxCase):
    @classmethod
    def setUpClass(cls):
        agent("builder", "filesystem:\n  workspace: /workspace\n  read: [/]\n  write: [/]\n  execute: [/]\n")

    def setUp(self):
        super().setUp()
        self.made = []
        self.addCleanup(self.remove_images)

    def remove_images(self):
        for name in dict.fromkeys(self.made):
            hutch("image", "rm", name)
        self.nothing_half_made()

    def nothing_half_made(self):
        """gc removes abandoned work directories; a worker whose parent was killed ends within a
        moment."""
        eventually(lambda: self.ended(hutch("gc"), 0) and not os.listdir(STATE / "images/tmp"), "the end of the workers")

    def commit(self, sandbox, name, *opts, code=0, **more):
        self.made.append(name)
        return self.ended(hutch("commit", *opts, sandbox, name, **more), code)

    def digest(self, *args):
        return json.loads(self.commit(*args, "--json").stdout)["sha256"]

    def image(self, name):
        return self.json("image", "inspect", "--json", name)

    def look(self, sandbox, *paths, user="0"):
        return self.python(sandbox, LOOK, *paths, opts=("-u", user))

    def made_sandbox(self):
        sandbox = self.create("-a", "builder")
        self.python(sandbox, MAKE, opts=("-u", "0"))
        self.python(sandbox, MAKE_HOME, opts=("-u", "user"))
        return sandbox


class Commit(CommitCase):
    def test_files_are_as_they_were(self):
        sandbox = self.made_sandbox()
        r = self.commit(sandbox, "made:v1.0")
        said = r.stderr.decode()
        self.assertIn("1 without their set-ID bits", said)
        self.assertIn("1 left out (sockets, FIFOs, devices)", said)
        self.sh(sandbox, "chmod 755 /opt/tool/suid; rm /opt/tool/fifo", opts=("-u", "0"))
        before = self.look(sandbox, "/opt", "/etc", "/var", "/home")
        private = self.look(sandbox, "/home/user", user="user")
        self.assertIn("of the user", private)
        after = self.create("-a", "builder", "--image", "made:v1.0")
        if MACHINE:  # the VM has its own machine-id in place of the image's
            before = before.replace(self.sh(sandbox, "cat /etc/machine-id").strip(), self.sh(after, "cat /etc/machine-id").strip())
        self.assertEqual(self.look(after, "/opt", "/etc", "/var", "/home"), before)
        self.assertEqual(self.look(after, "/home/user", user="user"), private)
        self.assertEqual(self.sh(after, "/opt/tool/again; ls -A /tmp; ls -d /run/*; ls -d /mnt 2>&1; true"),
                         "it runs\n/run/lock\nls: cannot access '/mnt': No such file or directory\n")
        # A file that its owner cannot read is copied too.
        self.assertEqual(self.sh(after, "chmod 400 /opt/tool/closed/zero && cat /opt/tool/closed/zero", opts=("-u", "0")), "hidden")
        self.assertEqual(self.ps()[after]["image"], "made:v1.0")

    def test_the_same_files_are_the_same_image(self):
        sandbox = self.made_sandbox()
        first = self.digest(sandbox, "first")
        self.sh(sandbox, "touch /etc/added /opt/tool; echo passing >/tmp/more", opts=("-u", "0"))
        self.assertEqual(self.digest(sandbox, "second"), first)
        # Also from a sandbox of the image: starting it changes nothing.
        self.assertEqual(self.digest(self.create("-a", "builder", "--image", "first"), "third"), first)
        self.sh(sandbox, "chmod 600 /etc/added", opts=("-u", "0"))
        self.assertNotEqual(self.digest(sandbox, "fourth"), first)

    def test_how_it_is_run(self):
        sandbox = self.create()
        self.commit(sandbox, "one", "-e", "A=1", "-e", "B=two=2", "-u", "root", "-w", "/srv", "--start", "sleep 9 & wait", "--ready", "true")
        one = self.image("one")
        self.assertEqual((one["env"]["A"], one["env"]["B"], one["user"], one["workdir"], one["start"], one["ready"]),
                         ("1", "two=2", "root", "/srv", "sleep 9 & wait", "true"))
        self.assertEqual({**one["source"], "sha256": ""}, {"kind": "commit", "sandbox": sandbox, "image": "base", "sha256": ""})
        self.assertEqual(self.out("sh", "-c", "id -un; echo $A $B", opts=("--image", "one")), "root\n1 two=2\n")
        # Settings without an option stay as they are.
        two = self.create("--image", "one")
        self.commit(two, "two", "-e", "B=3")
        self.assertEqual({k: self.image("two")[k] for k in ("env", "user", "workdir", "start", "ready")},
                         {"env": {**one["env"], "B": "3"}, "user": "root", "workdir": "/srv", "start": "sleep 9 & wait", "ready": "true"})

    def test_the_audit_log_knows(self):
        sandbox = self.create()
        digest = self.digest(sandbox, "known:x")
        lines = [json.loads(line) for line in hutch("audit", "show", "--json").stdout.decode().splitlines()]
        said = json.dumps([line for line in lines if "known:x" in json.dumps(line)])
        self.assertIn(digest, said)
        self.assertIn(sandbox, said)

    def test_what_is_refused(self):
        sandbox = self.create()
        for name in ("A", "a:b:c", "../a", "a:..", ":", ""):
            self.refused("commit", sandbox, name, code=2)
        for opts, said in ((("-e", "x"), "NAME=value"), (("-w", "x"), "not absolute"), (("-e", "A=" + "x" * 4096), "4096 bytes"),
                           (("--start", "x" * 5000), "4096 bytes")):
            self.assertIn(said, self.refused("commit", *opts, sandbox, "never", code=1))
        self.assertIn("more data than", self.refused("commit", "--max-size", "1MiB", sandbox, "never"))
        self.assertEqual(hutch("image", "inspect", "never").returncode, 1)
        self.refused("commit", "nosuchsandbox", "never", code=1)

    def test_more_than_the_disk_has(self):
        """Sparse files and hard links are small inside and large in an archive."""
        sandbox = self.create("-a", "builder", "--disk", "64MiB")
        self.sh(sandbox, "truncate -s 20G /opt/hole", opts=("-u", "0"))
        self.assertIn("more data than its image and disk", self.refused("commit", sandbox, "never", timeout=4 * LONG))
        self.assertEqual(self.sh(sandbox, "rm /opt/hole; echo goes on", opts=("-u", "0")), "goes on\n")

    def test_what_cannot_be_read_is_no_image(self):
        deep = "/".join("d" * 20 for _ in range(130))
        sandbox = self.create("-a", "builder")
        self.python(sandbox, f"import os\nos.chdir('/opt')\nfor d in '{deep}'.split('/'): os.mkdir(d); os.chdir(d)", opts=("-u", "0"))
        self.assertIn("too deep", self.refused("commit", sandbox, "never"))

    def test_only_root_and_only_the_root(self):
        """The right to read every file is for commit only; programs inside do not get it."""
        sandbox = self.create("-a", "builder")
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(RUN / "sandboxes" / sandbox / "sock"))
            link = wire.Link(s)
            self.addCleanup(link.close)
            link.hello(read=(), write=(), execute=())
            for code, said, asked in ((wire.PERMISSION, "only root", {"path": "/", "user": "user"}), (wire.PERMISSION, "only root", {"path": "/"}),
                                      (wire.INVALID, "packed from", {"path": "/etc", "user": "0"})):
                ch = link.open("pack", owners=True, **asked)
                self.assertEqual(ch.wait_closed(), code)
                self.assertIn(said, ch.closed["text"])
        caps = self.sh(sandbox, "sed -n 's/^Cap[EP][a-z]*:.//p' /proc/self/status /proc/1/status", opts=("-u", "0")).split()
        self.assertEqual(caps[:2], ["0" * 16] * 2)
        self.assertEqual([int(x, 16) >> 2 & 1 for x in caps[2:]], [1, 0], "PID 1 has it to pass on, and does not use it")

    def test_it_is_in_use(self):
        """Files come and go meanwhile."""
        sandbox = self.create("-a", "builder")
        self.exec_(sandbox, "sh", "-c", "while :; do echo x >/var/tmp/$$; mv /var/tmp/$$ /var/tmp/a; rm /var/tmp/a; done", opts=("-d", "-u", "0"))
        for _ in range(3):
            self.commit(sandbox, "busy")

    def test_killed_in_the_middle(self):
        sandbox = self.create("-a", "builder")
        self.sh(sandbox, "dd if=/dev/zero of=/opt/large bs=1M count=200 2>/dev/null", opts=("-u", "0"))
        for sig in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
            eventually(lambda s=sig: self.half_done(sandbox, s), "a commit that is met in the middle")
            self.assertEqual(hutch("image", "inspect", "half").returncode, 1)
            self.nothing_half_made()
        self.commit(sandbox, "half")

    def half_done(self, sandbox, sig):
        """Sends a signal to a commit that has begun to write; returns whether that was in time."""
        p = start("commit", sandbox, "half")
        eventually(lambda: p.poll() is not None or list((STATE / "images/tmp").glob("*/root/*")), "its beginning")
        p.send_signal(sig)
        if p.wait(LONG) == 0:
            self.ended(hutch("image", "rm", "half"), 0)
            return False
        return True

    def cut_off(self):
        """The error of a commit whose sandbox was killed; None if the kill came too late."""
        sandbox = self.create("-a", "builder")
        self.sh(sandbox, "dd if=/dev/zero of=/opt/large bs=1M count=200 2>/dev/null", opts=("-u", "0"))
        p = start("commit", sandbox, "half", stderr=subprocess.PIPE)
        eventually(lambda: p.poll() is not None or os.listdir(STATE / "images/tmp"), "the beginning")
        self.ended(hutch("kill", sandbox), 0)
        said = p.communicate(timeout=LONG)[1].decode()
        if p.returncode == 0:
            self.ended(hutch("image", "rm", "half"), 0)
            return None
        return said

    def test_its_end_in_the_middle(self):
        said = eventually(self.cut_off, "a commit that is met in the middle")
        self.assertIn("has ended", said)
        self.assertEqual(hutch("image", "inspect", "half").returncode, 1)
