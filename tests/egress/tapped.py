# SPDX-License-Identifier: Apache-2.0
"""
Sandboxes with secrets in the test's internet: their policies, the requests that the servers of
origin.py received, and the search for a key in everything that a sandbox has.
"""

import array
import base64
import contextlib
import functools
import json
import os
import secrets
import stat
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

from boxes import WORLD, EgressCase, policy, run
from sandbox import CONFIG, RUN, STATE, found, hutch, list_dir, warden_of
from memory import extents
from waiting import eventually

TAP, PAGE = "hutch-tap", os.sysconf("SC_PAGE_SIZE")
API, GIT, CLAUDE, OPENAI, EVIL, RULES = ("api.github.com", "github.com", "api.anthropic.com", "api.openai.com", "evil.hutch.test",
                                         "rules.hutch.test")
# By HTTP/2: also HTTP/1.1; HTTP/2 alone; without secrets and rules, as a control; gRPC.
H2, H2_ALONE, H2_PLAIN, GRPC = "api.cloudflare.com", "api.push.apple.com", "h2.hutch.test", "pubsub.googleapis.com"
AUTHORITY = "/usr/local/share/ca-certificates/egress-tests.crt"  # signs the servers' certificates; every image of make-image.sh has it
FIELDS = ("authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "x-auth-token", "private-token", "job-token")
DISK = ("workspace", "tmp", "home", "root", "etc", "run", "var", "dev/shm", "usr/local")
# Sends bytes as they are, several connections at once: a list of {host, port, sni, data, alpn}; a part
# of `data` may be a pair of a text and how often it is sent. The answer of each is what came back until
# the end, or for some seconds.
RAW = r"""
import concurrent.futures, json, socket, ssl, sys
def one(p):
    out = b''
    try:
        s = socket.create_connection((p['host'], p['port']), 60)
        if p['sni']:
            c = ssl.create_default_context()
            c.check_hostname = p['sni'] == p['host']
            if not p['verify']:
                c.check_hostname, c.verify_mode = False, ssl.CERT_NONE
            if p['alpn']:
                c.set_alpn_protocols(p['alpn'])
            s = c.wrap_socket(s, server_hostname=p['sni'])
            if p['alpn'] == ['?']:
                out = repr(s.selected_alpn_protocol()).encode()
        s.settimeout(p['seconds'])
        for part in p['data']:
            s.sendall((part if isinstance(part, str) else part[0] * part[1]).encode('latin-1'))
        while d := s.recv(65536):
            out += d
    except OSError as e:
        out += f'[{type(e).__name__}: {e}]'.encode()
    return out.decode('latin-1')
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    print(json.dumps(list(pool.map(one, json.load(sys.stdin)))))
"""


def probe(host, *data, port=443, sni=None, alpn=("http/1.1",), seconds=8, verify=True):
    """A connection of RAW. Without `sni` it is the host's; sni="" is no TLS."""
    return {"host": host, "port": port, "sni": host if sni is None else sni, "data": data, "alpn": list(alpn), "seconds": seconds, "verify": verify}


@functools.lru_cache
def forms(value):
    """Everything that a search for a value looks for. A base64 text depends on where the value
    begins in it, so there are three, without the ends that neighbours change."""
    data = value.encode()
    looked = {"plain": data, "hex": data.hex().encode(), "HEX": data.hex().upper().encode(), "utf-16": value.encode("utf-16-le"),
              "url": quote(value, safe="").encode(), "url in lower case": quote(value, safe="").lower().encode()}
    for shift in range(3):
        text = base64.b64encode(b"\0" * shift + data)
        text = text[(0, 2, 3)[shift]:len(text) - (0 if (shift + len(data)) % 3 == 0 else 4)]
        looked[f"base64 at {shift}"] = text
        looked[f"base64 for URLs at {shift}"] = text.translate(bytes.maketrans(b"+/", b"-_"))
    return looked


def hits(data, value):
    """The forms in which the bytes contain the value."""
    return sorted({form for form, text in forms(value).items() if text in data})


def headers(request, name):
    return [v for k, v in request["headers"] if k.lower() == name.lower()]


def credentials(request):
    """The credential fields of a request."""
    return {k.lower(): v for k, v in request["headers"] if k.lower() in FIELDS}


# ---- processes, memory and files ----
def below(pid):
    """A process and its descendants."""
    children = {}
    for p in found(list_dir("/proc")):
        children.setdefault(p.parent, []).append(p)
    family, left = [], [p for p in found([str(pid)])]
    while left:
        p = left.pop()
        family.append(p)
        left += children.get(p.pid, [])
    return family


def processes_of(sandbox):
    """All processes of a sandbox: its warden and the descendants, without hutch-tap."""
    return [p for p in below(warden_of(sandbox)) if p.comm != TAP]


def taps_of(sandbox):
    return [p for p in below(warden_of(sandbox)) if p.comm == TAP]


def memory_of(pid):
    """Yields all readable memory of a process, one mapping after the other. Mappings overlap by
    nothing: a value does not continue in the next one."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/mem", "rb", buffering=0) as mem:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            where, rights = line.split()[:2]
            if not rights.startswith("r") or line.endswith(("[vvar]", "[vsyscall]", "[vvar_vclock]")):
                continue
            start, end = (int(x, 16) for x in where.split("-"))
            if line.split()[4] != "0":
                yield from pieces(mem, start, end)
                continue
            # Runtimes reserve up to 60 GiB and use little of it; an anonymous page that is neither in
            # memory nor swapped out was never written.
            for first, last in written(pid, start // PAGE, end // PAGE):
                yield from pieces(mem, first * PAGE, last * PAGE)


def written(pid, start, end, at_once=1 << 20):
    """Yields ranges of the pages that are in memory or swapped out."""
    first = last = None
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as f:
        while start < end:
            f.seek(8 * start)
            entries = array.array("Q", f.read(8 * min(at_once, end - start)))
            if not entries:
                break
            for page in (start + i for i, e in enumerate(entries) if e >> 62) if max(entries) >> 62 else ():
                if first is None or page != last:
                    if first is not None:
                        yield first, last
                    first = page
                last = page + 1
            start += len(entries)
    if first is not None:
        yield first, last


def pieces(f, start, end, size=16 << 20, overlap=4096):
    while start < end:
        try:
            f.seek(start)
            data = f.read(min(size + overlap, end - start))
        except OSError:  # a page of a device, or a file that became shorter
            data = b""
        if not data:
            start += 4096 if size > 4096 else size
            continue
        yield data
        start += min(size, len(data))


def contents(path):
    """Yields the contents of a file without its holes."""
    with open(path, "rb") as f:
        for start, end in extents(f.fileno()):
            yield from pieces(f, start, end)


def in_descriptors(pid, value):
    """{descriptor: forms} of the regular files that a process has open, also unnamed ones."""
    seen = {}
    for fd in list_dir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            path = f"/proc/{pid}/fd/{fd}"
            if stat.S_ISREG(os.stat(path).st_mode):
                seen[path] = sorted({form for data in contents(path) for form in hits(data, value)})
    return {path: got for path, got in seen.items() if got}


def in_memory(pid, value):
    return sorted({form for data in memory_of(pid) for form in hits(data, value)})


def in_files(top, value, since=0):
    """{path: forms} of all files below a directory that contain the value, also in their names or
    the targets of links. Files that have not changed since that time are left out."""
    seen = {}
    for where, folders, files in os.walk(top):
        for name in (*folders, *files):
            path = os.path.join(where, name)
            data = [name.encode(errors="surrogateescape")]
            with contextlib.suppress(OSError):
                if os.path.islink(path):
                    data.append(os.readlink(path).encode(errors="surrogateescape"))
                elif os.path.isfile(path) and os.stat(path).st_ctime >= since:
                    data += contents(path)
            if got := sorted({form for d in data for form in hits(d, value)}):
                seen[path] = got
    return seen


class TapCase(EgressCase):
    def setUp(self):
        super().setUp()
        WORLD("origin")
        where = tempfile.TemporaryDirectory()
        self.addCleanup(where.cleanup)
        # The first host.yaml of the path counts.
        (Path(where.name) / "host.yaml").write_text(f"disk_overcommit: true\ntap_roots: {WORLD.authority}\n")
        self.config = {"HUTCH_CONFIG_PATH": f"{where.name}:{CONFIG}"}
        self.n, self.began = 0, time.time() - 1

    # ---- secrets and sandboxes ----
    def key(self, name, value=None):
        """Stores a new secret value, which all forms of a search tell from other bytes."""
        value = value or f"hk/{secrets.token_hex(8)}+{secrets.token_hex(12)}"
        self.store(name, value)
        self.addCleanup(hutch, "secret", "rm", name)
        return value

    def store(self, name, value):
        self.ended(hutch("secret", "set", "--replace", name, input=value.encode()), 0)

    def tapped(self, secrets=None, http=(), domains=(), deny=(), opts=(), more=""):
        """Makes a sandbox whose policy has these secrets, {name: {hosts, ...}}, and rules."""
        agent = self.agent_of(secrets, http, domains, deny, more)
        box = self.create(*opts, "--agent", agent, env=self.config)
        self.own.append(box)
        return box

    def agent_of(self, secrets=None, http=(), domains=(), deny=(), more=""):
        secrets = secrets or {}
        hosts = {h for s in secrets.values() for h in s["hosts"]} | {rule["host"] for rule in http}
        text = "".join(f"    - {json.dumps(rule)}\n" for rule in http)
        text = f"  http:\n{text}" if http else ""
        if secrets:
            text += "secrets:\n" + "".join(f"  {name}: {json.dumps(s)}\n" for name, s in secrets.items())
        self.n += 1
        return policy(f"tapped-{self.n}", sorted({*hosts, *domains}), deny, text + more)

    def placeholder(self, box, name):
        value = run(box, "sh", "-c", f'printf %s "${name}"').out
        self.assertNotEqual(value, "")
        return value

    # ---- requests ----
    def curl(self, box, *args, code=0, script=None, **more):
        """curl in the sandbox, by a shell: arguments may contain $NAME."""
        r = run(box, "sh", "-c", script or "exec curl -sS " + " ".join(args), **more)
        if code is not None:
            self.assertEqual(r.code, code, r)
        return r

    def status(self, box, *args):
        """The status of an answer; 000 without one."""
        return self.curl(box, "-o /dev/null -w '%{http_code}'", *args, code=None).out

    def raw(self, box, *probes):
        r = run(box, "python3", "-c", RAW, data=json.dumps(probes))
        self.assertEqual(r.code, 0, r)
        return json.loads(r.out)

    def connections(self, **wanted):
        """The connections to the servers since the test began."""
        return [c for c in WORLD("origin_now") if all(c[k] == v for k, v in wanted.items())]

    def requests(self, host=None, path=None):
        """The requests that reached the servers, in order; `path` is the beginning of the target."""
        return [{**r, "conn": c} for c in self.connections() for r in c["requests"]
                if host in (None, c["to"]) and (path is None or r["target"].startswith(path))]

    def one(self, host, path):
        """The only request to this host that begins with this path."""
        seen = self.requests(host, path)
        self.assertEqual(len(seen), 1, seen)
        return seen[0]

    def nothing_of(self, value, *hosts):
        """No server, or none of these, has received the value in any form."""
        for c in self.connections():
            if not hosts or c["to"] in hosts:
                self.assertEqual(hits(json.dumps(c).encode(), value), [], c)
                self.assertEqual(hits(c["raw"].encode("latin-1"), value), [], c)

    def arrives(self, box, host, value, path="/control", name="authorization", text="Bearer {}"):
        """The positive control: an ordinary request of this sandbox to the host has the key."""
        self.n += 1
        path = f"{path}-{self.n}"
        self.curl(box, f"https://{host}{path}")
        self.assertEqual(headers(self.one(host, path), name), [text.format(value)])

    def everything(self, box, value):
        """Searches processes, disk, files and logs of a sandbox for a value: {place: forms}. Needs
        root."""
        seen = {}
        for p in processes_of(box):
            for what in ("environ", "cmdline"):
                data = Path(f"/proc/{p.pid}/{what}")
                seen[f"{p.comm} {what}"] = hits(data.read_bytes(), value) if data.exists() else []
            seen[f"{p.comm} {p.pid} memory"] = in_memory(p.pid, value)
            seen.update(in_descriptors(p.pid, value))
        seen["environment inside"] = hits(run(box, "env").out.encode(), value)
        seen["/proc inside"] = hits(run(box, "sh", "-c", "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; true").out.encode("latin-1"), value)
        # A container's disk, as its processes see it. A VM's is in files below STATE.
        inside = [p.pid for p in processes_of(box) if p.comm == "hutch-guest"]
        for top in DISK if inside else ():
            seen.update(in_files(f"/proc/{inside[0]}/root/{top}", value, self.began))
        seen.update(in_files(RUN / "sandboxes" / box, value))
        seen.update(in_files(STATE, value, self.began))
        seen["log of egress"] = hits(hutch("egress", "log", "--json", box).stdout, value)
        seen["audit log"] = hits(hutch("audit", "show", "--json").stdout, value)
        seen["receipt"] = hits(hutch("receipt", "--json", box).stdout, value)
        seen["inspect"] = hits(hutch("inspect", "--json", box).stdout, value)
        return {place: got for place, got in seen.items() if got}

    # ---- records ----
    def http_log(self, box, **wanted):
        """Waits for a line of `hutch egress log` about a request with these values."""
        return self.logged(box, **wanted)[0]

    def audit(self, box, kind=None):
        r = self.ended(hutch("audit", "show", "--json", "-s", box), 0)
        rows = [json.loads(line) for line in r.stdout.splitlines()]
        return [row["payload"] for row in rows if kind in (None, row["kind"])]

    def tap(self, box):
        """The sandbox's only hutch-tap."""
        taps = eventually(lambda: taps_of(box), f"hutch-tap of {box}")
        self.assertEqual(len(taps), 1, taps)
        return taps[0]

