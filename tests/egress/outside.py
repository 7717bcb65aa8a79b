# SPDX-License-Identifier: Apache-2.0
"""The world, as seen by tests: what they ask world.py to do, and what it has seen."""

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
        self.names, self.ssh, self.host, self.git = about["names"], about["ssh"], about["host"], about["git"]

    def __call__(self, do, **args):
        self.f.write(json.dumps({"do": do, **args}).encode() + b"\n")
        self.f.flush()
        answer = json.loads(self.f.readline())
        if "error" in answer:
            raise RuntimeError(f"{do}: {answer['error']}")
        return answer["ok"]

    def box(self, *argv, **more):
        """A command in the plain box: .code, .out, .err"""
        return SimpleNamespace(**self("box", argv=argv, **more))

    def asked(self):
        return {name.lower() for _, name, _, _ in self("asked")}

    def close(self):
        self.f.close()
        self.s.close()
