# SPDX-License-Identifier: Apache-2.0
"""Images in one file: docker-archive and oci-archive, made by hand and with skopeo; and files
that only look like one."""

import gzip
import hashlib
import json
import shutil
import subprocess
import tarfile
import unittest

import test_image_layout
from image_support import AS_ROOT, ImageCase, archive, entry

LAYER = archive(entry("etc", tarfile.DIRTYPE), entry("etc/a", data=b"1"), entry("etc/b", data=b"1"))
ABOVE = archive(entry("etc/.wh.a"), entry("etc/c", data=b"2"))
COMMAND = {"Entrypoint": ["/bin/entry", "--flag", "two words"], "Cmd": ["serve", ""], "Env": ["PATH=/bin", "A=b c"], "User": "1000:1000", "WorkingDir": "/srv"}


def sha(data):
    return hashlib.sha256(data).hexdigest()


def docker(*layers, legacy=False, config=None, tags=("app:v1",), change=lambda manifest: None, more=()):
    """The members of a docker-archive, in docker's current format or that before version 25,
    with a layer that is a link."""
    own = {"architecture": "amd64", "os": "linux", "config": COMMAND, "rootfs": {"type": "layers", "diff_ids": ["sha256:" + sha(x) for x in layers]}}
    own.update(config or {})
    text = json.dumps(own).encode()
    names = [f"{sha(bytes([i]))}/layer.tar" if legacy else f"blobs/sha256/{sha(x)}" for i, x in enumerate(layers)]
    members = {}
    for i, (name, data) in enumerate(zip(names, layers)):
        if legacy and i > 0:
            members[f"{sha(data)}.tar"] = entry(f"{sha(data)}.tar", data=data)
            members[name] = entry(name, tarfile.SYMTYPE, linkname=f"../{sha(data)}.tar")
        else:
            members[name] = entry(name, data=data)
        if legacy:
            members[name.replace("layer.tar", "VERSION")] = entry(name.replace("layer.tar", "VERSION"), data=b"1.0")
    where = f"{sha(text)}.json" if legacy else f"blobs/sha256/{sha(text)}"
    manifest = [{"Config": where, "RepoTags": list(tags), "Layers": names}]
    change(manifest)
    members[where] = entry(where, data=text)
    return [*members.values(), entry("manifest.json", data=json.dumps(manifest).encode()), *more]


