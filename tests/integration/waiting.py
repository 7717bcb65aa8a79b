# SPDX-License-Identifier: Apache-2.0
"""
How tests wait: for an event, never for time to pass. No other test file sleeps.

The deadlines are far above the expected time, also on a slow and busy host: a test that reaches one
has failed, and reports what it saw last. A test that shows that something does NOT happen waits for
a later event (the answer to a later request, the record of the next command). quiet_for() is for
cases without such an event.
"""

import contextlib
import os
import select
import time

LONG = 300
# Seconds between two checks: short at first, because most waits take milliseconds.
FIRST, LAST = 0.002, 0.1


def eventually(test, what, timeout=LONG, also=None, pause_max=LAST):
    """
    Waits until `test` returns a true value, and returns it. After `timeout` seconds fails with
    `what` and the last value of `test` or `also`. A small `pause_max` catches short-lived states.
    """
    end, pause = time.monotonic() + timeout, min(FIRST, pause_max)
    while not (value := test()):
        if time.monotonic() > end:
            seen = also() if also else value
            raise AssertionError(f"{what}: not within {timeout} s; seen last: {seen!r}")
        time.sleep(pause)
        pause = min(pause * 1.5, pause_max)
    return value


def equals(look, wanted, what, timeout=LONG):
    """Waits until `look` returns `wanted`; on failure reports the last value."""
    seen = []

    def test():
        seen[:] = [look()]
        return seen[0] == wanted

    eventually(test, f"{what}: wanted {wanted!r}", timeout, also=lambda: seen[0])


def without_error(call, errors, what, timeout=LONG):
    """Calls until none of `errors` is raised, and returns the result: for servers that are
    starting."""
    last = []

    def test():
        try:
            return [call()]
        except errors as e:
            last[:] = [e]
            return None

    return eventually(test, what, timeout, also=lambda: last)[0]


def ended(pid, what=None, timeout=LONG):
    """Waits until a process, which need not be a child, has ended."""
    with contextlib.suppress(ProcessLookupError):
        fd = os.pidfd_open(pid)
        try:
            if not select.select([fd], [], [], timeout)[0]:
                raise AssertionError(f"{what or f'process {pid}'} did not end within {timeout} s")
        finally:
            os.close(fd)


def readable(f, what, timeout=LONG):
    """Waits until there is something to read, or the other end is closed."""
    if not select.select([f], [], [], timeout)[0]:
        raise AssertionError(f"{what}: nothing came within {timeout} s")


def quiet_for(seconds, test, what):
    """`test` stays false for this long; for cases without an event that shows it. A busy host
    can hide a failure, never cause one."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := test():
            raise AssertionError(f"{what}: {value!r}")
        time.sleep(LAST)


def steady(look, what, seconds=1, timeout=LONG):
    """Waits until `look` has returned the same value for this long, and returns it: for buffers
    that fill up to their limit. A busy host can hide a failure, never cause one."""
    since, value = time.monotonic(), look()

    def test():
        nonlocal since, value
        if (now := look()) != value:
            since, value = time.monotonic(), now
        return time.monotonic() - since >= seconds

    eventually(test, f"{what}: a value that stays", timeout, also=lambda: value)
    return value


def until_clock(when):
    """Waits for a moment of the monotonic clock: for tests of time itself (deadlines, ttl,
    clocks)."""
    while (left := when - time.monotonic()) > 0:
        time.sleep(left)
