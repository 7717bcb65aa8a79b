#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# machine.sh BUILD [root|user] [TEST...]: the integration and attack suites of sandboxes with every sandbox a virtual machine, but for what
# tests/integration/not_in_machines.py names. Emulated, it takes an hour. HUTCH_TEST_KERNEL_DIR has the package of a kernel; without it, it is fetched.
set -eu
build=$(realpath "$1")
who=${2:-root}
shift $(($# < 2 ? $# : 2))
tests=$(dirname "$(dirname "$(realpath "$0")")")
export HUTCH_TEST_LEVEL=microvm
export HUTCH="$build/src/cli/hutch" HUTCHD="$build/src/daemon/hutchd" HUTCH_KEEPER="$build/src/keeper/hutch-keeper"
export HUTCH_GUEST="$build/src/guest/hutch-guest" HUTCH_HOLD="$build/src/machine/hutch-hold"
export BOMB="$build/tests/integration/bomb" PROBE="$build/tests/attack/attack-probe" RAIDER="$build/tests/attack/attack-raider"
export CELL="$build/tests/attack/attack-cell" JAIL="$build/tests/attack/attack-jail"
cd "$build/tests/integration"
r=0
python3 "$tests/integration/run_as.py" "$who" "${@:-test_sandbox}" || r=1
[ $# -gt 0 ] || python3 "$tests/integration/run_as.py" "$who" "$tests/attack" test_copy test_exhaust test_files test_inside test_keeper test_raider \
	test_records -test_api || r=1
exit $r
