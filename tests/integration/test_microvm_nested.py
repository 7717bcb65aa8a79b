# SPDX-License-Identifier: Apache-2.0
"""
VMs with isolation.nested: root has the VM's kernel, other users start without capabilities, and the
life of the VM does not change. A VM without it is the control. run_as.py runs these tests with
HUTCH_TEST_LEVEL=microvm; tests/egress/test_docker.py runs Docker and Podman in such VMs.
"""

import json

from sandbox import LONG, SandboxCase, agent, hutch

POLICY = """isolation:
  level: microvm
  nested: %s
resources: {memory: 256MiB, disk: 128MiB}
filesystem: {write: [/]}
"""
# Prints what works: {"overlay": true, ...}
PROBE = """
import ctypes, fcntl, json, os, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
def call(f, *args):
    if f(*args) < 0:
        raise OSError(ctypes.get_errno(), f.__name__)
def overlay():
    for name in ("lower", "upper", "work", "merged"):
        os.makedirs("/var/lib/docker/probe/" + name, exist_ok=True)
    open("/var/lib/docker/probe/lower/file", "w").close()
    at = "/var/lib/docker/probe/"
    call(libc.mount, b"overlay", (at + "merged").encode(), b"overlay", 0, f"lowerdir={at}lower,upperdir={at}upper,workdir={at}work".encode())
    os.unlink(at + "merged/file")
def bridge():
    fcntl.ioctl(socket.socket(socket.AF_UNIX), 0x89a0, b"probe0")  # SIOCBRADDBR
def forwarding():
    with open("/proc/sys/net/ipv4/ip_forward", "w") as f:
        f.write("1")
def namespace():
    pid = os.fork()
    if pid == 0:
        os._exit(0 if libc.unshare(0x10000000) == 0 else 1)  # CLONE_NEWUSER
    if os.waitpid(pid, 0)[1] != 0:
        raise OSError
def cgroup():
    os.makedirs("/sys/fs/cgroup/probe")
    with open("/sys/fs/cgroup/probe/memory.max", "w") as f:
        f.write("64M")
def device():
    os.close(os.open("/dev/net/tun", os.O_RDWR))
def capabilities():
    if int(next(line for line in open("/proc/self/status") if line.startswith("CapEff:")).split()[1], 16) == 0:
        raise OSError
def works(f):
    try:
        f()
        return True
    except (OSError, AttributeError):
        return False
print(json.dumps({f.__name__: works(f) for f in (overlay, bridge, forwarding, namespace, cgroup, device, capabilities)}))
"""
# A process in a cgroup of its own, which must freeze and continue with all others.
COUNT = """
mkdir /sys/fs/cgroup/count && echo $$ >/sys/fs/cgroup/count/cgroup.procs
n=0; while :; do n=$((n + 1)); echo $n >/tmp/new; mv /tmp/new /tmp/count; done
"""
MOUNTED = "grep -c /var/lib/docker/probe/merged /proc/self/mounts; ls -d /sys/class/net/probe0; cat /tmp/count"


class Nested(SandboxCase):
    def machine(self, nested=True):
        return self.create("--agent", agent(f"nested-{str(nested).lower()}", POLICY % str(nested).lower()))

    def probe(self, sandbox, user="root"):
        return json.loads(self.exec_(sandbox, "python3", "-c", PROBE, opts=["-u", user]).stdout)

    def test_root_has_the_kernel(self):
        """And an ordinary user has nothing of it but user namespaces; without the key, no user has."""
        sandbox = self.machine()
        mine = self.probe(sandbox, "user")
        self.assertEqual({k for k in mine if mine[k]}, {"namespace", "device"})
        self.assertEqual({k: v for k, v in self.probe(sandbox).items() if not v}, {})
        plain = self.machine(nested=False)
        self.assertEqual({k: v for k, v in self.probe(plain).items() if v}, {})
        self.assertEqual({k: v for k, v in self.probe(plain, "user").items() if v}, {})

    def test_receipt(self):
        inside = {"seccomp", "no-capabilities", "no-new-privileges", "landlock"}
        for nested in (True, False):
            receipt = self.json("receipt", "--json", self.machine(nested))
            rows = {row["name"]: row for row in receipt["layers"]}
            self.assertEqual({name for name in inside if not rows[name]["enforced"]}, inside if nested else set())
            for name in inside if nested else ():
                self.assertIn("not inside: isolation.nested, the VM is the boundary", rows[name]["seen"])
                self.assertFalse(rows[name]["asked"])

    def test_templates_are_apart(self):
        def origin(sandbox):
            return self.json("receipt", "--json", sandbox)["facts"]["start"]
        nested = [origin(self.machine()) for _ in range(2)]
        self.assertEqual(nested[0], nested[1])
        self.assertTrue(nested[0].startswith("template "))
        self.assertNotEqual(nested[0], origin(self.machine(nested=False)))

    def test_set_id_programs(self):
        """The root directory is mounted without nosuid, and with it in a plain VM."""
        script = "cp /usr/bin/id /tmp/id && chmod 4755 /tmp/id"
        for nested, uid in ((True, "0\n"), (False, "1000\n")):
            sandbox = self.machine(nested)
            self.exec_(sandbox, "sh", "-c", script, opts=["-u", "root"])
            self.assertEqual(self.exec_(sandbox, "/tmp/id", "-u", opts=["-u", "user"]).stdout.decode(), uid)

    def test_life(self):
        """Mounts, devices and processes in cgroups survive suspend and resume, and are in forks."""
        sandbox = self.machine()
        self.assertTrue(all(self.probe(sandbox).values()))
        self.assertEqual(hutch("exec", "-d", "-u", "root", sandbox, "--", "sh", "-c", COUNT).returncode, 0)
        self.exec_(sandbox, "sh", "-c", "until [ -e /tmp/count ]; do :; done")
        self.assertEqual(hutch("suspend", sandbox, timeout=LONG).returncode, 0)
        self.assertEqual(hutch("resume", sandbox, timeout=LONG).returncode, 0)
        fork = self.ended(hutch("fork", "-n", "1", sandbox, timeout=LONG), 0).stdout.decode().strip()
        self.addCleanup(hutch, "rm", "-f", fork)
        for box in (sandbox, fork):
            mounts, device, first = self.exec_(box, "sh", "-c", MOUNTED, opts=["-u", "root"]).stdout.decode().split()
            self.assertEqual((mounts, device), ("1", "/sys/class/net/probe0"))
            self.exec_(box, "sh", "-c", f"until [ $(cat /tmp/count) -gt {first} ]; do :; done", opts=["-u", "root"])

    def test_snapshot_of_the_other_kind(self):
        """A snapshot's VM keeps its kind, so a policy of the other kind is refused."""
        name = self.ended(hutch("snapshot", "create", self.machine(), timeout=LONG), 0).stdout.decode().strip()
        self.addCleanup(hutch, "snapshot", "rm", name)
        said = self.refused("create", "--snapshot", name, "--agent", agent("nested-false", POLICY % "false"), code=1)
        self.assertIn("the snapshot was made with isolation.nested, which the policy of agent 'nested-false' does not set", said)
