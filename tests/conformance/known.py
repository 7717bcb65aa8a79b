# SPDX-License-Identifier: Apache-2.0
"""Features known to be missing in old SDKs and in Hutch. A run with --known fails if the results
differ from this."""

import os

# With HUTCH_TEST_LEVEL=microvm sandboxes are VMs, which have snapshots.
MACHINES = os.environ.get("HUTCH_TEST_LEVEL") == "microvm"
# Sections that must pass with Hutch.
SECTIONS = ("control", "commands", "pty", "files", "watch", "urls", "lifecycle", "network", "template", "load") + (("snapshot",) if MACHINES else ())
# Sections that take seconds.
QUICK = ("control", "commands", "pty", "files", "watch", "urls", "network")
# Features that Hutch lacks, and why.
MISSING = {
    **({} if MACHINES else {"snapshot": "only sandboxes of level microvm have snapshots and forks"}),
    "interpreter": "the code interpreter's image is not made yet",
    "desktop": "the desktop's image is not made yet",
    "volume": "there are no volumes",
    "secret": "there are no secrets",
}
ALL = (*SECTIONS, *MISSING)
# Templates are built from imported images; there is no registry.
BUILD_IMAGE = "base"
# Tests of functions that a version of the SDK lacks: the client skips them, as "section: test".
NOT_IN_SDK = {
    "2.30.5": {"files: metadata round trip", "watch: watchDir: includeEntry"},
    "2.46.1": set(),
    "2.50.0": set(),
}


# On a host with cgroup v1 an ordinary user has no freezer, and requests that need one are refused.
NEEDS_FREEZER = {
    "control: lifecycle options are reported",
    "lifecycle: pause and resume keep files and processes",
    "lifecycle: a paused sandbox does nothing",
    "lifecycle: kill works on a paused sandbox",
    "lifecycle: onTimeout: pause",
    "lifecycle: autoResume: the first request wakes a paused sandbox",
    "lifecycle: a pause stops the clock of the deadline",
}


def has_freezer(who):
    return who == "root" or os.path.exists("/sys/fs/cgroup/cgroup.controllers")


def judge_one(result, absent, refused):
    """Returns the outcome of a result under these expectations, and why."""
    name = f"{result.section}: {result.name}"
    if name in absent:
        return ("passed", "this SDK does not have it") if result.outcome == "skipped" else ("failed", "this SDK should not have it")
    if name in refused:
        said = result.outcome == "failed" and any("there is no freezer" in line for line in result.details)
        return ("passed", "refused: there is no freezer") if said else ("failed", "there is no freezer, and it was not refused for that")
    return ("failed", f"skipped: {result.skip}") if result.outcome == "skipped" else (result.outcome, None)


def judge(version, who, results):
    """Resolves skips: a feature known to be missing passes if it is missing, and fails if it is
    not."""
    for result in results:
        result.outcome, why = judge_one(result, NOT_IN_SDK.get(version, set()), set() if has_freezer(who) else NEEDS_FREEZER)
        if why and result.outcome == "passed":
            result.name, result.details = f"{result.name} ({why})", []
        elif why:
            result.details.append(why)
    return results
