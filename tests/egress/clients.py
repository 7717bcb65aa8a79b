# SPDX-License-Identifier: Apache-2.0
"""
Common network clients: what each needs, what it prints on success, and the exit code and message
with which it fails if its host is not found.
"""

from dataclasses import dataclass, field


@dataclass
class Client:
    script: str  # for sh, with its own directory $T
    rules: list  # for egress.domains
    works: str  # expected in the output
    code: int  # exit code if the name does not exist
    says: str  # a regular expression for its error message
    files: dict = field(default_factory=dict)

    @property
    def names(self):
        return {r.split(":")[0] for r in self.rules}


PIP = "pip install -q --disable-pip-version-check --no-cache-dir --retries 0 --index-url https://pip.hutch.test/simple --target $T demo-egress && " \
      "PYTHONPATH=$T python3 -c 'import demo_egress; print(demo_egress.answer())'"
NPM = "cd $T && npm install --registry https://npm.hutch.test/npm/ --fetch-retries=0 --cache $T/cache --no-audit --no-fund --no-update-notifier " \
      "--loglevel=error demo-egress && node -e \"console.log(require('demo-egress'))\""
APT = "mkdir -p $T/state/lists/partial $T/cache/archives/partial && cd $T && echo 'deb [trusted=yes] http://apt.hutch.test/debian/ ./' >s.list && " \
      "o=\"-q -o Dir::State=$T/state -o Dir::Cache=$T/cache -o Dir::Etc::sourcelist=$T/s.list -o Dir::Etc::sourceparts=- " \
      "-o Dir::State::status=/var/lib/dpkg/status -o APT::Sandbox::User= -o Acquire::Retries=0 -o Debug::NoLocking=1\"; " \
      "apt-get $o -o APT::Update::Error-Mode=any update && apt-get $o download demo-egress && dpkg-deb --fsys-tarfile *.deb | tar -xO ./usr/share/demo-egress/answer"
SSH = "ssh -F none -i $T/key -o UserKnownHostsFile=$T/known -o IdentitiesOnly=yes -o BatchMode=yes -o GlobalKnownHostsFile=none"
GIT = "export HOME=$T GIT_CONFIG_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0; cd $T && "
PUSH = "cd x && git checkout -q -b b-${T##*.} && git -c user.name=t -c user.email=t@hutch.test commit -q --allow-empty -m more && " \
       "git push -q origin HEAD && git ls-remote origin b-${T##*.} | grep -q refs && echo pushed"
ASYNCIO = """
import asyncio, ssl
async def main():
    r, w = await asyncio.open_connection('web.hutch.test', 443, ssl=ssl.create_default_context())
    w.write(b'GET / HTTP/1.0\\r\\nHost: web.hutch.test\\r\\n\\r\\n')
    print((await r.read()).decode())
asyncio.run(main())
"""
BANNER = """
import socket
s = socket.create_connection(('tcp.hutch.test', 7777))
f = s.makefile('rwb')
print(f.readline().decode().strip())
f.write(b'hello\\n'); f.flush()
print(f.readline().decode().strip())
"""


