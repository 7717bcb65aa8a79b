# SPDX-License-Identifier: Apache-2.0
"""
The web of the test's internet: one HTTP server for all its names, with and without TLS. By path:

  /            the server's name       /big?BYTES    that many bytes      /sink   accepts a POST
  /git/        git http-backend        /simple/      a pip index          /npm/   an npm registry
  /debian/     an apt archive          /to?URL       a redirection

It records every request, and bytes that arrive before there is a request.
"""

import base64
import hashlib
import io
import json
import os
import socket
import ssl
import subprocess
import tarfile
import threading
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


# ---- contents ----
def wheel(where):
    """Makes a pip package with one function, by hand."""
    files = {"demo_egress.py": "def answer():\n    return 42\n",
             "demo_egress-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: demo-egress\nVersion: 1.0\n",
             "demo_egress-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    rows = [f"{n},sha256={base64.urlsafe_b64encode(hashlib.sha256(t.encode()).digest()).rstrip(b'=').decode()},{len(t)}"
            for n, t in files.items()]
    files["demo_egress-1.0.dist-info/RECORD"] = "\n".join([*rows, "demo_egress-1.0.dist-info/RECORD,,"]) + "\n"
    place = where / "simple/demo-egress"
    place.mkdir(parents=True)
    name = "demo_egress-1.0-py3-none-any.whl"
    with zipfile.ZipFile(place / name, "w") as z:
        for n, text in files.items():
            z.writestr(n, text)
    (place / "index.html").write_text(f'<!DOCTYPE html><html><body><a href="{name}">{name}</a></body></html>')


def npm_package(where, base):
    manifest = {"name": "demo-egress", "version": "1.0.0", "main": "index.js"}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for n, text in (("package.json", json.dumps(manifest)), ("index.js", "module.exports = 42\n")):
            info = tarfile.TarInfo("package/" + n)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    place = where / "npm"
    place.mkdir()
    (place / "demo-egress-1.0.0.tgz").write_bytes(out.getvalue())
    digest = base64.b64encode(hashlib.sha512(out.getvalue()).digest()).decode()
    dist = {"tarball": f"{base}/npm/demo-egress-1.0.0.tgz", "integrity": f"sha512-{digest}"}
    (place / "demo-egress").write_text(json.dumps({
        "name": "demo-egress", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {**manifest, "dist": dist}}}))


def archive(where):
    """Makes a flat apt archive with one package."""
    place, tree = where / "debian", where / "tree"
    place.mkdir()
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "usr/share/demo-egress").mkdir(parents=True)
    (tree / "usr/share/demo-egress/answer").write_text("42\n")
    (tree / "DEBIAN/control").write_text("Package: demo-egress\nVersion: 1.0\nArchitecture: all\nMaintainer: Test <test@hutch.test>\n"
                                         "Description: a package of the egress tests\n")
    deb = place / "demo-egress_1.0_all.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, deb], check=True, stdout=subprocess.DEVNULL)
    control = (tree / "DEBIAN/control").read_text()
    (place / "Packages").write_text(f"{control}Filename: ./{deb.name}\nSize: {deb.stat().st_size}\n"
                                    f"SHA256: {hashlib.sha256(deb.read_bytes()).hexdigest()}\n")
    packages = (place / "Packages").read_bytes()
    (place / "Release").write_text(f"Origin: test\nSuite: test\nDate: {time.strftime('%a, %d %b %Y %H:%M:%S UTC', time.gmtime())}\n"
                                   f"SHA256:\n {hashlib.sha256(packages).hexdigest()} {len(packages)} Packages\n")


def repository(where):
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@hutch.test",
           "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@hutch.test"}
    bare = where / "git/demo.git"

    def git(*args, text=""):
        return subprocess.run(["git", *args], check=True, env=env, stdout=subprocess.PIPE, text=True, input=text).stdout.strip()
    git("init", "-q", "--bare", "--shared=0777", "-b", "main", bare)  # root and sshd's user push
    git("-C", bare, "config", "http.receivepack", "true")
    blob = git("-C", bare, "hash-object", "-w", "--stdin", text="42\n")
    tree = git("-C", bare, "mktree", text=f"100644 blob {blob}\tanswer\n")
    git("-C", bare, "update-ref", "refs/heads/main", git("-C", bare, "commit-tree", "-m", "first", tree))
    return bare


