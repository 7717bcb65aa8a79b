# SPDX-License-Identifier: Apache-2.0
"""
The real agent programs from npm through the LLM gateway: the bill of a whole task equals what the
scripted models sent, and each program stops at once at a refusal and shows it.
tests/slow/agents-inside.sh makes the image.
"""

import json
import re
import time
from datetime import datetime

import models
from boxes import run
from sandbox import MACHINE, hutch
from test_agents import AGENTS, MEMORY, PATHS
from test_llm import HOSTS, LlmCase
from waiting import eventually

PROVIDERS = {"claude": "anthropic", "opencode": "anthropic", "codex": "openai", "gemini": "gemini"}
SECONDS = 2  # between a refusal and the end of the program
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Programs(LlmCase):
    def agent(self, name, **rule):
        """A sandbox for the program, with a rule on its provider."""
        agent, provider = AGENTS[name], PROVIDERS[name]
        value = self.key(agent.variable)
        text = f"llm:\n  - {json.dumps({'provider': provider, 'secret': agent.variable, **rule})}\n"
        box = self.tapped(domains=[HOSTS[provider]], more=text, opts=MEMORY)
        for file, contents in agent.files.items():
            r = run(box, "sh", "-c", f'mkdir -p "/home/user/$(dirname {file})" && cat >/home/user/{file}', data=contents)
            self.assertEqual(r.code, 0, r)
        return box, agent, value

    def start(self, box, agent):
        """Runs the program to its end; returns its screen and when it ended."""
        r = run(box, "sh", "-c", PATHS + agent.command + " 2>&1")
        return r.code, ANSI.sub("", r.out + r.err), time.time()

    def bill(self, name):
        box, agent, value = self.agent(name)
        code, screen, _ = self.start(box, agent)
        self.assertEqual(code, 0, screen)
        self.assertIn(models.DONE, screen)
        self.assertEqual(run(box, "cat", f"/workspace/{models.FILE}").out, models.CONTENT)
        calls = [r for r in self.requests(agent.host) if r["method"] == "POST" and r["target"].startswith(agent.model)]
        self.assertGreaterEqual(len(calls), 3)
        row = self.total(box, len(calls))
        self.assertEqual((row["calls"], row["denied"], row["calls_estimated"]), (len(calls), 0, 0))
        self.assertEqual((row["tokens_in"], row["tokens_out"]), (1000 * len(calls), 20 * len(calls)))
        for r in calls:
            self.assertIn(value, json.dumps(r["headers"]))

    def refusal(self, name, words, **rule):
        box, agent, _ = self.agent(name, **rule)
        _, screen, over = self.start(box, agent)
        self.assertIn(words, screen.replace("\n", " "))
        self.assertNotIn(models.DONE, screen)
        refused = eventually(lambda: self.refused_at(box), "the record of the refusal")
        self.assertLessEqual(len(refused), 3, "no retries")
        if MACHINE:  # emulated, a program needs longer to end
            return
        self.assertLess(over - refused[0], SECONDS, screen)

    def refused_at(self, box):
        """The times of refused calls."""
        r = self.ended(hutch("audit", "show", "--json", "-s", box), 0)
        rows = [json.loads(line) for line in r.stdout.splitlines()]
        return [datetime.fromisoformat(re.sub(r"(\.\d{6})\d*", r"\1", row["time"]).replace("Z", "+00:00")).timestamp()
                for row in rows if row["kind"] == "llm" and row["payload"]["verdict"] == "deny"]


for _name in AGENTS:
    setattr(Programs, f"test_{_name}_bill", lambda self, n=_name: self.bill(n))
    setattr(Programs, f"test_{_name}_model", lambda self, n=_name: self.refusal(n, "is not allowed: rule", models=["another-model"]))
    setattr(Programs, f"test_{_name}_budget", lambda self, n=_name: self.refusal(n, "the budget of rule", budget={"tokens": 1}))
