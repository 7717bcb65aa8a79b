# SPDX-License-Identifier: Apache-2.0
"""
Real clients in sandboxes use real servers that demand credentials (services.py); the sandboxes have
placeholders. Each server refuses the client of a sandbox without the secret, which is the control.
Java, which has its own stores of CA certificates, is here because its image is large.
tests/slow/clients-inside.sh runs this.
"""

import os
import unittest

from boxes import WORLD, run
from sandbox import hutch
from tapped import API, TapCase, headers, hits

GIT, NPM, PYPI, OCI, S3 = (f"{n}.dev.test" for n in ("git", "npm", "pypi", "oci", "s3"))
DB = "db.hutch.test"
GIT_SCRIPT = f"""
git config --global user.name t && git config --global user.email t@hutch.test
git clone -q https://{GIT}/git/demo.git /tmp/demo && cd /tmp/demo && cat answer
head -c 3000000 /dev/urandom >large && git add large && git commit -q -m more && git push -q origin HEAD:refs/heads/more
git ls-remote origin more | grep -q refs/heads/more && git fetch -q && echo pushed
"""
NPM_SCRIPT = f"""
printf '//{NPM}/:_authToken=${{NPM_TOKEN}}\\nregistry=https://{NPM}/\\nfetch-retries=0\\nupdate-notifier=false\\n' >$HOME/.npmrc
mkdir -p /tmp/p && cd /tmp/p && printf '{{"name":"demo-secret","version":"1.0.%s","main":"index.js"}}' $$ >package.json
echo 'module.exports = 42' >index.js && npm publish --loglevel=error
mkdir -p /tmp/q && cd /tmp/q && npm install --no-audit --no-fund --loglevel=error demo-secret@1.0.$$ && node -e "console.log(require('demo-secret'))"
"""
PYPI_SCRIPT = f"""
cd /tmp && mkdir -p demo/demo_secret && echo 'ANSWER = 42' >demo/demo_secret/__init__.py
printf 'from setuptools import setup\\nsetup(name="demo-secret", version="1.0", packages=["demo_secret"])\\n' >demo/setup.py
(cd demo && python3 setup.py -q sdist bdist_wheel 2>/dev/null)
curl -sS --fail -F ':action=file_upload' -F protocol_version=1 -F "content=@$(ls demo/dist/*.whl)" https://{PYPI}/
pip install -q --disable-pip-version-check --no-cache-dir --retries 0 --no-deps --index-url https://{PYPI}/simple/ --target /tmp/got demo-secret
PYTHONPATH=/tmp/got python3 -c 'import demo_secret; print(demo_secret.ANSWER)'
"""
OCI_SCRIPT = f"""
export XDG_RUNTIME_DIR=/tmp
skopeo login -u someuser --password-stdin {OCI} <<X
$OCI_TOKEN
X
head -c 2000000 /dev/urandom >/tmp/layer && mkdir -p /tmp/in && cd /tmp/in
python3 - <<'X'
import gzip, hashlib, io, json, os, tarfile
def put(data):
    name = hashlib.sha256(data).hexdigest()
    open(name, "wb").write(data)
    return {{"digest": "sha256:" + name, "size": len(data)}}
tar = io.BytesIO()
with tarfile.open(fileobj=tar, mode="w") as t:
    t.add("/tmp/layer", "layer")
layer = put(gzip.compress(tar.getvalue()))  # skopeo would compress it, and the manifest would be another one
whole = "sha256:" + hashlib.sha256(tar.getvalue()).hexdigest()
config = put(json.dumps({{"architecture": "amd64", "os": "linux", "rootfs": {{"type": "layers", "diff_ids": [whole]}}}}).encode())
kind = "application/vnd.oci.image."
json.dump({{"schemaVersion": 2, "mediaType": kind + "manifest.v1+json", "config": {{"mediaType": kind + "config.v1+json", **config}},
           "layers": [{{"mediaType": kind + "layer.v1.tar+gzip", **layer}}]}}, open("manifest.json", "w"))
open("version", "w").write("Directory Transport Version: 1.1\\n")
X
skopeo --insecure-policy copy -q dir:/tmp/in docker://{OCI}/demo:1 && skopeo --insecure-policy copy -q docker://{OCI}/demo:1 dir:/tmp/out
cmp /tmp/in/manifest.json /tmp/out/manifest.json && echo same
"""
S3_SCRIPT = f"""
export PYTHONPATH=/opt/aws AWS_DEFAULT_REGION=us-east-1
aws() {{ python3 -m awscli --endpoint-url https://{S3} "$@"; }}
head -c 20000000 /dev/urandom >/tmp/large && echo small >/tmp/small
aws s3 mb s3://bucket-$$ && aws s3 cp --quiet /tmp/small s3://bucket-$$/small && aws s3 cp --quiet /tmp/large s3://bucket-$$/a/large
aws s3 cp --quiet s3://bucket-$$/a/large /tmp/back && cmp /tmp/large /tmp/back && aws s3 cp --quiet s3://bucket-$$/small - && aws s3 ls s3://bucket-$$/
"""
PSQL_SCRIPT = f"psql 'host={DB} user=postgres dbname=postgres sslmode=require' -Atc 'select 6 * 7'"


