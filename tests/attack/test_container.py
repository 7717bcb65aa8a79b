#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
Tries from inside a container, with the bundle that sandboxes get and the real crun.

tests/attack/probe.c makes the tries; container.expected lists the results. Every kind of try has a
positive control: the same try succeeds in a box without that one layer.

BUNDLE and PROBE are the programs; HUTCH_UPDATE=1 rewrites the table.
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent
EXPECTED = HERE / "container.expected"
HOST_ID = 1_000_000_000

# Family, type and protocol of the sockets that a sandbox may create, out of all families and types
# with a dozen protocols each: unix sockets; TCP, UDP and ping over IPv4 and IPv6.
KINDS = "1/1/0 1/1/1 1/2/0 1/2/1 1/5/0 1/5/1 2/1/0 2/1/6 2/2/0 2/2/1 2/2/17 10/1/0 10/1/6 10/2/0 10/2/17 10/2/58".split()
# Row 43. Kernel vulnerabilities used for container escapes, from gVisor's public record
# (cve-track-record.yml), by the first step that each needs. The test tries only that step: it is
# refused here and succeeds without the syscall filter.
FIRST_STEPS = {
    "34 clone user+network": """
        CVE-2022-1055 CVE-2022-27666 CVE-2022-29581 CVE-2023-1281 CVE-2023-4015 CVE-2023-4147 CVE-2023-4206 CVE-2023-4207 CVE-2023-4208
        CVE-2023-4623 CVE-2023-4921 CVE-2023-6111 CVE-2023-6817 CVE-2023-52927 CVE-2024-0193 CVE-2024-26581 CVE-2024-26925 CVE-2024-46800
        CVE-2024-53141 CVE-2024-53164 CVE-2025-21700 CVE-2025-21701 CVE-2025-21703 CVE-2025-37752 CVE-2025-37797 CVE-2025-37798
        CVE-2025-38000 CVE-2025-38001 CVE-2025-38083 CVE-2025-38350 CVE-2025-38477 CVE-2025-38500 CVE-2025-39965 CVE-2025-40018
        CVE-2025-40215 CVE-2026-23074 CVE-2026-23111 CVE-2026-23209 CVE-2026-23231 CVE-2026-23278 CVE-2026-23351 CVE-2026-23392
        CVE-2026-31418 CVE-2026-43284""",
    "34 clone user+mount": "CVE-2021-4154 CVE-2021-33909 CVE-2022-0185 CVE-2022-0492",
    "32 syscall 425": """CVE-2022-1116 CVE-2022-1786 CVE-2022-2327 CVE-2022-2602 CVE-2022-3176 CVE-2022-20409 CVE-2022-29582
        CVE-2025-40364""",  # io_uring_setup
    "32 filter by seccomp": "CVE-2022-23222 CVE-2023-52447",  # BPF; bpf(2) also needs a privilege
    "41 packet socket in a network of its own": "CVE-2020-14386 CVE-2021-22600 CVE-2025-38617 CVE-2026-31504",
    "41 TLS in the kernel": "CVE-2024-26583 CVE-2024-26584 CVE-2024-26585 CVE-2024-26800 CVE-2025-38616 CVE-2025-39946 CVE-2026-31533",
    "41 socketpair family 40": "CVE-2025-21756 CVE-2025-38618",  # vsock
    "41 socketpair family 38": "CVE-2025-39964 CVE-2025-40019 CVE-2026-23060 CVE-2026-31431",  # AF_ALG
    "41 socketpair family 33": "CVE-2026-43500",  # RxRPC
}
# The first step of these is something every program does: memory, pipes, futexes, timers, waiting,
# unix and internet sockets. Only a patched kernel, or a separate one (level microvm), stops them:
# docs/THREAT-MODEL.md, "A hole in the kernel". test_files.py tries CVE-2022-0847.
LEFT_TO_THE_KERNEL = """CVE-2016-5195 CVE-2017-5123 CVE-2022-0847 CVE-2022-2585 CVE-2023-4622 CVE-2025-40214 CVE-2026-23240 CVE-2026-23394
    CVE-2026-31419 CVE-2026-43499 CVE-2026-43503"""

