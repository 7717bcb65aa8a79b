# SPDX-License-Identifier: Apache-2.0
"""Images from OCI layouts, made by hand and with umoci."""

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import unittest
from pathlib import Path

from image_support import AS_ROOT, ImageCase, archive, entry

OWNER = "application/vnd.oci.image."


class Layouts(ImageCase):
    """OCI layouts, made by hand and with umoci."""

    def blob(self, data):
        digest = hashlib.sha256(data).hexdigest()
        self.write(f"oci/blobs/sha256/{digest}", data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    def layout(self, *layers, tag="latest", change=None, packed=gzip.compress):
        self.write("oci/oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}))
        config = {"architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/bin", "A=b c"], "User": "1000",
                  "WorkingDir": "/srv"}, "rootfs": {"type": "layers", "diff_ids": [
                      "sha256:" + hashlib.sha256(layer).hexdigest() for layer in layers]}}
        if change:
            change(config)
        manifest = {"schemaVersion": 2, "mediaType": OWNER + "manifest.v1+json",
                    "config": {"mediaType": OWNER + "config.v1+json", **self.blob(json.dumps(config).encode())},
                    "layers": [{"mediaType": OWNER + "layer.v1.tar+gzip", **self.blob(packed(layer))}
                               for layer in layers]}
        index = {"schemaVersion": 2, "manifests": [
            {"mediaType": OWNER + "manifest.v1+json", **self.blob(json.dumps(manifest).encode()),
             "annotations": {"org.opencontainers.image.ref.name": tag}}]}
        self.write("oci/index.json", json.dumps(index))
        return str(self.dir / "oci")

    def refused_layout(self, path, pattern):
        self.assertRegex(self.run_fails(1, "image", "import", "x", path, env=self.env), pattern)
        self.nothing_left()

    def test_layers_and_whiteouts(self):
        below = archive(entry("etc", tarfile.DIRTYPE), entry("etc/a", data=b"1"), entry("etc/b", data=b"1"),
                        entry("opt/old/x", data=b"1"), entry("opt/old/y", data=b"1"), entry("gone/z", data=b"1"),
                        entry("var", data=b"file"))
        # The opaque whiteout follows entries of the same layer, which must stay.
        above = archive(entry("opt/old/new", data=b"2"), entry("opt/old/.wh..wh..opq"), entry("etc/.wh.a"),
                        entry("etc/b", data=b"2"), entry(".wh.gone"), entry(".wh.never-was"), entry("var", tarfile.DIRTYPE),
                        entry("none/.wh.x"))
        for packed in (gzip.compress, bytes):
            self.image("import", "x", self.layout(below, above, packed=packed))
            root = self.root("x")
            self.assertEqual(sorted(p.name for p in (root / "opt/old").iterdir()), ["new"])
            self.assertEqual([p.name for p in (root / "etc").iterdir()], ["b"])
            self.assertEqual((root / "etc/b").read_bytes(), b"2")
            self.assertFalse((root / "gone").exists() or (root / ".wh.gone").exists())
            self.assertTrue((root / "var").is_dir())
        info = self.inspect("x")
        self.assertEqual((info["env"], info["user"], info["workdir"]), ({"PATH": "/bin", "A": "b c"}, "1000", "/srv"))

    def test_whiteouts_that_lead_out(self):
        below = archive(entry("l", tarfile.SYMTYPE, linkname=str(self.dir)), entry("d/x", data=b"x"))
        for name, pattern in (("l/.wh.canary", "symbolic link"), ("d/.wh...", "whiteout without a name"),
                              ("l/.wh..wh..opq", "symbolic link"), ("d/.wh..", "whiteout without a name"),
                              ("d/.wh.", "whiteout without a name"), ("d/.wh..wh.plnk", "unknown kind")):
            self.refused_layout(self.layout(below, archive(entry(name))), pattern)

    def test_a_layer_cannot_make_a_mount_point_a_link(self):
        self.refused_layout(self.layout(archive(entry("dev", tarfile.DIRTYPE)),
                                        archive(entry(".wh.dev"), entry("dev", tarfile.SYMTYPE, linkname="/tmp"))),
                            "'/dev' must be a directory")

    def test_wrong_digest(self):
        layer = archive(entry("a", data=b"x"))
        path = self.layout(layer)
        packed = gzip.compress(layer)
        blob = Path(path, "blobs/sha256", hashlib.sha256(packed).hexdigest())
        data = bytearray(packed)
        data[-1] ^= 1
        blob.write_bytes(data)
        self.refused_layout(path, "layer 1: blob .* does not have the digest in its descriptor")
        blob.write_bytes(packed + b"x")
        self.refused_layout(path, "does not have the size")
        blob.unlink()
        self.refused_layout(path, "No such file")
        blob.symlink_to("/etc/passwd")
        self.refused_layout(path, "symbolic links")
        os.unlink(blob)
        os.mkfifo(blob)
        self.refused_layout(path, "Invalid argument")

    def test_wrong_configuration(self):
        layer = archive(entry("a", data=b"x"))

        def other(config):
            config["rootfs"]["diff_ids"] = ["sha256:" + "0" * 64]

        def more(config):
            config["rootfs"]["diff_ids"] *= 2

        def environ(config):
            config["config"]["Env"] = [f"A{i}=b" for i in range(257)]

        def long(config):
            config["config"]["Env"] = ["A=" + "b" * 5000]

        self.refused_layout(self.layout(layer, change=other), "the unpacked contents do not match their digest")
        self.refused_layout(self.layout(layer, change=more), "a different number of layers")
        self.refused_layout(self.layout(layer, change=environ), "more than 256 environment")
        self.refused_layout(self.layout(layer, change=long), "more than 4096 bytes")
        self.refused_layout(self.layout(*[layer] * 129), "1 to 128 layers")
        self.refused_layout(self.layout(), "1 to 128 layers")

    def test_tags(self):
        path = self.layout(archive(entry("a", data=b"x")), tag="v1")
        self.image("import", "x", path)
        self.image("import", "y", f"{path}:v1")
        self.assertIn("no image 'v2'", self.run_fails(1, "image", "import", "z", f"{path}:v2", env=self.env))
        index = json.loads(Path(path, "index.json").read_text())
        index["manifests"].append(dict(index["manifests"][0], annotations={"org.opencontainers.image.ref.name": "v2"}))
        self.write("oci/index.json", json.dumps(index))
        self.assertIn("name one", self.run_fails(1, "image", "import", "z", path, env=self.env))
        self.image("import", "z", f"{path}:v2")

    def test_wrong_json(self):
        path = self.layout(archive(entry("a", data=b"x")))
        for text in ("", "{", "[]", '{"manifests": 3}', '{"manifests": [3]}', '{"manifests": [{}]}', "[" * 1000,
                     '{"manifests": [{"mediaType": "x", "digest": "sha256:../../../canary", "size": 5}]}',
                     '{"manifests": [{"mediaType": "x", "digest": "md5:00", "size": 5}]}',
                     '{"manifests": [{"mediaType": "x", "digest": "sha256:' + "0" * 64 + '", "size": -1}]}'):
            self.write("oci/index.json", text)
            self.refused_layout(path, "index|descriptor|digest|layout|manifest")

    @unittest.skipUnless(shutil.which("umoci"), "umoci is not installed")
    def test_of_umoci(self):
        layout, bundle = self.dir / "umoci", self.dir / "bundle"

        def umoci(*args):
            subprocess.run(["umoci", *args], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        rootless = () if AS_ROOT else ("--rootless",)
        umoci("init", "--layout", str(layout))
        umoci("new", "--image", f"{layout}:v1")
        for files, gone in ((("etc/a", "etc/b", "opt/dir/x"), ()), (("etc/c",), ("etc/a", "opt/dir/x"))):
            umoci("unpack", *rootless, "--image", f"{layout}:v1", str(bundle))
            for name in files:
                path = bundle / "rootfs" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(name)
            for name in gone:
                (bundle / "rootfs" / name).unlink()
            umoci("repack", "--image", f"{layout}:v1", str(bundle))
            shutil.rmtree(bundle)
        umoci("config", "--image", f"{layout}:v1", "--config.env", "X=y", "--config.workingdir", "/opt")
        first = self.image("import", "x", f"{layout}:v1")
        self.assertEqual(first["sha256"], self.image("import", "y", f"{layout}:v1")["sha256"])
        root = self.root("x")
        self.assertEqual(sorted(p.name for p in (root / "etc").iterdir()), ["b", "c"])
        self.assertEqual(list((root / "opt/dir").iterdir()), [])
        self.assertEqual(self.inspect("x")["env"]["X"], "y")
