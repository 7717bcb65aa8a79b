#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `machine.sh` BUILD [root|user] [TEST...]: runs the sandbox suites (integration, attack, egress,
# E2B) with every sandbox in a VM, except the tests that tests/integration/not_in_machines.py names.
# Emulated, it takes hours. HUTCH_TEST_KERNEL_DIR has the package of a kernel; without it, the
# package is downloaded.
set -eu
build=$(realpath "$1")
who=${2:-root}
shift $(($# < 2 ? $# : 2))
tests=$(dirname "$(dirname "$(realpath "$0")")")
export HUTCH_TEST_LEVEL=microvm
export HUTCH="$build/src/cli/hutch" HUTCHD="$build/src/daemon/hutchd" HUTCH_KEEPER="$build/src/warden/hutch-keeper"
export HUTCH_GUEST="$build/src/guest/hutch-guest" HUTCH_RAM_SO="$build/src/ram/hutch-ram.so" HUTCH_TAP="$build/src/tap/hutch-tap"
export HUTCH_TOKEN="$build/src/token/hutch-token"
export BOMB="$build/tests/integration/bomb" PROBE="$build/tests/attack/attack-probe" RAIDER="$build/tests/attack/attack-raider"
export CELL="$build/tests/attack/attack-cell" JAIL="$build/tests/attack/attack-jail" WILD="$build/tests/attack/attack-wild"
export DIAL="$build/tests/egress/dial" DIAL_MUSL="$build/tests/egress/dial-musl"
cd "$build/tests/integration"
r=0
/usr/bin/python3 "$tests/integration/run_as.py" "$who" "${@:-test_sandbox}" || r=1
if [ $# -eq 0 ]; then
	/usr/bin/python3 "$tests/integration/run_as.py" "$who" "$tests/attack" test_ -test_egress || r=1
	cd "$build/tests/egress"
	/usr/bin/python3 "$tests/egress/world.py" /usr/bin/python3 "$tests/integration/run_as.py" "$who" "$tests/egress" "$tests/attack" test_egress test_clients test_commands test_wire test_reasons test_private test_proxy test_secret test_llm \
		-test_from_vm -test_llm_agents || r=1
	/usr/bin/python3 "$tests/conformance/run.py" --as "$who" || r=1
fi
exit $r
