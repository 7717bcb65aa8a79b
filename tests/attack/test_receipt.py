# SPDX-License-Identifier: Apache-2.0
"""
Checks the receipt of a running container, and that it is based on inspection.

The test makes a box the way a sandbox is made (tmpfs over /run, overlay of image and scratch, the
bundle of src/engine, the real crun), and tests/attack/receipt.c inspects it. Each layer that can be
removed alone is removed: exactly its rows must then say no.

BUNDLE, HOLD and RECEIPT are the programs.
"""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import unittest

from waiting import LONG, eventually

HOST_ID = 1_000_000_000
IDS = 65535
MEMORY, PIDS, CPUS, DISK = 256 << 20, 64, 1000, 64 << 20
PARTS = ("cpu", "memory", "pids")
CGROUP = pathlib.Path("/sys/fs/cgroup")
V2 = (CGROUP / "cgroup.controllers").exists()

# Rows that this engine cannot provide, that the host may lack, and that other programs fill in.
NEVER = {"kvm", "landlock", "dial-guard", "keeper-locked", "audit"}
APPARMOR = {"apparmor"}

# Without a user namespace crun also remounts the root with other flags; in one they are locked.
NO_USER_NAMESPACE = ["user-namespace", "no-capabilities", "own-ids", "read-only-root"]

# Runs in a new mount namespace. $1: the groups to enter; $2: options of the overlay; $3: options of
# the scratch. Standard output and input are pipes because crun changes the owner of the files
# behind them to the sandbox's user.
SCRIPT = """
set -e
read -r _ <&8
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/r /run/s /run/l /run/b /run/c /run/other
for d in proc dev sys tmp host; do mkdir /run/l/$d /run/other/$d; done
chown -R $ID:$ID /run/l /run/other
mount -t tmpfs -o $3,mode=755 tmpfs /run/s
mkdir /run/s/u /run/s/w
chown $ID:$ID /run/s/u
mount -t overlay -o $2,upperdir=/run/s/u,workdir=/run/s/w overlay /run/r
eval "$BEFORE"
cat > /run/b/config.json
c=/sys/fs/cgroup/unified/cgroup.controllers
if [ -e $c ]; then mount --bind /dev/null $c; fi
(
	for d in $1; do echo $BASHPID > $d/cgroup.procs; done
	: | crun --root /run/c --cgroup-manager=disabled run --detach --preserve-fds 1 --pid-file /run/b/pid \
		--bundle /run/b box > >(cat >&2) 2>&1
)
P=$(cat /run/b/pid)
eval "$AFTER"
"$RECEIPT" $P "$NAME" $ARGS >&9 && (echo; cat /proc/$P/comm) >&9 || true
kill -9 $P
"""


def group_dirs(name):
    return [CGROUP / "hutch" / name] if V2 else [CGROUP / p / "hutch" / name for p in PARTS]


def make_groups(name, factor):
    """Makes the group hutch/NAME with limits of `factor` times the requested ones."""
    if V2:
        (CGROUP / "hutch").mkdir(exist_ok=True)
        for d in (CGROUP, CGROUP / "hutch"):
            (d / "cgroup.subtree_control").write_text("+cpu +memory +pids")
    for d in group_dirs(name):
        d.mkdir(parents=True, exist_ok=True)

    def write(part, file, value):
        d = CGROUP / "hutch" / name if V2 else CGROUP / part / "hutch" / name
        if (d / file).exists():
            (d / file).write_text(str(value))
    memory = int(MEMORY * factor)
    write("memory", "memory.max" if V2 else "memory.limit_in_bytes", memory)
    write("memory", "memory.swap.max" if V2 else "memory.memsw.limit_in_bytes", 0 if V2 else memory)
    write("pids", "pids.max", int(PIDS * factor))
    quota = int(CPUS * 100 * factor)
    write("cpu", "cpu.max" if V2 else "cpu.cfs_quota_us", f"{quota} 100000" if V2 else quota)


def remove_groups(name):
    for d in group_dirs(name):
        eventually(lambda d=d: removed(d), f"the end of {d}")