# Runs in a new mount namespace with a root of empty directories. It also corrects crun's view of a
# hybrid host, because crun refuses to start if the v2 hierarchy has controllers. Standard input is
# a pipe: crun changes the owner of the file behind it to the sandbox's user, and /dev/null belongs
# to the host.
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
    """Runs the probe in a box and returns {"41 socket family 2": "ok", ...}. The probe's file
    belongs to host uid `probe_id`."""
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
        # A network namespace with a device stands in for the host's network where a control needs
        # one.
        outer = ["unshare", "--mount", "--propagation", "private", *(["--net"] if network else [])]
        script = ("ip link add canary0 type veth peer name canary1\n" if network else "") + SCRIPT
        r = subprocess.run([*outer, "bash", "-c", script, "-", tmp, name],
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    return parse(r.stdout, r.stderr)


def parse(said, errors=""):
    """Parses the probe's output into results by row and try."""
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
    """Errors of a call with invalid arguments differ between kernels; whether the call was
    reached does not."""
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
        """Checks the rules that the table itself must meet."""
        for what, result in self.hard.items():
            if re.match(r"(33|34) .*(mount|uts|ipc|user|pid|network|cgroup)", what):
                self.assertIn(result, ("EPERM", "ENOSYS"), what)
            if m := re.match(r"41 socket family (\d+)", what):
                self.assertEqual(result == "ok", int(m[1]) in (1, 2, 10), what)
            if m := re.match(r"41 socketpair family (\d+)", what):
                self.assertEqual(result, "ok" if m[1] == "1" else "EPERM", what)
            if m := re.match(r"41 family \d+ type (\d+)", what):
                self.assertEqual(result, "ok" if m[1] in ("1", "2") else "EPERM", what)
            if what in ("41 TLS in the kernel", "41 ESP in UDP", "41 packet socket in a network of its own"):
                self.assertEqual(result, "EPERM", what)
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
        self.assertEqual(self.hard["41 kinds"].split(), KINDS)
        self.assertGreater(len(weak["41 kinds"].split()), 100)
        self.assertLess(set(KINDS), set(weak["41 kinds"].split()))
        # Whatever its answer, the kernel handled the call: it looked for a module or created the
        # socket. Families 38 and 40 are AF_ALG and vsock.
        for what in ("41 TLS in the kernel", "41 ESP in UDP", "41 SCTP socket", "41 MPTCP socket", "41 SCTP packets", "41 DCCP socket", "41 UDP-Lite socket", "41 family 2 type 5",
                     "41 family 10 type 6", "41 socketpair family 2", "41 socketpair family 30", "41 socketpair family 38", "41 socketpair family 40"):
            self.assertEqual(self.hard[what], "EPERM", what)
            self.assertNotEqual(weak[what], "EPERM", what)
        for nr in (425, 323, 298):  # io_uring_setup, userfaultfd, perf_event_open
            self.assertNotEqual(weak[f"32 syscall {nr}"], self.hard[f"32 syscall {nr}"], nr)

    def test_first_steps_of_known_vulnerabilities(self):
        """Row 43."""
        weak = run(lambda c: c["linux"].pop("seccomp"))
        for what, known in FIRST_STEPS.items():
            self.assertIn(self.hard[what], ("EPERM", "ENOSYS"), (what, known))
            self.assertNotIn(weak[what], ("EPERM", "ENOSYS"), (what, "control"))
        names = " ".join(FIRST_STEPS.values()).split() + LEFT_TO_THE_KERNEL.split()
        self.assertEqual((len(names), len(set(names))), (87, 87))

    def test_control_without_masks(self):
        def weaken(c):
            c["linux"]["maskedPaths"] = []
        weak = run(weaken)
        for what in ("19 /proc/kallsyms", "19 /proc/timer_list"):
            self.assertNotEqual(weak[what], self.hard[what], what)

    def test_control_with_an_agent_of_the_same_user(self):
        """Rows 21, 22, 37. The user owns the agent's file and may write it; only its execution
        (ETXTBSY) prevents a write."""
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
        """Row 29, on the host: root can read the kernel log and set the clock (to the current
        time)."""
        said = parse(subprocess.check_output([os.environ["PROBE"], "clock"], text=True))
        self.assertEqual({k for k in said if said[k] != "ok"}, set())
        self.assertEqual(set(said) - {"0 end"}, {k for k in self.hard if k.startswith("29 ")})

    def test_control_of_root_outside(self):
        """Rows 20, 25, 27, 28, 38, 39: objects refused inside exist outside, for a privileged
        caller."""
        def opened(row, how):
            found = []
            for path in (k.partition(" ")[2] for k in self.hard if k.startswith(f"{row} /") and self.hard[k] != "ok"):
                with contextlib.suppress(OSError):
                    os.close(os.open(path, how | os.O_NONBLOCK | os.O_CLOEXEC))
                    found.append(path)
            return found
        self.assertNotEqual(opened(20, os.O_WRONLY), [])
        self.assertNotEqual(opened(28, os.O_RDONLY), [])
        with tempfile.TemporaryDirectory() as tmp:
            os.mknod(f"{tmp}/node", stat.S_IFBLK | 0o600, os.makedev(7, 0))
            os.mkdir(f"{tmp}/mount")
            subprocess.run(["unshare", "--mount", "sh", "-c", f"mount -t tmpfs tmpfs {tmp}/mount && mount -t proc proc {tmp}/mount"], check=True)

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