def certificate(where, ca, names):
    """Makes a key and a certificate for all names, signed by the image's authority."""
    key, request, cert, ext = (where / n for n in ("web.key", "web.csr", "web.pem", "web.ext"))
    subprocess.run(["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=web", "-keyout", key, "-out", request],
                   check=True, capture_output=True)
    ext.write_text("subjectAltName=" + ",".join(f"DNS:{n}" for n in names))
    subprocess.run(["openssl", "x509", "-req", "-in", request, "-CA", f"{ca}.ca.pem", "-CAkey", f"{ca}.ca.key", "-days", "30",
                    "-set_serial", str(int.from_bytes(os.urandom(8), "big")), "-extfile", ext, "-out", cert],
                   check=True, capture_output=True)
    return cert, key


# ---- the server ----
class Web(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512
    address_family = socket.AF_INET6
    allow_reuse_port = True  # the servers of origin.py have addresses of their own on these ports

    def __init__(self, ns, port, where, tls=None):
        self.where, self.tls, self.port = where, tls, port
        self.requests, self.connections = [], []
        with ns:
            super().__init__(("::", port), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def finish_request(self, request, client_address):
        """Runs in the connection's own thread, so that a slow hello delays no other client."""
        conn = {"time": time.time(), "port": self.port, "to": plain(request.getsockname()[0]), "peer": plain(client_address[0]),
                "sni": None, "error": None, "first": ""}
        self.connections.append(conn)
        request.settimeout(120)
        try:
            conn["first"] = request.recv(4096, socket.MSG_PEEK).hex()
            if self.tls:
                request = self.tls(request, conn)
            super().finish_request(request, client_address)
        except OSError as e:
            conn["error"] = str(e)
        finally:
            if self.tls and isinstance(request, ssl.SSLSocket):
                request.close()

    def handle_error(self, request, client_address):
        pass


def plain(address):
    return address.removeprefix("::ffff:")


def tls_with(cert, key):
    """Wraps connections and records the server name that the client asked for. Each connection
    has its own context, because the callback writes to that connection's record."""
    def wrap(s, conn):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        context.sni_callback = lambda _, name, __: conn.__setitem__("sni", name)
        return context.wrap_socket(s, server_side=True)
    return wrap


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, body, code=200, kind="text/plain", **headers):
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for k, v in headers.items():
            self.send_header(k, v)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self):
        """Reads the body and returns its size and beginning; git posts in chunks."""
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_GET(self):
        host = self.headers.get("Host", "")
        note = {"time": time.time(), "host": host, "path": self.path, "method": self.command, "port": self.server.port,
                "to": plain(self.connection.getsockname()[0]), "bytes": 0}
        self.server.requests.append(note)
        if self.command == "POST" and self.path == "/sink":
            return self.sink(note)
        data = self.body()
        note["bytes"] = len(data)
        url = urlsplit(self.path)
        if url.path.startswith("/git/"):
            return self.git(url, data)
        if url.path.startswith(("/simple/", "/npm/", "/debian/")):
            return self.file(unquote(url.path))
        if url.path == "/big":
            return self.big(int(url.query))
        if url.path == "/to":
            return self.answer(b"", 302, Location=unquote(url.query))
        return self.answer(f"hello from {host}\n".encode())

    do_POST = do_HEAD = do_PUT = do_GET

    def sink(self, note):
        """Counts bytes as they arrive: a connection may be cut."""
        left = int(self.headers.get("Content-Length") or 0)
        while left and (data := self.rfile.read1(min(left, 65536))):
            note["bytes"] += len(data)
            left -= len(data)
        self.answer(f"{note['bytes']}\n".encode())

    def big(self, size):
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        while size > 0:
            self.wfile.write(b"x" * min(size, 65536))
            size -= 65536

    def file(self, path):
        place = self.server.where / path.lstrip("/")
        if path.endswith("/"):
            place = place / "index.html"
        if ".." in path or not place.is_file():
            return self.answer(b"not here\n", 404)
        return self.answer(place.read_bytes(), kind="text/html" if path.endswith("/") else "application/octet-stream")

    def git(self, url, data):
        env = {"PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(self.server.where / "git"), "GIT_HTTP_EXPORT_ALL": "1",
               "PATH_INFO": url.path.removeprefix("/git"), "QUERY_STRING": url.query, "REQUEST_METHOD": self.command,
               "CONTENT_TYPE": self.headers.get("Content-Type", ""), "REMOTE_ADDR": self.client_address[0], "REMOTE_USER": "test",
               "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""), "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
               "CONTENT_LENGTH": str(len(data)), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
               "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
        out = subprocess.run(["git", "http-backend"], input=data, env=env, check=False, capture_output=True).stdout
        head, _, body = out.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        self.answer(body, int(headers.pop("Status", "200").split()[0]), headers.pop("Content-Type", "text/plain"), **headers)


def make(where, base):
    where = Path(where)
    wheel(where)
    npm_package(where, base)
    archive(where)
    return repository(where)