def clients(world):
    key = {"key": world.ssh["key"], "known": "git.hutch.test " + world.ssh["host"]}
    ssh_url = f"ssh://{world.ssh['user']}@git.hutch.test{world.git}"
    web = ["web.hutch.test"]
    return {
        "curl": Client("curl -sS https://web.hutch.test/", web, "hello from web", 6, "Could not resolve host: web.hutch.test"),
        "curl_http": Client("curl -sS http://web.hutch.test/", ["web.hutch.test:80"], "hello from web", 6, "Could not resolve host"),
        "curl_download": Client("curl -sS https://web.hutch.test/big?5000000 | wc -c", web, "5000000", 0, "Could not resolve host"),
        "wget": Client("wget -nv -O- https://web.hutch.test/", web, "hello from web", 4, "unable to resolve host address"),
        "git_https": Client(GIT + "git clone -q https://git.hutch.test/git/demo.git x && cat x/answer", ["git.hutch.test"], "42", 128,
                            "Could not resolve host: git.hutch.test"),
        "git_https_push": Client(GIT + "git clone -q https://git.hutch.test/git/demo.git x && " + PUSH, ["git.hutch.test"], "pushed", 128,
                                 "Could not resolve host: git.hutch.test"),
        "git_ssh": Client(GIT + f"chmod 600 key && GIT_SSH_COMMAND='{SSH}' git clone -q {ssh_url} x && cat x/answer", ["git.hutch.test:22"],
                          "42", 128, "Could not resolve hostname git.hutch.test", files=key),
        "git_ssh_push": Client(GIT + f"chmod 600 key && export GIT_SSH_COMMAND='{SSH}' && git clone -q {ssh_url} x && " + PUSH,
                               ["git.hutch.test:22"], "pushed", 128, "Could not resolve hostname git.hutch.test", files=key),
        "pip": Client(PIP, ["pip.hutch.test"], "42", 1, "(?s)(Name or service not known|No matching distribution)"),
        "npm": Client(NPM, ["npm.hutch.test"], "42", 1, "ENOTFOUND"),
        "apt": Client(APT, ["apt.hutch.test:80"], "42", 100, "Could not resolve 'apt.hutch.test'"),
        "psql": Client("psql -At 'postgresql://postgres@db.hutch.test/postgres?sslmode=disable' -c 'select 6*7'", ["db.hutch.test:5432"], "42", 2,
                       'could not translate host name "db.hutch.test"'),
        "psql_tls": Client("psql -At 'postgresql://postgres@db.hutch.test/postgres?sslmode=verify-full&sslrootcert=/etc/ssl/certs/ca-certificates.crt'"
                           " -c 'select 6*7'", ["db.hutch.test:5432"], "42", 2, 'could not translate host name "db.hutch.test"'),
        "urllib": Client("python3 -c \"import urllib.request as u; print(u.urlopen('https://web.hutch.test/').read().decode())\"", web,
                         "hello from web", 1, "Name or service not known"),
        "requests": Client("python3 -c \"import requests; print(requests.get('https://api.hutch.test/').text)\"", ["api.hutch.test"],
                           "hello from api", 1, "Name or service not known"),
        "asyncio": Client(f'python3 -c "{ASYNCIO}"', web, "hello from web", 1, "Name or service not known"),
        "node_fetch": Client("node -e \"fetch('https://api.hutch.test/').then(r => r.text()).then(console.log)\"", ["api.hutch.test"],
                             "hello from api", 1, "ENOTFOUND"),
        "node_https": Client("node -e \"require('https').get('https://api.hutch.test/', r => r.pipe(process.stdout))\"", ["api.hutch.test"],
                             "hello from api", 1, "ENOTFOUND"),
        "banner": Client(f'python3 -c "{BANNER}"', ["tcp.hutch.test:7777"], "220 this is the banner\nhello", 1, "Name or service not known"),
        "bash": Client("bash -c 'exec 3<>/dev/tcp/tcp.hutch.test/7777 && head -1 <&3'", ["tcp.hutch.test:7777"], "220 this", 1,
                       "Name or service not known"),
        "static_glibc": Client("/usr/local/bin/dial tcp.hutch.test 7777", ["tcp.hutch.test:7777"], "220 this", 1, "Name or service not known"),
        "static_musl": Client("/usr/local/bin/dial_musl tcp.hutch.test 7777", ["tcp.hutch.test:7777"], "220 this", 1, "Name does not resolve"),
        "connect": Client("curl -sS -x http://127.0.0.1:3128 https://web.hutch.test/", web, "hello from web", 56, "response 403"),
        "connect_env": Client("https_proxy=http://127.0.0.1:3128 wget -nv -O- https://web.hutch.test/", web, "hello from web", 4,
                              "Proxy tunneling failed"),
        "socks5": Client("curl -sS --socks5-hostname 127.0.0.1:3128 https://web.hutch.test/", web, "hello from web", 97, "SOCKS5"),
    }


def wrap(client):
    """Returns (argv, input) of a script with its own directory and files."""
    files = "".join(f"cat >$T/{name} <<'END OF FILE'\n{text.rstrip()}\nEND OF FILE\n" for name, text in client.files.items())
    return ["sh"], f"export T=$(mktemp -d); trap 'rm -rf $T' EXIT\n{files}{client.script}\n"
