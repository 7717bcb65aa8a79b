#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
What code in a container can reach, tried from inside with the bundle that sandboxes get and the real crun.

tests/attack/probe.c tries; container.expected says what must be seen. Every kind of try has a positive control: the
same try in a box with that one layer taken away succeeds, or the test would prove nothing.

BUNDLE and PROBE are the programs; HUTCH_UPDATE=1 writes the table anew.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent
EXPECTED = HERE / "container.expected"
HOST_ID = 1_000_000_000

# In a mount namespace of its own: a root of empty directories, and crun's view of a hybrid host mended: it refuses to
# start where the v2 side has controllers. Standard input is a pipe: crun gives the file behind it to the sandbox's user,
# and /dev/null is the host's.
SCRIPT = """
set -e
mount -t tmpfs tmpfs "$1/root"
for d in proc dev sys tmp; do mkdir "$1/root/$d"; done
chmod 1777 "$1/root/tmp"
chown -R {id}:{id} "$1/root"
c=/sys/fs/cgroup/unified/cgroup.controllers
if [ -e $c ]; then mount --bind /dev/null $c; fi
: | crun --root "$1/crun" --cgroup-manager=disabled run --bundle "$1/bundle" "$2" | cat
""".format(id=HOST_ID)


def run(weaken=lambda config: None, network=False, probe_id=0):
    """{"41 socket family 2": "ok", ...} as seen from inside a box. The probe's file belongs to `probe_id` of the host."""
    name = f"hutch-attack-{os.getpid()}"
    with tempfile.TemporaryDirectory() as tmp:
        for d in ("root", "bundle", "crun"):
            os.mkdir(f"{tmp}/{d}")
        os.chmod(tmp, 0o755)
        shutil.copy(os.environ["PROBE"], f"{tmp}/probe")
        os.chown(f"{tmp}/probe", probe_id, probe_id)
        config = json.loads(subprocess.check_output(
            [os.environ["BUNDLE"], f"{tmp}/root", f"{tmp}/probe", str(HOST_ID)]))
        weaken(config)
        with open(f"{tmp}/bundle/config.json", "w") as f:
            json.dump(config, f)
        # A network of the test's own, with a device in it, stands for the host's where a control needs one.
        outer = ["unshare", "--mount", "--propagation", "private", *(["--net"] if network else [])]
        script = ("ip link add canary0 type veth peer name canary1\n" if network else "") + SCRIPT
        r = subprocess.run([*outer, "bash", "-c", script, "-", tmp, name],
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    return parse(r.stdout, r.stderr)


def parse(said, errors=""):
    """What the probe has printed, by row and try."""
    seen = {}
    for line in said.splitlines():
        m = re.match(r"(\d+ .*?): *\t?(.*)$", line)
        if m:
            if m[1] in seen:
                raise AssertionError(f"said twice: {line}")
            seen[m[1]] = m[2].strip()
    if seen.get("0 end") != "ok":
        raise AssertionError(f"the probe did not end: {errors}\n{said[-500:]}")
    return seen


def classify(seen):
    """Errors that a call gives for nonsense differ from kernel to kernel; whether it was reached does not."""
    return {k: v if not k.startswith("32 syscall") or v in ("EPERM", "ENOSYS", "killed") else "reached"
            for k, v in seen.items()}


def table(seen):
    def order(item):
        row, what = item[0].split(" ", 1)
        return int(row), [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", what)]
    return "".join(f"{k}: {v}\n" for k, v in sorted(classify(seen).items(), key=order))


@unittest.skipUnless(os.geteuid() == 0, "needs root: it makes a container as the system's hutch would")
@unittest.skipUnless(shutil.which("crun"), "crun is not installed")
class Container(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.hard = run()

    def test_table(self):
        """Rows 19 to 22, 24 to 30, 32 to 41, 44, 66."""
        if os.environ.get("HUTCH_UPDATE"):
            EXPECTED.write_text(table(self.hard))
        self.assertEqual(EXPECTED.read_text(), table(self.hard))

    def test_nothing_is_reached_that_should_not_be(self):
        """The table itself is not taken on trust."""
        for what, result in self.hard.items():
            if re.match(r"(33|34) .*(mount|uts|ipc|user|pid|network|cgroup)", what):
                self.assertIn(result, ("EPERM", "ENOSYS"), what)
            if m := re.match(r"41 socket family (\d+)", what):
                self.assertEqual(result == "ok", int(m[1]) in (1, 2, 10), what)
            if m := re.match(r"41 socketpair family (\d+)", what):
                self.assertEqual(result, "ok" if m[1] == "1" else "EPERM", what)
            if m := re.match(r"41 family \d+ type (\d+)", what):
                self.assertEqual(result, "ok" if m[1] in ("1", "2") else "EPERM", what)
            if what.startswith(("19 ", "20 ", "21 ", "22 ", "29 ", "37 ", "40 ", "26 /", "26 list")):
                self.assertIn(result, ("ENOENT", "ENODATA", "EACCES", "EPERM", "EROFS"), what)
        # mount, umount2, reboot, init_module, kexec_load, keyctl, unshare, perf_event_open, open_by_handle_at, setns,
        # finit_module, bpf, userfaultfd, io_uring_setup, open_tree, fsopen, pidfd_getfd
        for nr in (165, 166, 169, 175, 246, 250, 272, 298, 304, 308, 313, 321, 323, 425, 428, 430, 438):
            self.assertIn(self.hard[f"32 syscall {nr}"], ("EPERM", "ENOSYS"), nr)
        self.assertEqual(self.hard["24 descriptors"], "0 1 2")
        self.assertEqual(self.hard["26 paths of groups"], "its own")
        self.assertEqual(self.hard["32 i386 getpid"], "killed")
        self.assertEqual({k: v for k, v in self.hard.items() if k.startswith("44 Cap")},
                         {f"44 Cap{s}": "0" * 16 for s in ("Inh", "Prm", "Eff", "Bnd", "Amb")})
        self.assertEqual(self.hard["66 devices"], "lo")

    def test_control_without_seccomp(self):
        weak = run(lambda c: c["linux"].pop("seccomp"))
        for what in ("33 unshare user", "34 clone user+network", "41 socket family 16", "30 TIOCSTI",
                     "30 TIOCSTI with a high bit", "38 personality read implies exec", "33 clone3 none",
                     "32 filter by seccomp", "32 filter by prctl", "32 filter by prctl with a high bit",
                     "32 filter of a socket", "32 filter of a socket with high bits", "32 filter of ports"):
            self.assertEqual(weak[what], "ok", what)
            self.assertNotEqual(self.hard[what], "ok", what)
        self.assertNotEqual(weak["32 i386 getpid"], "killed")
        # There or not, the kernel itself answers: by then it has looked for a module, or made the socket. Families 38 and 40 are AF_ALG and vsock.
        for what in ("41 SCTP socket", "41 MPTCP socket", "41 SCTP packets", "41 DCCP socket", "41 UDP-Lite socket", "41 family 2 type 5",
                     "41 family 10 type 6", "41 socketpair family 2", "41 socketpair family 30", "41 socketpair family 38", "41 socketpair family 40"):
            self.assertEqual(self.hard[what], "EPERM", what)
            self.assertNotEqual(weak[what], "EPERM", what)
        for nr in (425, 323, 298):  # io_uring_setup, userfaultfd, perf_event_open
            self.assertNotEqual(weak[f"32 syscall {nr}"], self.hard[f"32 syscall {nr}"], nr)

    def test_control_without_masks(self):
        def weaken(c):
            c["linux"]["maskedPaths"] = []
        weak = run(weaken)
        for what in ("19 /proc/kallsyms", "19 /proc/timer_list"):
            self.assertNotEqual(weak[what], self.hard[what], what)

    def test_control_with_an_agent_of_the_same_user(self):
        """Rows 21, 22, 37. Its file is the user's too and can be written: only that it runs is in the way of a write."""
        def weaken(c):
            c["process"]["args"].append("same")
            c["linux"].pop("seccomp")
            for m in c["mounts"]:
                if m["destination"] == "/dev/hutch-guest":
                    m["options"].remove("ro")
        weak = run(weaken, probe_id=HOST_ID + 1000)
        for what in self.hard:
            if what.startswith(("21 ", "37 ", "19 /proc/1/")) and what != "21 /proc/1/ns/net":
                self.assertEqual(weak[what], "ok", what)
            if what.startswith("22 "):
                self.assertEqual(weak[what], "ETXTBSY", what)

    def test_control_with_control_groups(self):
        def weaken(c):
            c["mounts"] = [m for m in c["mounts"] if m["destination"] != "/sys"]
            for place in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup"):  # v1; v2
                if os.path.exists(f"{place}/cgroup.procs"):
                    c["mounts"].append({"destination": place, "type": "bind", "source": place, "options": ["bind", "ro"]})
                    break
            c["linux"]["namespaces"] = [n for n in c["linux"]["namespaces"] if n["type"] != "cgroup"]
        weak = run(weaken)
        self.assertEqual(weak["26 list /sys/fs/cgroup"], "ok")
        self.assertIn("ok", [weak[k] for k in weak if k.startswith("26 /sys/fs/cgroup")])

    def test_control_of_the_clock(self):
        """Row 29, on the host: as root, the kernel's log can be read and the clock set (to what it is)."""
        said = parse(subprocess.check_output([os.environ["PROBE"], "clock"], text=True))
        self.assertEqual({k for k in said if said[k] != "ok"}, set())
        self.assertEqual(set(said) - {"0 end"}, {k for k in self.hard if k.startswith("29 ")})

    def test_control_with_sysfs(self):
        def weaken(c):
            for m in c["mounts"]:
                if m["destination"] == "/sys":
                    m.update(type="sysfs", source="sysfs", options=["ro", "nosuid", "noexec", "nodev"])
        self.assertEqual(run(weaken)["19 /sys/kernel/uevent_seqnum"], "ok")
        self.assertEqual(self.hard["19 /sys/kernel/uevent_seqnum"], "ENOENT")

    def test_control_with_the_network_outside(self):
        def weaken(c):
            c["linux"]["namespaces"] = [n for n in c["linux"]["namespaces"] if n["type"] != "network"]
        self.assertEqual(run(network=True)["66 devices"], "lo")
        self.assertIn("canary0", run(weaken, network=True)["66 devices"].split())

    def test_nothing_is_left(self):
        st = os.stat("/dev/null")
        self.assertEqual((st.st_uid, st.st_gid), (0, 0), "the host's /dev/null was given away")


if __name__ == "__main__":
    unittest.main()
