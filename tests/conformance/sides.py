#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
sides.py [--as root|user]: the command line and the API see the same sandboxes, within their
permissions; also checks what docs/E2B.md says about both. Prints TAP.
"""

import json
import sys

import report
from waiting import equals, eventually

NAMES = ("ok.hutch.test", "no.hutch.test")


def key_gets(running, key, status):
    """Waits until hutchd has reloaded the keys."""
    equals(lambda: running.request("GET", "/sandboxes", headers={"X-API-Key": key})[0], status, "an answer to the key")


def same_sandboxes(tap, running):
    """Each side sees the sandboxes that the other makes."""
    made = running.make(metadata={"from": "api"})
    by_hand = running.hutch("create").strip()
    listed = {row["id"] for row in json.loads(running.hutch("ps", "--json"))}
    tap.check({made["sandboxID"], by_hand} <= listed, "hutch ps shows what the API made", [f"{listed}"])
    tap.check(running.hutch("exec", made["sandboxID"], "--", "echo", "hello") == "hello\n", "hutch exec works in it")
    receipt = json.loads(running.hutch("receipt", "--json", made["sandboxID"]))
    tap.check(bool(receipt), "hutch receipt tells what holds it")
    admin = running.make_key("boss", "admin")
    key_gets(running, admin, 200)
    tap.check({made["sandboxID"], by_hand} <= set(running.sandboxes(admin)), "an administrator's key shows what hutch create made")
    running.hutch("kill", by_hand)
    running.hutch("rm", "-f", by_hand, check=False)
    running.hutch("kill", made["sandboxID"])
    status = running.request("GET", f"/sandboxes/{made['sandboxID']}")[0]
    tap.check(status == 404, "what hutch kill ended is gone for the API", [f"{status}"])


def other_people(tap, running):
    """A key has access only to the sandboxes made with it."""
    made = running.make()
    other = running.make_key("other")
    key_gets(running, other, 200)
    path = f"/sandboxes/{made['sandboxID']}"
    asks = [("GET", path, None), ("DELETE", path, None), ("POST", f"{path}/timeout", {"timeout": 1}), ("POST", f"{path}/pause", {}),
            ("POST", f"{path}/connect", {"timeout": 1}), ("PUT", f"{path}/network", {})]
    answers = {(method, where): running.request(method, where, body, {"X-API-Key": other})[0] for method, where, body in asks}
    tap.check(set(answers.values()) == {404}, "another key does not find it", [f"{answers}"])
    tap.check(made["sandboxID"] not in running.sandboxes(other), "nor is it listed for it")
    tap.check(running.request("DELETE", path)[0] == 204, "and it is there")
    running.hutch("key", "revoke", "other")
    key_gets(running, other, 401)
    tap.check(True, "a key that was revoked is refused")


def resolves(running, sandbox, name):
    """Returns whether a sandbox may connect to a name: other names do not exist inside."""
    return running.hutch("exec", sandbox["sandboxID"], "--", "getent", "hosts", name, check=False) != ""


def reached(running, **settings):
    """Returns which of two names a sandbox with these settings may connect to. Its policy allows
    the first."""
    made = running.make(**settings)
    found = [name for name in NAMES if resolves(running, made, name)]
    running.request("DELETE", f"/sandboxes/{made['sandboxID']}")
    return found


def network(tap, running):
    """Settings of the SDK narrow the policy and never widen it. The policy is that of the agent
    with the template's name."""
    allowed, denied = NAMES
    everything = ["0.0.0.0/0"]
    cases = {
        "without settings there is what the policy allows": ({}, [allowed]),
        "allowInternetAccess: false takes all of it": ({"allow_internet_access": False}, []),
        "denyOut of everything takes all of it": ({"network": {"denyOut": everything}}, []),
        "allowOut leaves a name that the policy allows": ({"network": {"denyOut": everything, "allowOut": [allowed]}}, [allowed]),
        "allowOut does not widen the policy": ({"network": {"denyOut": everything, "allowOut": [denied]}}, []),
    }
    with running.policy(f"egress: {{domains: [{allowed}]}}"):
        for name, (settings, wanted) in cases.items():
            found = reached(running, **settings)
            tap.check(found == wanted, name, [f"{found} can be connected to"])
        made = running.make()
    for settings, wanted in (({"denyOut": everything}, False), ({}, True)):
        status = running.request("PUT", f"/sandboxes/{made['sandboxID']}/network", settings)[0]
        found = resolves(running, made, allowed)
        tap.check(status == 204 and found == wanted, f"updateNetwork of {settings} holds at once", [f"{status}, {found}"])
    running.request("DELETE", f"/sandboxes/{made['sandboxID']}")


def not_supported(tap, running):
    """Unsupported settings are rejected, not ignored."""
    settings = {"rules": {"a.test": [{"transform": {"headers": {"x": "y"}}}]}, "egressProxy": {"address": "a.test:1"},
                "maskRequestHost": "a.test", "httpsPorts": [443]}
    answers = {}
    for name, value in settings.items():
        answers[name] = running.request("POST", "/sandboxes", {"templateID": "base", "timeout": 15, "network": {name: value}})[0]
    tap.check(set(answers.values()) == {400}, "settings of the network that are not there are refused", [f"{answers}"])


def time_goes_on(tap, running):
    """A deadline is enforced without hutchd."""
    made = running.make(timeout=3)
    running.kill()
    eventually(lambda: made["sandboxID"] not in running.hutch("ps"), "the end of a sandbox by its deadline")
    tap.check(True, "a deadline ends a sandbox while hutchd is down")
    running.start()
    tap.check(running.request("GET", f"/sandboxes/{made['sandboxID']}")[0] == 404, "and hutchd knows")


def sides(tap, running):
    for part in (same_sandboxes, other_people, network, not_supported, time_goes_on):
        part(tap, running)
    report.nothing_runs(tap, running, "either side")


def main(args):
    options = report.options(__doc__).parse_args(args)
    return report.with_server(options, sides)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