@unittest.skipUnless(os.environ.get("HUTCH_WORLD_SERVICES"), "HUTCH_WORLD_SERVICES is not set")
class Clients(TapCase):
    def client(self, script, host, name, works, secret, *, opts=()):
        keys = WORLD("services")
        value = self.key(name, keys[host])
        argv = ["sh", "-ec", "export HOME=/tmp GIT_TERMINAL_PROMPT=0; " + script]
        # The control: with a placeholder alone, the server refuses.
        without = self.create("--agent", self.agent_of(domains=[host]), "-e", f"{name}=not-the-key", *opts)
        self.own.append(without)
        r = run(without, *argv)
        self.assertNotEqual(r.code, 0, r)
        self.assertNotIn(works, r.out)
        box = self.tapped({name: {"hosts": [host], **secret}})
        r = run(box, *argv)
        self.assertEqual(r.code, 0, r)
        self.assertIn(works, r.out)
        self.assertEqual(hits((r.out + r.err).encode("latin-1"), value), [])
        self.http_log(box, secret=name)

    def test_git(self):
        """clone, push, fetch"""
        self.client(GIT_SCRIPT, GIT, "GIT_TOKEN", "pushed", {"form": "basic", "user": "tester"})

    def test_npm(self):
        """publish, install"""
        self.client(NPM_SCRIPT, NPM, "NPM_TOKEN", "42", {})

    def test_pip(self):
        """upload, install"""
        self.client(PYPI_SCRIPT, PYPI, "PYPI_TOKEN", "42", {"form": "basic", "user": "tester"})

    def test_oci(self):
        """login, push, pull"""
        self.client(OCI_SCRIPT, OCI, "OCI_TOKEN", "same", {"form": "basic", "user": "tester"})

    def test_s3(self):
        """cp in both directions, with parts, signed again"""
        self.client(S3_SCRIPT, S3, "S3_KEYS", "small", {"form": "aws"}, opts=("-e", "AWS_ACCESS_KEY_ID=AKIATESTTESTTEST", "-e", "AWS_SECRET_ACCESS_KEY=x"))

    def test_psql(self):
        """TCP without HTTP, beside a secret, is untouched."""
        self.key("GIT_TOKEN", WORLD("services")[GIT])
        box = self.tapped({"GIT_TOKEN": {"hosts": [GIT], "form": "basic", "user": "tester"}}, domains=[f"{DB}:5432"])
        r = run(box, "sh", "-c", PSQL_SCRIPT)
        self.assertEqual((r.code, r.out), (0, "42\n"), r)


ANT = """
cd /tmp && echo '<project><get src="https://{host}{path}" dest="/tmp/got" ignoreerrors="false" retries="1"/></project>' >build.xml
ant -q -f build.xml 2>&1
"""
LIST = "keytool -list -storepass changeit -cacerts 2>&1 | grep -E '^hutch-sandbox-ca|^Your keystore'"
PKCS12 = """
mkdir -p /opt/jdk/lib/security
keytool -importkeystore -srckeystore /etc/ssl/certs/java/cacerts -srcstorepass changeit -destkeystore /opt/jdk/lib/security/cacerts \\
  -deststoretype pkcs12 -deststorepass changeit -noprompt -J-Dkeystore.pkcs12.certProtectionAlgorithm=NONE -J-Dkeystore.pkcs12.macAlgorithm=NONE 2>&1
"""
OPEN = "filesystem:\n  workspace: /workspace\n  read: [/]\n  write: [/]\n  execute: [/]\n"


@unittest.skipUnless(os.environ.get("HUTCH_WORLD_SERVICES"), "HUTCH_WORLD_SERVICES is not set")
class Java(TapCase):
    """A real JVM trusts the sandbox's CA without a setting, because its keystore has it."""

    def get(self, box, path, opts=()):
        return run(box, "sh", "-ec", ANT.format(host=API, path=path), opts=opts)

    def root(self, box, script):
        r = run(box, "sh", "-ec", script, opts=("-u", "0"))
        self.assertEqual(r.code, 0, r)
        return r.out

    def java(self, *opts):
        return self.tapped({"GITHUB_TOKEN": {"hosts": [API]}}, more=OPEN, opts=opts)

    def arrived(self, path, value):
        self.assertEqual(headers(self.one(API, path), "authorization"), [f"Bearer {value}"])

    def test_jks(self):
        value, box = self.key("GITHUB_TOKEN"), self.java()
        self.assertIn("hutch-sandbox-ca", self.root(box, LIST))
        r = self.get(box, "/java")
        self.assertEqual(r.code, 0, r)
        self.arrived("/java", value)
        # The control: without the entry Java does not trust the server.
        self.root(box, "keytool -delete -alias hutch-sandbox-ca -storepass changeit -keystore /etc/ssl/certs/java/cacerts")
        r = self.get(box, "/control")
        self.assertNotEqual(r.code, 0, r)
        self.assertIn("unable to find valid certification path", r.out)
        self.assertEqual(self.requests(API, "/control"), [])

    def test_pkcs12(self):
        """The format of newer JDKs: made here, committed without the CA, and used with another."""
        value, box = self.key("GITHUB_TOKEN"), self.java()
        self.assertIn("imported", self.root(box, PKCS12))
        self.addCleanup(hutch, "image", "rm", "with-pkcs12")
        self.ended(hutch("commit", box, "with-pkcs12"), 0)
        plain = self.create("--agent", self.agent_of(domains=[API], more=OPEN), "--image", "with-pkcs12")
        self.own.append(plain)
        store = LIST.replace("-cacerts", "-keystore /opt/jdk/lib/security/cacerts")
        self.assertNotIn("hutch", self.root(plain, LIST) + self.root(plain, store))
        again = self.java("--image", "with-pkcs12")
        self.assertIn("hutch-sandbox-ca", self.root(again, store))
        r = self.get(again, "/pkcs12", ("-e", "ANT_OPTS=-Djavax.net.ssl.trustStore=/opt/jdk/lib/security/cacerts"))
        self.assertEqual(r.code, 0, r)
        self.arrived("/pkcs12", value)
