# SPDX-License-Identifier: Apache-2.0
"""
The only server that the sandboxes of crash.py reach, and a resolver for its name. The server has a
public address in a network namespace of its own, because a keeper dials no address of its host. It
answers 200 to requests with a value of the secret, and 401 to all others, so a request through
hutch-tap shows by its status that the value arrived.
"""

import contextlib
import ctypes
import os
import re
import ssl
import subprocess
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HOST, ADDRESS, GATEWAY, RESOLVER = "secret.example", "93.184.216.34", "93.184.216.1", "127.0.0.1:5353"
OUTER, INNER, CLONE_NEWNET = "crash-outer", "crash-inner", 0x40000000
SECRET, VALUES = "CRASH_KEY", ("the-first-value-0123456789", "the-second-value-0123456789")
PLACE = Path(os.environ.get("TMPDIR", "/nonexistent")) / "net"  # host.yaml for these sandboxes, and certificates


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        given = re.fullmatch("Bearer (.*)", self.headers.get("Authorization", ""))
        self.send_response(200 if given and given[1] in VALUES else 401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    """The handshake is part of a connection's own thread: a client that is killed delays no
    other."""

    daemon_threads = True

    def __init__(self, context):
        self.context = context
        super().__init__((ADDRESS, 443), Handler)

    def finish_request(self, request, client_address):
        request.settimeout(60)
        with contextlib.suppress(OSError), self.context.wrap_socket(request, server_side=True) as s:
            super().finish_request(s, client_address)


def ip(*commands, where=()):
    for command in commands:
        subprocess.run([*where, "ip", *command.split()], check=True)


def openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)


def certificates():
    ca, ca_key, cert, key, request, ext = (PLACE / n for n in ("ca.pem", "ca.key", "cert.pem", "cert.key", "request", "ext"))
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=the authority of the crash tests", "-keyout", ca_key, "-out", ca,
            "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={HOST}", "-keyout", key, "-out", request)
    ext.write_text(f"subjectAltName=DNS:{HOST}")
    openssl("x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-days", "30", "-set_serial", "1", "-extfile", ext, "-out", cert)
    return cert, key


def prepare():
    PLACE.mkdir(mode=0o755)
    cert, key = certificates()
    (PLACE / "host.yaml").write_text(f"disk_overcommit: true\ntap_roots: {PLACE / 'ca.pem'}\n")
    for path in PLACE.iterdir():
        path.chmod(0o644)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return Server(context)


def serve(ready):
    """Runs as root in the suite's network namespace, and does not return."""
    from resolver import Resolver
    address, port = RESOLVER.split(":")
    ip("link set lo up", f"link add {OUTER} type veth peer {INNER}", f"link set {OUTER} up", f"address add {GATEWAY}/24 dev {OUTER}")
    Resolver({HOST: {"a": [ADDRESS]}}).listen(contextlib.nullcontext(), address, int(port))
    # The resolver's threads stay in the suite's namespace.
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "cannot make a network namespace")
    ip(f"link set {INNER} netns {os.getpid()}", where=["nsenter", f"--net=/proc/{os.getppid()}/ns/net"])
    ip(f"link set {INNER} up", f"address add {ADDRESS}/24 dev {INNER}")
    server = prepare()
    os.write(ready, b"x")
    os.close(ready)
    server.serve_forever()


def start():
    """Forks the server and waits until it listens."""
    wait, ready = os.pipe()
    if os.fork() == 0:
        os.close(wait)
        try:
            serve(ready)
        except OSError:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(ready)
    if not os.read(wait, 1):
        raise SystemExit("the server of the crash tests did not start")
    os.close(wait)
