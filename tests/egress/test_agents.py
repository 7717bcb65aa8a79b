# SPDX-License-Identifier: Apache-2.0
"""
The real agent programs from npm, in sandboxes, against scripted models (models.py) under the real
host names: each writes a file and runs a command with its own tools, and its key is nowhere inside.
The models refuse requests without the key. tests/slow/agents-inside.sh makes the image.
"""

import json
import os
import subprocess
from dataclasses import dataclass, field

import models
from boxes import WORLD, run
from sandbox import MACHINE, PATIENCE, as_root, hutch, start
from tapped import AUTHORITY, CLAUDE, OPENAI, TapCase, hits
from waiting import LONG, eventually

GEMINI = "generativelanguage.googleapis.com"
PATHS = "export PATH=/opt/agents/node_modules/.bin:$PATH HOME=/home/user; cd /workspace; "
MEMORY = ("--memory", "2GiB") if MACHINE else ()
SECONDS = LONG * PATIENCE  # an emulated VM needs minutes to start a program of 200 MB
LIMITS = f"resources:\n  timeout: {2 * SECONDS}s\n"
TASK = "'Do the scripted task'"
CODEX = """check_for_update_on_startup = false
[analytics]
enabled = false
[features]
plugins = false
apps = false
api_key_model_discovery = false
"""
GEMINI_SETTINGS = {"security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
                   "privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False},
                   "general": {"maxAttempts": 2, "enableAutoUpdate": False, "disableAutoUpdate": True, "enableAutoUpdateNotification": False, "disableUpdateNag": True}}


@dataclass
class Agent:
    """A program, its key, and the files of its settings."""

    command: str
    variable: str
    secret: dict
    model: str  # beginning of the path of its requests to the model
    files: dict = field(default_factory=dict)

    @property
    def host(self):
        return self.secret["hosts"][0]


AGENTS = {
    "claude": Agent(f"IS_SANDBOX=1 CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 claude -p {TASK} --dangerously-skip-permissions", "ANTHROPIC_API_KEY",
                    {"hosts": [CLAUDE], "header": "x-api-key", "paths": ["/v1/messages/**", "/v1/models/**"]}, "/v1/messages"),
    "opencode": Agent(f"OPENCODE_DISABLE_MODELS_FETCH=1 OPENCODE_DISABLE_AUTOUPDATE=1 opencode run -m anthropic/claude-sonnet-4-5 {TASK}",
                      "ANTHROPIC_API_KEY", {"hosts": [CLAUDE], "header": "x-api-key", "paths": ["/v1/messages/**"]}, "/v1/messages"),
    "codex": Agent(f"codex exec --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox {TASK} </dev/null", "CODEX_API_KEY",
                   {"hosts": [OPENAI], "paths": ["/v1/**"]}, "/v1/responses", {".codex/config.toml": CODEX}),
    "gemini": Agent(f"gemini --skip-trust -y -m gemini-2.5-flash -o json -p {TASK}", "GEMINI_API_KEY", {"hosts": [GEMINI], "header": "x-goog-api-key"},
                    "/v1beta/models", {".gemini/settings.json": json.dumps(GEMINI_SETTINGS)}),
}


class Programs(TapCase):
    def prepare(self, box, agent):
        for name, text in agent.files.items():
            r = run(box, "sh", "-c", f'mkdir -p "/home/user/$(dirname {name})" && cat >/home/user/{name}', data=text)
            self.assertEqual(r.code, 0, r)

    def work(self, box, agent, gate):
        """Runs the program up to the end of its task, where the model waits for the gate."""
        self.prepare(box, agent)
        WORLD("hold", gate=gate)
        self.addCleanup(WORLD, "hold", gate=None)
        p = start("exec", box, "--", "sh", "-c", PATHS + agent.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(lambda: (WORLD("release", gate=gate), p.kill(), p.stdout.close(), p.wait()))
        eventually(lambda: p.poll() is not None or run(box, "test", "-s", "/workspace/COUNTED").code == 0, "the command of the task", SECONDS)
        self.assertIsNone(p.poll(), p.stdout.read() if p.poll() is not None else "")
        return p

    def over(self, box, agent, p, gate):
        WORLD("release", gate=gate)
        said = p.stdout.read().decode(errors="replace")
        self.assertEqual(p.wait(), 0, said)
        self.assertEqual(run(box, "cat", f"/workspace/{models.FILE}").out, models.CONTENT)
        self.assertEqual(run(box, "cat", "/workspace/COUNTED").out.split(), [str(len(models.CONTENT)), models.FILE])
        self.assertIn(models.DONE, said)

    def check(self, name):
        agent, value = AGENTS[name], self.key(AGENTS[name].variable)
        WORLD("expect", host=agent.host, value=value)
        self.addCleanup(WORLD, "expect", host=agent.host, value=None)
        box = self.tapped({agent.variable: agent.secret}, domains=[agent.host], opts=MEMORY, more=LIMITS)
        p = self.work(box, agent, f"gate of {name} {box}")
        self.no_core_dump(box)
        if MACHINE:
            self.snapshot(box)
        if os.geteuid() == 0:
            self.assertEqual(self.everything(box, value), {})
            self.assertTrue(self.everything(box, self.placeholder(box, agent.variable)), "the search works")
        self.over(box, agent, p, f"gate of {name} {box}")
        self.assertIn(self.http_log(box, secret=agent.variable)["status"], (101, 200))  # codex uses a WebSocket
        for r in self.requests(agent.host):
            if not r["target"].startswith(agent.model):
                self.assertEqual(hits(json.dumps(r).encode(), value), [], "the key is for the model only")

    def no_core_dump(self, box):
        """A crashing program leaves no file with its memory."""
        r = run(box, "sh", "-c", "ulimit -c unlimited; cd /workspace; sleep 999 & kill -ABRT $!; wait $!; echo $?; ls -A | grep -i core")
        self.assertEqual(r.out, "134\n", r)

    def snapshot(self, box):
        """Saves the running VM: everything() searches the files of the snapshot."""
        name = self.ended(hutch("snapshot", "create", box, env=self.config, timeout=SECONDS), 0).stdout.decode().strip()
        self.addCleanup(hutch, "snapshot", "rm", name)

    @as_root
    def test_control(self):
        """With `-e` the key is found."""
        for name, agent in AGENTS.items():
            with self.subTest(agent=name):
                value = self.key(agent.variable)
                box = self.tapped(domains=[agent.host], opts=(*MEMORY, "-e", f"{agent.variable}={value}", "-e", f"NODE_EXTRA_CA_CERTS={AUTHORITY}"),
                                  more=LIMITS)
                p = self.work(box, agent, f"gate of the control {name}")
                found = self.everything(box, value)
                self.assertTrue([place for place in found if place.endswith("memory")], found)
                self.over(box, agent, p, f"gate of the control {name}")


for _name in AGENTS:
    setattr(Programs, f"test_{_name}", lambda self, n=_name: self.check(n))
