# SPDX-License-Identifier: Apache-2.0
"""
secret_world.py CERTIFICATE KEY LOG: an HTTP proxy at 127.0.0.1:3129 that is also every server behind
it, with TLS, and a token endpoint at https://127.0.0.1:3130. Each request becomes a line of JSON in
LOG. Prints a line when it listens.
"""

import itertools
import json
import ssl
import sys
import threading
from socketserver import StreamRequestHandler, ThreadingTCPServer

NUMBERS = itertools.count(1)


def head_of(f):
    lines = []
    while (line := f.readline().decode("latin-1").rstrip("\r\n")):
        lines.append(line)
    return lines


class Server(ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True

    def handle_error(self, request, client_address):
        """Clients may close at any time."""


class Secure(StreamRequestHandler):
    """One request over TLS; behind the proxy, CONNECT comes first."""

    def handle(self):
        to = "token endpoint"
        if self.server.is_proxy:
            to = head_of(self.rfile)[0].split()[1]
            self.request.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        with CONTEXT.wrap_socket(self.request, server_side=True) as s, s.makefile("rb") as f:
            head = head_of(f)
            with LOCK, open(sys.argv[3], "a", encoding="utf-8") as log:
                log.write(json.dumps({"to": to, "head": head}) + "\n")
            body = "ok" if self.server.is_proxy else json.dumps(
                {"access_token": f"issued-token-{next(NUMBERS)}", "token_type": "Bearer", "expires_in": 3600})
            s.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())


LOCK = threading.Lock()
CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
CONTEXT.load_cert_chain(*sys.argv[1:3])
for port in (3129, 3130):
    server = Server(("127.0.0.1", port), Secure)
    server.is_proxy = port == 3129
    threading.Thread(target=server.serve_forever, args=(0.05,)).start()
print("ready", flush=True)
