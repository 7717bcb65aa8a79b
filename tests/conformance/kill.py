#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
kill.py [--as root|user] [--short]: kills hutchd (SIGKILL) every three seconds and restarts it while
clients work (kill.mjs, with the SDK from npm). No sandbox is lost, no command's output has a gap or
a repeat, and clients that retry finish. Then measures how long a new hutchd takes to find the
existing sandboxes: 300 of them, or 30 with --short; that must be a small part of the time it took
to make them. Prints TAP.
"""

import concurrent.futures
import json
import subprocess
import sys
import time

import report
import sdk

INTERVAL = 3
CLIENTS = 5
ADOPTION_BAR = 0.5  # fraction of the time it takes to make them
PATIENCE = 600


def output(lines):
    return "".join(f"line {i}\n" for i in range(1, lines + 1))


def kill_while(client, running, interval):
    """Kills hutchd until the client has ended. Returns the number of kills."""
    kills = 0
    while True:
        try:
            client.wait(interval)
            return kills
        except subprocess.TimeoutExpired:
            running.kill()
            running.start()
            kills += 1
            if kills * interval > PATIENCE:
                client.kill()


def check_pieces(pieces, expected):
    """Returns the errors in the pieces of an output, one piece for each stream: they must follow
    each other and not overlap."""
    at = 0
    for number, piece in enumerate(pieces):
        text = piece["text"]
        found = expected.find(text, at) if text else at
        if found < 0:
            where = expected.find(text)
            return [f"piece {number} repeats what came before byte {at}: it is at {where}" if where >= 0 else
                    f"piece {number}, {len(text)} bytes after byte {at}, has a gap or a repeat inside"]
        at = found + len(text)
    # A stream that started after the last byte reported only the end: the rest was written while no
    # server ran and no client followed.
    if pieces and pieces[-1]["ended"] and pieces[-1]["text"] and at != len(expected):
        return [f"the last stream ended well at byte {at} of {len(expected)}"]
    return []


def recorded(running, sandbox, command):
    """Returns the whole recorded output of a command."""
    listed = json.loads(running.hutch("ps", "--json", "-a", "-e", sandbox))
    handles = [row["handle"] for row in listed if command in json.dumps(row)]
    if len(handles) != 1:
        raise RuntimeError(f"{sandbox} has {len(handles)} such commands: {listed}")
    return running.hutch("logs", "--stdout", handles[0])


def load(tap, running, lines):
    expected = output(lines)
    with sdk.scratch(sdk.installed(sdk.latest())) as directory:
        env = sdk.environment(running, KILL_CLIENTS=CLIENTS, KILL_LINES=lines)
        with subprocess.Popen(["node", "kill.mjs"], cwd=directory, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              text=True) as client:
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                printed = pool.submit(client.stdout.read)
                kills = kill_while(client, running, INTERVAL)
                reports = [json.loads(line) for line in printed.result().splitlines()]
    tap.check(client.returncode == 0 and len(reports) == CLIENTS, "clients that try again finish",
              [f"exit code {client.returncode}, {len(reports)} of {CLIENTS} finished"])
    retries, rounds = sum(r["retries"] for r in reports), sum(r["rounds"] for r in reports)
    tap.comment(f"{kills} kills, {retries} calls that were tried again, {rounds} rounds of work")
    tap.check(kills >= 3 and retries > 0, "hutchd was killed under them", [f"{kills} kills, {retries} retries"])
    lost = {r["id"] for r in reports} - set(running.sandboxes())
    tap.check(not lost, "no sandbox is lost", sorted(lost))
    wrong = [f"{r['id']}: {what}" for r in reports for what in check_pieces(r["pieces"], expected)]
    tap.check(not wrong, "no stream has a gap inside or a repeat", wrong)
    wrong = [r["id"] for r in reports if recorded(running, r["id"], "echo line") != expected]
    tap.check(not wrong, "the record of every command has all of its output, once", wrong)


def works(running, sandbox):
    """Checks that PID 1 of the sandbox answers: asks it for its commands."""
    return running.call(sandbox, "/process.Process/List", {})[0] == 200


def adopt(tap, running, count):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        start = time.monotonic()
        made = list(pool.map(lambda _: running.make(timeout=3600), range(count)))
        making = time.monotonic() - start
        wanted = {sandbox["sandboxID"] for sandbox in made}
        running.kill()
        start = time.monotonic()
        running.start()
        found = set(running.sandboxes())
        took = time.monotonic() - start
        tap.comment(f"{count} sandboxes, made in {making:.2f} s, are known again {took:.2f} s after a start, with {running.status('VmHWM')} KiB of memory")
        tap.check(wanted <= found, f"{count} sandboxes are known again after a restart", sorted(wanted - found))
        tap.check(took < making * ADOPTION_BAR, f"that takes less than {ADOPTION_BAR} of making them", [f"{took:.2f} s, {making:.2f} s"])
        silent = [s["sandboxID"] for s, ok in zip(made, pool.map(lambda s: works(running, s), made)) if not ok]
        tap.check(not silent, "each of them answers", silent)


def clean(running):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        statuses = set(pool.map(lambda s: running.request("DELETE", f"/sandboxes/{s}")[0], running.sandboxes()))
    if statuses - {204}:
        raise RuntimeError(f"DELETE /sandboxes: {statuses}")


def both(is_short, tap, running):
    load(tap, running, 600 if is_short else 3000)
    clean(running)
    adopt(tap, running, 30 if is_short else 300)
    clean(running)


def main(args):
    parser = report.options(__doc__)
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args(args)
    return report.with_server(options, lambda tap, running: both(options.short, tap, running))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