def removed(group):
    """A group cannot be removed until its last process has exited."""
    try:
        group.rmdir()
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True


def map_ids(pid):
    """Maps ids as newuidmap(1) does, once the process is in its own user namespace."""
    ours = os.readlink("/proc/self/ns/user")
    eventually(lambda: os.readlink(f"/proc/{pid}/ns/user") != ours, "a user namespace of its own")
    for kind in ("uid_map", "gid_map"):
        pathlib.Path(f"/proc/{pid}/{kind}").write_text(f"0 0 1\n1 {HOST_ID} {IDS}\n")


def look(weaken=lambda config: None, *, network=False, enter=None, factor=1,
         overlay="nosuid,nodev,lowerdir=/run/l", scratch=f"size={DISK},nr_inodes=4096", before="", after="",
         ids=HOST_ID, rootless=False, kind="memory"):
    """
    Returns the receipt of a box: {"seccomp": {"enforced": True, "seen": ...}, ...}. Rootless boxes
    are made inside a user namespace, where 0 is the caller and 1 is HOST_ID.
    """
    name = f"receipt{os.getpid()}"
    config = json.loads(subprocess.check_output(
        [os.environ["BUNDLE"], "/run/r", os.environ["HOLD"], str(HOST_ID)]))
    weaken(config)
    outer = ["unshare", "--mount", "--propagation", "private", *(["--net"] if network else []),
             *(["--user"] if rootless else [])]
    env = {"PATH": os.environ["PATH"], "ID": "1" if rootless else str(HOST_ID), "RECEIPT": os.environ["RECEIPT"],
           "HOLD": os.environ["HOLD"], "NAME": name, "ARGS": f"{ids} {DISK} {MEMORY} {PIDS} {CPUS}{' rootless' * rootless}",
           "BEFORE": before, "AFTER": after, "KIND": kind}
    ours, theirs = socket.socketpair()
    ready, go = os.pipe()
    try:
        make_groups(name, factor)
        with ours, theirs, os.fdopen(ready), os.fdopen(go, "w") as go, \
                tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            def descriptors():
                high = os.dup2(theirs.fileno(), 20), os.dup2(ready, 21), os.dup2(out.fileno(), 22)
                for fd, wanted in zip(high, (3, 8, 9)):
                    os.dup2(fd, wanted)
            with subprocess.Popen(
                    [*outer, "bash", "-c", SCRIPT, "-",
                     " ".join(map(str, group_dirs(name) if enter is None else enter(name))), overlay, scratch],
                    stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=err, env=env, close_fds=False,
                    preexec_fn=descriptors) as p:
                if rootless:
                    map_ids(p.pid)
                print("go", file=go, flush=True)
                p.communicate(json.dumps(config).encode(), timeout=LONG)
            out.seek(0)
            err.seek(0)
            text, _, comm = out.read().decode().partition("\n")
            if not comm:
                raise AssertionError(f"no receipt, status {p.returncode}: {err.read().decode()}")
    finally:
        remove_groups(name)
    if comm != "hutch-guest\n":
        raise AssertionError(f"the receipt is of {comm}")
    return {row["name"]: row for row in json.loads(text)["layers"]}


def missing(receipt):
    return {name for name, row in receipt.items() if not row["enforced"]} - NEVER - APPARMOR


def without_namespace(config, *kinds):
    config["linux"]["namespaces"] = [n for n in config["linux"]["namespaces"] if n["type"] not in kinds]


def without_user_namespace(config):
    without_namespace(config, "user")
    del config["linux"]["uidMappings"], config["linux"]["gidMappings"]


