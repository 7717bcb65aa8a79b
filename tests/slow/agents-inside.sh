#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# agents-inside.sh BUILD IMAGE [TEST]: runs tests/egress/test_agents.py and test_llm_agents.py, the
# real agent programs from npm with secrets and through the LLM gateway, as root in the tests' own
# internet. IMAGE is a tarball, made if missing, which takes minutes, 3 GiB and the network.
# HUTCH_TEST_LEVEL=microvm uses VMs.
set -eu
build=$(realpath "$1")
image=$(realpath "$2")
tests=$(dirname "$(dirname "$(realpath "$0")")")
agents="@anthropic-ai/claude-code@2.1.325 @openai/codex@0.166.0 @google/gemini-cli@0.61.0 opencode-ai@1.18.33"
if [ ! -s "$image" ]; then
	where=$(mktemp -d "$(dirname "$image")/agents.XXXXXX")
	trap 'rm -rf "$where"' EXIT
	bash "$tests/egress/make-image.sh" "$image.base" ripgrep
	mkdir -p "$where/opt/agents"
	# Debian's node is too old for the Gemini CLI. The second binary of opencode is for CPUs without AVX2.
	# shellcheck disable=SC2086
	npm install --prefix "$where/opt/agents" --no-audit --no-fund --loglevel=error node@20 $agents
	rm -rf "$where"/opt/agents/node_modules/opencode-linux-x64-baseline* "$where"/opt/agents/node_modules/*/*-musl
	cp "$image.base" "$where/image.tar"
	tar -rf "$where/image.tar" --owner=0 --group=0 --sort=name -C "$where" opt/agents
	cp "$image.base.ca.pem" "$image.ca.pem"
	cp "$image.base.ca.key" "$image.ca.key"
	mv "$where/image.tar" "$image"
fi
export HUTCH="$build/src/cli/hutch" HUTCHD="$build/src/daemon/hutchd" HUTCH_KEEPER="$build/src/warden/hutch-keeper"
export HUTCH_GUEST="$build/src/guest/hutch-guest" HUTCH_TAP="$build/src/tap/hutch-tap" HUTCH_RAM_SO="$build/src/ram/hutch-ram.so"
export HUTCH_EGRESS_IMAGE="$image" PYTHONDONTWRITEBYTECODE=1
cd "$build/tests/egress"
/usr/bin/python3 "$tests/egress/world.py" /usr/bin/python3 "$tests/integration/run_as.py" root "$tests/egress" "test_agents${3:+.$3}" "test_llm_agents${3:+.$3}"