class Archives(ImageCase):
    blob, layout = test_image_layout.Layouts.blob, test_image_layout.Layouts.layout

    def check_tree(self, name):
        self.assertEqual(sorted(p.name for p in (self.root(name) / "etc").iterdir()), ["b", "c"])
        self.assertEqual(sorted(p.name for p in self.root(name).iterdir()), ["dev", "etc", "proc", "run", "sys"])

    def oci_archive(self, path, name="oci.tar"):
        out = self.dir / name
        with tarfile.open(out, "w") as tar:
            tar.add(path, arcname=".")
        return out

    # ---- imports ----
    def test_an_oci_archive_is_what_its_layout_is(self):
        path = self.layout(LAYER, ABOVE)
        want = self.image("import", "dir", path)["sha256"]
        tar = self.oci_archive(path)
        packed = self.write("oci.tar.gz", gzip.compress(tar.read_bytes()))
        for name, file in (("plain", str(tar)), ("packed", packed), ("tagged", f"{tar}:latest")):
            self.assertEqual(self.image("import", name, file)["sha256"], want, name)
            self.check_tree(name)
        info = self.inspect("plain")
        self.assertEqual((info["source"]["kind"], info["user"], info["workdir"]), ("oci-archive", "1000", "/srv"))
        self.assertEqual(self.inspect("dir")["source"]["kind"], "oci")
        self.assertIn("no image 'v2'", self.run_fails(1, "image", "import", "z", f"{tar}:v2", env=self.env))
        self.assertEqual(self.leftovers(), [])

    def test_a_docker_archive(self):
        for legacy in (False, True):
            for packed in (bytes, gzip.compress):
                with self.subTest(legacy=legacy, packed=packed):
                    self.import_ok(packed(archive(*docker(LAYER, ABOVE, legacy=legacy))))
                    self.check_tree("x")
                    info = self.inspect("x")
                    self.assertEqual(info["source"]["kind"], "docker-archive")
                    self.assertEqual((info["entrypoint"], info["cmd"]), (COMMAND["Entrypoint"], COMMAND["Cmd"]))
                    self.assertEqual((info["env"], info["user"], info["workdir"]), ({"PATH": "/bin", "A": "b c"}, "1000:1000", "/srv"))
                    self.assertEqual(self.leftovers(), [])

    def test_which_image_of_several(self):
        def two(manifest):
            manifest.append(dict(manifest[0], RepoTags=["app:v2"]))
        file = self.write("two.tar", archive(*docker(LAYER, ABOVE, change=two)))
        self.assertIn("2 such images: name one, as FILE:TAG", self.run_fails(1, "image", "import", "x", file, env=self.env))
        self.image("import", "x", f"{file}:v2")
        self.image("import", "x", f"{file}:app:v2")
        self.assertIn("no image 'v3'", self.run_fails(1, "image", "import", "z", f"{file}:v3", env=self.env))

    def test_a_root_tree_stays_one(self):
        """Also with files of these names at its top, and without the standard directories."""
        self.import_ok(archive(*docker(LAYER), entry("usr", tarfile.DIRTYPE), entry("usr/x", data=b"x")))
        self.assertTrue((self.root("x") / "manifest.json").exists())
        self.assertEqual(self.inspect("x")["source"]["kind"], "tar")
        self.import_ok(archive(entry("index.json", data=b"{}"), entry("app.tar", data=b"x")))
        self.assertTrue((self.root("x") / "app.tar").exists())
        self.assertIn("has no image 'v1'", self.run_fails(1, "image", "import", "z", str(self.dir / "x.tar") + ":v1", env=self.env))

    @unittest.skipUnless(shutil.which("skopeo") and shutil.which("umoci"), "skopeo and umoci are not installed")
    def test_of_skopeo(self):
        layout = self.dir / "umoci"

        def run(*args):
            subprocess.run(args, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

        def copy(to):
            run("skopeo", "--insecure-policy", "copy", "-q", f"oci:{layout}:v1", to)

        rootless = () if AS_ROOT else ("--rootless",)
        run("umoci", "init", "--layout", str(layout))
        run("umoci", "new", "--image", f"{layout}:v1")
        for files, gone in ((("etc/a", "etc/b"), ()), (("etc/c",), ("etc/a",))):
            bundle = self.dir / "bundle"
            run("umoci", "unpack", *rootless, "--image", f"{layout}:v1", str(bundle))
            for name in files:
                path = bundle / "rootfs" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(name)
            for name in gone:
                (bundle / "rootfs" / name).unlink()
            run("umoci", "repack", "--image", f"{layout}:v1", str(bundle))
            shutil.rmtree(bundle)
        run("umoci", "config", "--image", f"{layout}:v1", "--config.entrypoint", "/bin/entry", "--config.cmd", "serve", "--config.cmd", "now",
            "--config.env", "X=y", "--config.user", "1000", "--config.workingdir", "/opt")
        want = self.image("import", "dir", f"{layout}:v1")["sha256"]
        for kind in ("docker-archive", "oci-archive"):
            with self.subTest(kind=kind):
                copy(f"{kind}:{self.dir}/{kind}.tar:app:v1")
                self.assertEqual(self.image("import", kind, str(self.dir / f"{kind}.tar"))["sha256"], want)
                self.check_tree(kind)
                info = self.inspect(kind)
                self.assertEqual((info["entrypoint"], info["cmd"], info["user"], info["workdir"], info["env"]["X"], info["source"]["kind"]),
                                 (["/bin/entry"], ["serve", "now"], "1000", "/opt", "y", kind))
        copy(f"dir:{self.dir}/other")
        self.assertIn("skopeo copy dir:DIR oci:OTHER", self.run_fails(1, "image", "import", "z", str(self.dir / "other"), env=self.env))

    # ---- refused ----
    def test_directories_that_are_no_layout(self):
        (self.dir / "tree/usr").mkdir(parents=True)
        self.assertIn("tar -C DIR -cf FILE .", self.run_fails(1, "image", "import", "z", str(self.dir / "tree"), env=self.env))

    def test_names_that_lead_out(self):
        for name in ("../../../canary", "/etc/passwd", "../canary", "blobs/sha256/../../manifest.json", "", "x" * 200, ".", "0", "parts/0"):
            def layers(manifest, name=name):
                manifest[0]["Layers"] = [name]

            def config(manifest, name=name):
                manifest[0]["Config"] = name
            with self.subTest(name=name):
                self.refused(archive(*docker(LAYER, change=layers)), "layer 1: the archive has no")
                self.refused(archive(*docker(LAYER, change=config)), "the archive has no")
        for name in ("../manifest.json", "blobs/sha256/../../../x"):
            self.refused(archive(entry(name, data=b"[]"), *docker(LAYER)), r"\.\.")

    def test_links(self):
        def layers(name):
            def change(manifest):
                manifest[0]["Layers"] = [name]
            return change
        aa = "a" * 64
        for target, pattern in ((str(self.canary), "leads out"), ("../../canary", r"\.\."), ("../manifest.json", "layer 1"),
                                (f"../{aa}.tar", "link to a link"), ("../nothing.tar", "the archive has no")):
            more = [entry(f"{aa}/layer.tar", tarfile.SYMTYPE, linkname=target), entry(f"{aa}.tar", tarfile.SYMTYPE, linkname=str(self.canary))]
            self.refused(archive(*docker(LAYER, change=layers(f"{aa}/layer.tar"), more=more)), pattern)
        blob = entry(f"blobs/sha256/{sha(LAYER)}", tarfile.SYMTYPE, linkname="/etc/passwd")
        self.refused(archive(*[m for m in docker(LAYER) if sha(LAYER) not in m[0].name], blob), "leads out")
        for kind in (tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
            self.refused(archive(*docker(LAYER), entry("x.tar", kind, linkname="manifest.json")), "neither a file nor a link|there twice")

    def test_two_of_one_name(self):
        self.refused(archive(*docker(LAYER), entry("manifest.json", data=b"[]")), "'manifest.json' is in the archive twice")
        self.refused(archive(*docker(LAYER), entry(f"./blobs/sha256/{sha(LAYER)}", data=ABOVE)), "is in the archive twice")

    def test_wrong_digests(self):
        self.refused(archive(*docker(LAYER, config={"rootfs": {"diff_ids": ["sha256:" + "0" * 64]}})), "layer 1: the unpacked contents do not match their digest")
        for config in ({"rootfs": {"diff_ids": []}}, {"rootfs": {}}):
            self.refused(archive(*docker(LAYER, config=config)), "a different number of layers")
        members = [(i, d + b" " if b"diff_ids" in d else d) for i, d in docker(LAYER)]
        for info, data in members:
            info.size = len(data)
        self.refused(archive(*members), "digest does not match its name")
        path = self.layout(LAYER)
        blob = next(p for p in (self.dir / "oci/blobs/sha256").iterdir() if p.read_bytes()[:2] == b"\x1f\x8b")
        data = bytearray(blob.read_bytes())
        data[-1] ^= 1
        blob.write_bytes(data)
        self.refused(self.oci_archive(path).read_bytes(), "does not have the digest in its descriptor")

    def test_too_much(self):
        huge = json.dumps([{"Config": "x" * (5 << 20)}]).encode()
        self.refused(archive(*[m for m in docker(LAYER) if m[0].name != "manifest.json"], entry("manifest.json", data=huge)), "cannot read the manifest")
        many = [entry(f"{i}.json", data=b"{}") for i in range(4100)]
        self.refused(archive(*many, *docker(LAYER)), "more than 4096 files")
        self.refused(archive(*docker(*[LAYER] * 129)), "there twice|1 to 128 layers")
        self.refused(archive(*docker(LAYER, config={"config": {"Cmd": ["a"] * 257}})), "more than 256 words")
        self.refused(archive(*docker(LAYER, config={"config": {"Cmd": ["a" * 5000]}})), "more than 4096 bytes")
        bomb = archive(*docker(archive(entry("zero", data=bytes(64 << 20)))))
        self.refused(gzip.compress(bomb + bytes(64 << 20)), "times its size|behind the end|more than")

    def test_wrong_manifests(self):
        for text in (b"", b"{", b"{}", b"[3]", b"[{}]", b"[]", b"[" * 1000, b'[{"Config": 3}]', b'[{"Config": "a.json", "Layers": {}}]'):
            with self.subTest(text=text):
                self.refused(archive(*[m for m in docker(LAYER) if m[0].name != "manifest.json"], entry("manifest.json", data=text)),
                             "manifest|no image|configuration|archive has no")

    def test_neither_an_image_nor_a_tree(self):
        self.refused(archive(*docker(LAYER), entry("notes.txt", data=b"x")), "manifest.json of an image, but also 'notes.txt'")
        self.refused(archive(entry("repositories", data=b"{}"), entry("a/layer.tar", data=LAYER)), "docker before version 1.10")
        self.refused(archive(*docker(LAYER, config={"architecture": "s390x"})), "the image is for linux/s390x")
        self.refused(archive(*docker(LAYER, config={"os": "windows"})), "the image is for windows/amd64")
