# SPDX-License-Identifier: Apache-2.0
"""
Docker, Compose and Podman in a VM with isolation.nested: real programs, a real registry and a
database. Containers meet the policy and the log of the sandbox, and nothing goes around them.
tests/slow/docker-inside.sh makes the image and runs this.
"""

import json
import re

import hutchd
from boxes import WORLD, EgressCase, log, run
from sandbox import agent, hutch, ledger
from waiting import eventually

SLOW = 900  # seconds: the CPU may be emulated
POLICY = """isolation:
  level: microvm
  nested: true
  require: [user-namespace, pid-namespace, no-network-device]
resources: {memory: 1GiB, disk: 4GiB, pids: 4096, timeout: 1h}
egress:
  domains: [web.hutch.test, "web.hutch.test:80", "registry.hutch.test:5000"]
  budgets: {streams_per_minute: 10000}
filesystem: {write: [/]}
"""
TINY, REDIS = "registry.hutch.test:5000/tiny", "registry.hutch.test:5000/redis"
# On a busy host dockerd may not wait long enough for its containerd, and ends.
DAEMON = "while :; do dockerd; done"
READY = "until docker version >/dev/null 2>&1; do sleep 2; done\n"
# Images without a distribution: busybox, and Redis with its libraries.
IMAGES = f"""set -e
mkdir -p /srv/tiny/bin /srv/redis && cp /bin/busybox /srv/tiny/bin
for name in sh cat chmod echo httpd id ip mkdir nc nslookup ping printf wget; do ln -sf busybox /srv/tiny/bin/$name; done
for file in /usr/bin/redis-server $(ldd /usr/bin/redis-server | grep -o '/[^ ]*'); do cp -L --parents $file /srv/redis; done
tar -C /srv/tiny -c . | docker import - {TINY}
tar -C /srv/redis -c . | docker import - {REDIS}
docker push {TINY}
docker push {REDIS}
"""
COMPOSE = f"""set -e
mkdir -p /srv/shop/web && cd /srv/shop
cat >web/Dockerfile <<D
FROM {TINY}
RUN wget -q -O /page http://web.hutch.test/
COPY visit /www/cgi-bin/visit
RUN chmod 755 /www/cgi-bin/visit
CMD ["httpd", "-f", "-p", "80", "-h", "/www"]
D
cat >web/visit <<'D'
#!/bin/sh
printf 'Content-Type: text/plain\\r\\n\\r\\n'
cat /page
printf 'INCR visits\\r\\nQUIT\\r\\n' | nc db 6379
D
cat >docker-compose.yml <<D
version: "3"
services:
  db:
    image: {REDIS}
    command: [redis-server, --save, "", --protected-mode, "no"]
  web:
    build: web
    ports: ["8080:80", "127.0.0.1:8081:80"]
    depends_on: [db]
D
docker-compose up -d
"""
VISIT = re.compile(rb"hello from web.hutch.test\n:(\d+)\r\n\+OK\r\n")
# What reaches out of the VM from here? Prints names of ways that do.
AROUND = """
import os, socket, struct, sys
def tcp(family, host, port=443):
    s = socket.socket(family)
    s.settimeout(5)
    s.connect((host, port))
def query(server):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(2)
    s.sendto(bytes.fromhex('123401000001000000000000') + b'\\3www\\6canary\\4test\\0\\0\\1\\0\\1', (server, 53))
    s.recv(512)
def echo(host):
    s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    s.settimeout(2)
    s.sendto(b'\\x08\\0' + struct.pack('!H', 0xf7ff) + bytes(4), (host, 0))
    while s.recvfrom(100)[1][0] != host:  # a gateway may say that there is no way
        pass
def frames():
    for _, device in socket.if_nameindex():
        s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        s.bind((device, 0))
        try:
            s.send(b'\\xff' * 12 + b'\\x08\\x00' + bytes(46))
        except OSError:
            pass
    raise OSError
ways = {'address': lambda: tcp(socket.AF_INET, '93.184.217.66'), 'allowed address': lambda: tcp(socket.AF_INET, '93.184.216.10'),
        'IPv6': lambda: tcp(socket.AF_INET6, '2606:2800:220:1::10'), 'private address': lambda: tcp(socket.AF_INET, '10.20.30.40'),
        'metadata': lambda: tcp(socket.AF_INET, '169.254.169.254', 80), 'unknown stand-in': lambda: tcp(socket.AF_INET, '198.18.77.77'),
        'resolver': lambda: query('8.8.8.8'), 'raw socket': lambda: echo('93.184.217.66'), 'frames': frames}
for name, way in ways.items():
    try:
        way()
        print(name)
    except OSError:
        pass
print('done')
"""
FLUSH = """nft flush ruleset; ip route flush table local; ip route flush table main
ip link add out0 type bridge; ip link set out0 up; ip addr add 93.184.216.99/24 dev out0; ip route add default dev out0
"""
PODMAN = f"""set -e
cd; export STORAGE_DRIVER=overlay
podman pull -q {TINY}
podman info | grep -E 'graphDriverName|rootless|Backing'
podman run --rm {TINY} sh -c 'id -u; wget -q -O - http://web.hutch.test/; wget -q -O - http://api.hutch.test/ || echo denied'
"""


