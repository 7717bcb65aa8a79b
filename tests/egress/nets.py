# SPDX-License-Identifier: Apache-2.0
"""
The test's own network namespaces. None of them has a route to a real network:

    host      hutch, its wardens and keepers; the resolver on 127.0.0.1:53; canaries on its loopback
      | veth
    internet  the servers; all addresses belong to it, so that every packet from `host` is answered
              or counted
      | veth
    plain     a box with a network device and a resolver that knows all names: the positive control

A namespace is a descriptor. Sockets stay in the namespace they were made in, so one process serves
all three. There is no neighbour discovery: entries are permanent and addresses are on loopback
devices, so that a process under test caused each packet on a wire.
"""

import ctypes
import os
import subprocess
import threading

CLONE_NEWNET = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)

# names/addr.c treats these as public; they exist only in these namespaces.
ADDRESSES = {"host": ("93.184.215.2", "2606:2800:220:1::2"), "plain": ("93.184.215.3", "2606:2800:220:1::3")}
GATEWAY = ("93.184.215.1", "2606:2800:220:1::1")
MACS = {"host": "02:00:00:00:00:02", "plain": "02:00:00:00:00:03", "internet-host": "02:00:00:00:01:02", "internet-plain": "02:00:00:00:01:03"}


def check(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Namespace:
    def __init__(self, name):
        self.name = name
        done = threading.Thread(target=self.make)  # only the thread changes its namespace
        done.start()
        done.join()

    def make(self):
        check(libc.unshare(CLONE_NEWNET))
        self.fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    @property
    def path(self):
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    def __enter__(self):
        """Makes this thread create its sockets in this namespace."""
        self.back = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        check(libc.setns(self.fd, CLONE_NEWNET))
        return self

    def __exit__(self, *_):
        check(libc.setns(self.back, CLONE_NEWNET))
        os.close(self.back)

    def argv(self, *cmd):
        return ["nsenter", f"--net={self.path}", *cmd]

    def run(self, *cmd, **more):
        return subprocess.run(self.argv(*cmd), check=True, **more)

    def ip(self, *lines):
        self.run("ip", "-batch", "-", input="\n".join(lines).encode())

    def sysctl(self, key, value):
        self.run("sh", "-c", f"echo {value} >/proc/sys/net/{key}")


def wire(internet, inner):
    """Connects `internet` and `inner` by a veth pair without any traffic of the kernels' own."""
    name = inner.name
    v4, v6 = ADDRESSES[name]
    for ns, device in ((internet, name), (inner, "out")):
        ns.sysctl("ipv6/conf/default/accept_ra", 0)
        ns.sysctl("ipv6/conf/default/accept_dad", 0)
        ns.sysctl("ipv6/conf/default/router_solicitations", 0)
    internet.ip(f"link add {name} address {MACS['internet-' + name]} type veth peer name out address {MACS[name]} netns {inner.path}")
    internet.ip(f"link set {name} addrgenmode none arp off", f"link set {name} up")
    inner.ip("link set lo up", "link set out addrgenmode none arp off", "link set out up",
             f"addr add {v4}/32 dev lo", f"addr add {v6}/128 dev lo nodad")
    for gateway, source in zip(GATEWAY, (v4, v6)):
        inner.ip(f"route add default via {gateway} dev out onlink src {source}",
                 f"neigh add {gateway} lladdr {MACS['internet-' + name]} dev out nud permanent")
    for address in (v4, v6):
        internet.ip(f"route add {address} dev {name} table local", f"neigh add {address} lladdr {MACS[name]} dev {name} nud permanent")


def make():
    """Returns (host, internet, plain), connected."""
    host, internet, plain = Namespace("host"), Namespace("internet"), Namespace("plain")
    internet.ip("link set lo up", "route add local 0.0.0.0/0 dev lo table local", "route add local ::/0 dev lo table local")
    internet.sysctl("ipv6/ip_nonlocal_bind", 1)
    for key in ("all", "default", "lo"):
        internet.sysctl(f"ipv4/conf/{key}/rp_filter", 0)
    for inner in (host, plain):
        wire(internet, inner)
        internet.sysctl(f"ipv4/conf/{inner.name}/rp_filter", 0)
        internet.sysctl(f"ipv4/conf/{inner.name}/accept_local", 1)
    return host, internet, plain


def canary_rules(internet, services, port):
    """Redirects all TCP and UDP that is not for a service to one port, whatever its address."""
    pairs = ", ".join(f"{a} . {p}" for a, p in services if ":" not in a)
    pairs6 = ", ".join(f"{a} . {p}" for a, p in services if ":" in a)
    internet.run("nft", "-f", "-", input=f"""
table inet canary {{
	chain in {{
		type nat hook prerouting priority dstnat;
		ip daddr . tcp dport {{ {pairs} }} accept
		ip6 daddr . tcp dport {{ {pairs6} }} accept
		meta nfproto ipv4 meta l4proto {{ tcp, udp }} dnat ip to {GATEWAY[0]}:{port}
		meta nfproto ipv6 meta l4proto {{ tcp, udp }} dnat ip6 to [{GATEWAY[1]}]:{port}
	}}
}}""".encode())
