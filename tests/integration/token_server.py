# SPDX-License-Identifier: Apache-2.0
"""A token endpoint on the loopback interface: OAuth 2.0 and GitHub App, over TLS."""

import base64
import http.server
import json
import secrets
import ssl
import subprocess
import threading
from urllib.parse import parse_qs


def make_authority(where, name="127.0.0.1"):
    """A self-signed certificate for the address, with its key; the paths of both."""
    cert, key = where / f"{name}.pem", where / f"{name}.key"
    kind = "IP" if name[0].isdigit() else "DNS"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
                    "-subj", "/CN=token endpoint", "-addext", f"subjectAltName={kind}:{name}"], check=True, capture_output=True)
    return cert, key


class TokenServer(http.server.ThreadingHTTPServer):
    """`answers` are (status, body) for the next requests; without one, each gets a new token. `gate`
    (an Event) holds all answers back while it is not set."""

    daemon_threads = True

    def __init__(self, cert, key):
        super().__init__(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.requests, self.answers, self.tokens, self.refreshes = [], [], [], []
        self.life, self.rotate, self.chunked = 3600, False, False
        self.gate = threading.Event()
        self.gate.set()
        self.thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"https://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address):
        """Clients that refuse the certificate end the handshake."""

    def stop(self):
        self.gate.set()
        self.shutdown()
        self.server_close()
        self.thread.join()

    def answer(self):
        if self.answers:
            return self.answers.pop(0)
        self.tokens.append(f"tok_{secrets.token_hex(16)}")
        o = {"access_token": self.tokens[-1], "token_type": "Bearer", "expires_in": self.life, "future": {"a": 1}}
        if self.rotate:
            self.refreshes.append(f"ref_{secrets.token_hex(16)}")
            o["refresh_token"] = self.refreshes[-1]
        return 200, json.dumps(o)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.requests.append({"path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}, "body": body})
        self.server.gate.wait()
        status, text = self.server.answer()
        self.send_response(status)
        if self.server.chunked:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for c in text:
                self.wfile.write(f"1\r\n{c}\r\n".encode())
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

    def log_message(self, *args):
        pass


def form(request):
    return {k: v[0] for k, v in parse_qs(request["body"], strict_parsing=True).items()}


def basic(request):
    return base64.b64decode(request["headers"]["authorization"].removeprefix("Basic ")).decode()