class Docker(EgressCase):
    @classmethod
    def setUpClass(cls):
        r = hutch("run", "--agent", agent("docker-inside", POLICY), "--", "true", timeout=SLOW)  # makes the template
        cls.must(r.returncode == 0, r.stderr)
        cls.server = hutchd.Server("--default-agent", "docker-inside")
        cls.addClassCleanup(cls.server.stop)
        status, made = cls.server.api("POST", "/sandboxes", {"templateID": "base", "timeout": 7200})
        cls.must(status == 201, made)
        cls.sandbox, cls.token = made["sandboxID"], made["envdAccessToken"]
        cls.sandboxes = (cls.sandbox,)
        cls.addClassCleanup(hutch, "rm", "-f", cls.sandbox)
        r = hutch("exec", "-d", "-u", "root", cls.sandbox, "--", "sh", "-c", DAEMON)
        cls.must(r.returncode == 0, r.stderr)
        r = run(cls.sandbox, "sh", data=READY + IMAGES, opts=("-u", "root"), timeout=SLOW)
        cls.must(r.code == 0, r)

    @staticmethod
    def must(good, said):
        if not good:
            raise AssertionError(said)

    def setUp(self):
        super().setUp()
        self.addCleanup(self.account_once)

    def account_packet(self, packet, dialled):
        if packet[0] == "lo" and self.server.port in (packet[4], packet[6]):
            return  # this test's own requests to hutchd
        super().account_packet(packet, dialled)

    def sh(self, script, sandbox=None, user="root", code=0):
        r = run(sandbox or self.sandbox, "sh", data=script, opts=("-u", user), timeout=SLOW)
        self.assertEqual(r.code, code, r)
        return r.out

    def port(self, number, path="/cgi-bin/visit"):
        """A request to a port of the sandbox, by hutchd."""
        with hutchd.contextlib.closing(self.server.connection()) as c:
            c.request("GET", path, headers={"E2b-Sandbox-Id": self.sandbox, "E2b-Sandbox-Port": str(number), "X-Access-Token": self.token})
            answer = c.getresponse()
            return answer.status, answer.read()

    def denied(self, sandbox, name):
        return [line for line in log(sandbox) if line["verdict"] == "denied" and line["name"] == name]

    def test_pull(self):
        before = len(log(self.sandbox))
        self.sh(f"docker rmi {REDIS} && docker pull -q {REDIS}")
        self.assertIn(("registry.hutch.test", "allowed"), {(line["name"], line["verdict"]) for line in log(self.sandbox)[before:]})
        info = json.loads(self.sh("docker info --format '{{json .}}'"))
        self.assertEqual((info["Driver"], info["CgroupVersion"]), ("overlay2", "2"))
        self.assertIn(["Backing Filesystem", "extfs"], info["DriverStatus"])

    def test_container(self):
        """On the default network, on one of its own, and on the VM's: the same policy and log."""
        for network in ("bridge", "other", "host"):
            self.sh("docker network inspect other >/dev/null 2>&1 || docker network create other")
            before = len(self.denied(self.sandbox, "api.hutch.test"))
            out = self.sh(f"docker run --rm --network {network} {TINY} sh -c 'wget -q -O - http://web.hutch.test/; "
                          "wget -q -O - http://api.hutch.test/ || echo denied'")
            self.assertEqual(out, "hello from web.hutch.test\ndenied\n", network)
            self.assertGreater(len(self.denied(self.sandbox, "api.hutch.test")), before, network)

    def test_build(self):
        """A build has the same way out."""
        self.sh(f"mkdir -p /srv/build; printf 'FROM {TINY}\\nRUN wget -q -O /page http://web.hutch.test/\\n' | docker build -t built -")
        self.assertEqual(self.sh("docker run --rm built cat /page"), "hello from web.hutch.test\n")
        self.sh(f"printf 'FROM {TINY}\\nRUN wget -q -O /page http://other.hutch.test/\\n' | docker build -", code=1)
        self.assertTrue(self.denied(self.sandbox, "other.hutch.test"))

    def test_compose(self):
        """A database and a web service; published ports by hutchd; stop, suspend, resume, fork."""
        self.sh(COMPOSE)
        self.addCleanup(self.sh, "cd /srv/shop && docker-compose down")
        eventually(lambda: VISIT.fullmatch(self.port(8080)[1]), "an answer of the web service", also=lambda: self.port(8080))
        visits = int(VISIT.fullmatch(self.port(8081)[1])[1])
        self.assertEqual(hutch("suspend", self.sandbox, timeout=SLOW).returncode, 0)
        self.assertEqual(hutch("resume", self.sandbox, timeout=SLOW).returncode, 0)
        self.before = ledger()  # the shared sandbox has other processes now, and stays
        self.assertEqual(int(VISIT.fullmatch(self.port(8080)[1])[1]), visits + 1, "the same database, with its memory")
        made = hutch("fork", "-n", "1", self.sandbox, timeout=SLOW)
        fork = made.stdout.decode().strip()
        self.own.append(fork)
        self.addCleanup(hutch, "rm", "-f", fork)
        self.addCleanup(self.account_once)
        out = self.sh("curl -sS http://127.0.0.1:8080/cgi-bin/visit", sandbox=fork)
        self.assertEqual(int(VISIT.fullmatch(out.encode())[1]), visits + 2)
        self.assertEqual(int(VISIT.fullmatch(self.port(8080)[1])[1]), visits + 2, "the fork has a database of its own")
        self.sh("docker exec shop_web_1 wget -q -O - http://web.hutch.test/", sandbox=fork)
        self.assertEqual([line["name"] for line in log(fork)], ["web.hutch.test"])
        self.sh("cd /srv/shop && docker-compose stop")
        self.assertEqual(self.port(8080)[0], 502)

    def test_published_port_of_an_allowed_name(self):
        """Docker's NAT must not take over the addresses that stand for names."""
        self.sh(f"docker run -d --rm --name taker -p 80:80 {TINY} httpd -f -p 80 -h /bin")
        self.addCleanup(self.sh, "docker kill taker")
        self.assertEqual(self.sh("curl -sS http://web.hutch.test/"), "hello from web.hutch.test\n")
        self.assertEqual(self.sh(f"docker run --rm {TINY} wget -q -O - http://web.hutch.test/"), "hello from web.hutch.test\n")
        self.assertEqual(self.port(80, "/busybox")[0], 200)

    def test_podman_without_root(self):
        self.sh("for f in uid gid; do grep -q ^user: /etc/sub$f || echo user:100000:65536 >>/etc/sub$f; done")
        out = self.sh(PODMAN, user="user")
        self.assertIn("graphDriverName: overlay", out)
        self.assertIn("rootless: true", out)
        self.assertTrue(out.endswith("0\nhello from web.hutch.test\ndenied\n"), out)

    def test_around(self):
        """By root in the VM, in a privileged container on the VM's network, and after root has
        removed rules and routes: not one packet. The name is the control."""
        fork = hutch("fork", "-n", "1", self.sandbox, timeout=SLOW).stdout.decode().strip()
        self.own.append(fork)
        self.addCleanup(hutch, "rm", "-f", fork)
        self.addCleanup(self.account_once)
        self.assertEqual(self.sh("curl -sS http://web.hutch.test/", sandbox=fork), "hello from web.hutch.test\n")
        eventually(lambda: WORLD("packets")["packets"], "packets of the control")
        command = f"python3 - <<'P'\n{AROUND}\nP\n"
        self.assertEqual(self.sh(command, sandbox=fork), "done\n")
        mount = "-v /usr:/usr -v /lib:/lib -v /lib64:/lib64"
        inside = f"docker run -i --rm --privileged --network %s {mount} {TINY} /usr/bin/python3 - <<'P'\n{AROUND}\nP\n"
        for network in ("host", "bridge"):
            self.assertEqual(self.sh(inside % network, sandbox=fork), "done\n")
        self.assertEqual(self.sh(FLUSH + command, sandbox=fork), "done\n")
        self.assertEqual([p for p in WORLD("packets")["packets"] if p[0] != "lo" and "93.184.216.10" not in p], [])
        self.assertEqual(WORLD("canaries"), [])
