# SPDX-License-Identifier: Apache-2.0
"""The tests' access to the world: sends requests to world.py and returns its observations."""

import json
import os
import socket
from types import SimpleNamespace


class World:
    def __init__(self):
        self.s = socket.socket(socket.AF_UNIX)
        self.s.connect(os.environ["WORLD"])
        self.f = self.s.makefile("rwb")
        about = self("about")
        self.names, self.ssh, self.host, self.git, self.authority = (about[k] for k in ("names", "ssh", "host", "git", "authority"))

    def __call__(self, do, **args):
        self.f.write(json.dumps({"do": do, **args}).encode() + b"\n")
        self.f.flush()
        answer = json.loads(self.f.readline())
        if "error" in answer:
            raise RuntimeError(f"{do}: {answer['error']}")
        return answer["ok"]

    def box(self, *argv, **more):
        """Runs a command in the plain box: .code, .out, .err"""
        return SimpleNamespace(**self("box", argv=argv, **more))

    def asked(self):
        return {name.lower() for _, name, _, _ in self("asked")}

    def close(self):
        self.f.close()
        self.s.close()
