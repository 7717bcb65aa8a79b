# SPDX-License-Identifier: Apache-2.0
"""
Real servers with passwords, for clients with secrets: git http-backend, verdaccio (npm), pypiserver,
Debian's docker-registry and versitygw (S3, which checks signatures). HUTCH_WORLD_SERVICES is the
directory in which tests/slow/clients-inside.sh has installed them. Each listens on loopback without
TLS; a front with a certificate is in front of it, under the server's name.
"""

import base64
import crypt
import http.client
import json
import os
import secrets
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import servers
import web

HOSTS = {"git.dev.test": "93.184.216.60", "npm.dev.test": "93.184.216.61", "pypi.dev.test": "93.184.216.62", "oci.dev.test": "93.184.216.63",
         "s3.dev.test": "93.184.216.64"}
USER = "tester"
VERDACCIO = """storage: {dir}/storage
auth:
  htpasswd:
    file: {dir}/htpasswd
packages:
  '**': {{access: $authenticated, publish: $authenticated}}
log: {{type: stdout, level: warn}}
"""
REGISTRY = """version: 0.1
log: {{level: warn}}
storage: {{filesystem: {{rootdirectory: {dir}}}}}
auth: {{htpasswd: {{realm: test, path: {dir}/htpasswd}}}}
http: {{addr: "127.0.0.1:{port}", host: "https://oci.dev.test"}}
"""


class GitHandler(web.Handler):
    """git http-backend for requests with the right password only."""

    def do_GET(self):
        given = self.headers.get("Authorization", "")
        if given != "Basic " + base64.b64encode(f"{USER}:{self.server.password}".encode()).decode():
            self.body()
            return self.answer(b"", 401, **{"WWW-Authenticate": 'Basic realm="git"'})
        return super().do_GET()

    do_POST = do_GET


class Services:
    """`keys` has the credential that each host demands."""

    def __init__(self, ns, installed, where, certificate, stack):
        self.ns, self.installed, self.where, self.stack = ns, Path(installed), where, stack
        self.keys = {host: secrets.token_hex(20) for host in HOSTS}
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(*certificate)
        for host, address in HOSTS.items():
            folder = where / host
            folder.mkdir()
            port = self.free_port()
            getattr(self, host.split(".")[0])(folder, port, self.keys[host])
            servers.Tcp(ns, address, 443, lambda s, _, p=port: self.front(s, p), reuse_port=True)

    def free_port(self):
        with self.ns, socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            return s.getsockname()[1]

    def front(self, s, port):
        """Ends TLS and moves bytes."""
        with self.context.wrap_socket(s, server_side=True) as near:
            with self.ns:
                far = socket.create_connection(("127.0.0.1", port), 60)
            with far:
                far.settimeout(600)
                back = threading.Thread(target=self.pump, args=(far, near), daemon=True)
                back.start()
                servers.pump(near, far)
                back.join()

    def pump(self, far, near):
        servers.pump(far, near)
        try:
            near.unwrap()
        except (OSError, ValueError):
            pass

    def child(self, folder, port, *argv, **more):
        log = open(folder / "log", "wb")
        p = self.stack.enter_context(servers.child(self.ns, *map(str, argv), stdout=log, stderr=subprocess.STDOUT, **more))
        servers.wait_for(self.ns, "127.0.0.1", port, p)

    def git(self, folder, port, password):
        web.repository(folder)
        server = web.Web(self.ns, port, folder)
        server.RequestHandlerClass, server.password = GitHandler, password

    def npm(self, folder, port, _):
        """The key is a token that verdaccio makes."""
        (folder / "config.yaml").write_text(VERDACCIO.format(dir=folder))
        self.child(folder, port, "node", self.installed / "verdaccio/node_modules/verdaccio/bin/verdaccio", "--config", folder / "config.yaml",
                   "--listen", f"127.0.0.1:{port}", env={**os.environ, "VERDACCIO_PUBLIC_URL": "https://npm.dev.test/"})
        user = {"name": USER, "password": secrets.token_hex(8)}
        with self.ns:
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            c.request("PUT", f"/-/user/org.couchdb.user:{USER}", json.dumps(user), {"Content-Type": "application/json"})
            self.keys["npm.dev.test"] = json.loads(c.getresponse().read())["token"]

    def htpasswd(self, folder, password):
        (folder / "htpasswd").write_text(f"{USER}:{crypt.crypt(password, crypt.mksalt(crypt.METHOD_BLOWFISH, rounds=16))}\n")

    def pypi(self, folder, port, password):
        """Downloads need the password, too."""
        self.htpasswd(folder, password)
        (folder / "packages").mkdir()
        self.child(folder, port, "/usr/bin/python3", "-m", "pypiserver", "run", "-i", "127.0.0.1", "-p", port, "-P", folder / "htpasswd",
                   "-a", "update,download,list", "--disable-fallback", folder / "packages", env={**os.environ, "PYTHONPATH": str(self.installed / "pypiserver")})

    def oci(self, folder, port, password):
        self.htpasswd(folder, password)
        (folder / "config.yml").write_text(REGISTRY.format(dir=folder, port=port))
        self.child(folder, port, "docker-registry", "serve", folder / "config.yml")

    def s3(self, folder, port, password):
        (folder / "files").mkdir()
        self.keys["s3.dev.test"] = f"AKIATESTTESTTEST:{password}"
        self.child(folder, port, self.installed / "bin/versitygw", "--access", "AKIATESTTESTTEST", "--secret", password, "--port", f"127.0.0.1:{port}",
                   "posix", folder / "files")