@unittest.skipUnless(os.geteuid() == 0, "needs root: it makes a container as the system's hutch would")
@unittest.skipUnless(shutil.which("crun"), "crun is not installed")
class Receipt(unittest.TestCase):
    maxDiff = None

    def check(self, rows, *args, says=None, **kwargs):
        receipt = look(*args, **kwargs)
        self.assertEqual(missing(receipt), set(rows), json.dumps(receipt, indent=1))
        if says:
            self.assertIn(says, receipt[rows[0]]["seen"])
        return receipt

    def test_all_layers(self):
        receipt = self.check([])
        self.assertEqual({n for n in NEVER if receipt[n]["enforced"]}, set())
        self.assertFalse(receipt["apparmor"]["enforced"])  # this bundle asks for no profile; tests/slow/debian has one
        self.assertEqual(receipt["seccomp"]["seen"], "Seccomp: 2, Seccomp_filters: 1")
        self.assertIn(f"0 {HOST_ID} {IDS}", receipt["user-namespace"]["seen"])
        self.assertEqual(receipt["disk-quota"]["seen"], f"{DISK} bytes, 4096 inodes, in memory: a tmpfs, which counts as memory")

    def test_without_seccomp(self):
        self.check(["seccomp"], lambda c: c["linux"].pop("seccomp"), says="Seccomp: 0")

    def test_with_new_privileges(self):
        self.check(["no-new-privileges"], lambda c: c["process"].update(noNewPrivileges=False), says="NoNewPrivs: 0")

    def test_with_a_capability_more(self):
        def bounding(c):
            c["process"]["capabilities"]["bounding"].append("CAP_SYS_ADMIN")

        def inheritable(c):
            c["process"]["capabilities"]["inheritable"].append("CAP_KILL")
        self.check(["no-capabilities"], bounding, says="CapBnd")
        self.check(["no-capabilities"], inheritable, says="CapInh")

    def test_without_masks(self):
        self.check(["masked-proc"], lambda c: c["linux"].update(maskedPaths=[]), says="not covered")
        self.check(["masked-proc"], lambda c: c["linux"]["maskedPaths"].remove("/proc/kallsyms"), says="/proc/kallsyms")
        self.check(["masked-proc"], lambda c: c["linux"].update(readonlyPaths=[]), says="can be written")

    def test_with_sysfs(self):
        def weaken(c):
            for m in c["mounts"]:
                if m["destination"] == "/sys":
                    m.update(type="sysfs", source="sysfs", options=["ro", "nosuid", "noexec", "nodev"])
        self.check(["no-sysfs"], weaken, says="sysfs mounted on /sys")

    def test_with_a_directory_of_the_host(self):
        def weaken(c):
            c["mounts"].append({"destination": "/host", "type": "bind", "source": "/etc", "options": ["bind", "ro"]})
        self.check(["no-sysfs"], weaken, says="/host")

    def test_with_a_guest_that_can_be_written(self):
        def weaken(c):
            for m in c["mounts"]:
                if m["destination"] == "/dev/hutch-guest":
                    m["options"].remove("ro")
        self.check(["no-sysfs"], weaken, says="/dev/hutch-guest")

    def test_with_a_device(self):
        def weaken(c):
            c["linux"]["devices"] = [{"path": "/dev/kmsg", "type": "c", "major": 1, "minor": 11}]
        # crun binds it from its own tmpfs, which has no size limit.
        self.check(["no-devices", "no-sysfs", "disk-quota"], weaken, says="1:11")

    def test_with_the_network_outside(self):
        self.check(["no-network-device"], lambda c: without_namespace(c, "network"), network=True,
                   says="host's net namespace")

    def test_with_a_network_device(self):
        self.check(["no-network-device"], after="nsenter -n -t $P ip link add canary0 type veth peer name canary1",
                   says="canary")

    def test_without_namespaces(self):
        def ipc(c):
            without_namespace(c, "ipc")
            c["mounts"] = [m for m in c["mounts"] if m["destination"] != "/dev/mqueue"]

        def uts(c):
            without_namespace(c, "uts")
            del c["hostname"]
        self.check(["ipc-namespace"], ipc)
        self.check(["uts-namespace"], uts)
        self.check(["cgroup-namespace"], lambda c: without_namespace(c, "cgroup"))

    def test_without_a_user_namespace(self):
        self.check(NO_USER_NAMESPACE, without_user_namespace)

    def test_without_a_pid_namespace(self):
        def weaken(c):
            without_user_namespace(c)
            without_namespace(c, "pid")
        self.check(["pid-namespace", *NO_USER_NAMESPACE], weaken)

    def test_with_other_ids(self):
        def short(c):
            for key in ("uidMappings", "gidMappings"):
                c["linux"][key][0]["size"] = 1000

        def groups(c):
            c["linux"]["gidMappings"].append({"containerID": IDS, "hostID": 0, "size": 1})
        self.check(["user-namespace", "own-ids"], ids=HOST_ID + 1)
        self.check(["user-namespace", "own-ids"], short)
        self.check(["user-namespace", "own-ids"], groups, says="gid_map")

    def test_another_root(self):
        self.check(["read-only-root"], overlay="nodev,lowerdir=/run/l", says="nosuid,nodev")
        self.check(["read-only-root"], overlay="nosuid,nodev,lowerdir=/run/other", says="image")
        self.check(["read-only-root", "no-sysfs"], says="not an overlay",
                   before=f"umount /run/r; mount -o nosuid,nodev,size={DISK},nr_inodes=999 -t tmpfs tmpfs /run/r; "
                          "mkdir /run/r/{proc,dev,sys,tmp}; chown -R $ID:$ID /run/r")

    def test_another_scratch(self):
        self.check(["disk-quota"], scratch=f"size={DISK},nr_inodes=0", says="inodes")
        self.check(["disk-quota"], scratch=f"size={2 * DISK},nr_inodes=4096", says="more than")
        self.check(["disk-quota"], scratch="size=0,nr_inodes=4096", says="blocks")
        self.check(["disk-quota"], kind="disk", says="not the disk")

    def test_with_a_tmpfs_without_a_size(self):
        def weaken(c):
            c["mounts"].append({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["size=0"]})
        self.check(["disk-quota"], weaken, says="/tmp")

    def test_without_rlimits(self):
        def weaken(c):
            c["process"]["rlimits"] = [r for r in c["process"]["rlimits"] if r["type"] != "RLIMIT_CORE"]
            c["process"]["rlimits"].append({"type": "RLIMIT_CORE", "soft": 4096, "hard": 4096})
        self.check(["rlimits"], weaken, says="core")

    def test_not_in_the_groups(self):
        rows = {f"cgroup-{p}" for p in PARTS}
        self.check([*rows], enter=lambda name: [])
        if not V2:
            for part in PARTS:
                self.check([f"cgroup-{part}"], enter=lambda n: [d for d in group_dirs(n) if d.parts[4] != part])

    def test_limits_too_large(self):
        receipt = self.check([f"cgroup-{p}" for p in PARTS], factor=1.5)
        for part in PARTS:
            self.assertIn("asked for", receipt[f"cgroup-{part}"]["seen"])

    def test_slow_start(self):
        """A hook makes sure that crun has exited before the process takes its last steps to
        execve()."""
        def weaken(c):
            c["hooks"] = {"startContainer": [{"path": "/delay", "args": ["delay", "it"]}]}
        self.check([], weaken, before="cp $HOLD /run/r/delay")

    def test_rootless(self):
        def nested(c):
            for key in ("uidMappings", "gidMappings"):
                c["linux"][key][0]["hostID"] = 1

        def as_root(c):
            for key in ("uidMappings", "gidMappings"):
                c["linux"][key] = [{"containerID": 0, "hostID": 0, "size": 1},
                                   {"containerID": 1, "hostID": 1, "size": IDS - 1}]
        how = {"rootless": True, "ids": 1, "enter": lambda name: [],
               "overlay": "nosuid,nodev,userxattr,lowerdir=/run/l"}
        groups = [f"cgroup-{p}" for p in PARTS]
        receipt = self.check(groups, nested, **how)
        self.assertIn(f"0 1 {IDS}", receipt["user-namespace"]["seen"])
        self.assertIn("subordinate", receipt["own-ids"]["seen"])
        self.check(["own-ids", "user-namespace", *groups], as_root, **how)

    def test_nothing_is_left(self):
        self.assertEqual([str(p) for p in group_dirs(f"receipt{os.getpid()}") if p.exists()], [])
        st = os.stat("/dev/null")
        self.assertEqual((st.st_uid, st.st_gid), (0, 0), "the host's /dev/null was given away")


if __name__ == "__main__":
    unittest.main()
