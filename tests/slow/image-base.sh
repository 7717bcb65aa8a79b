#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the image "base" twice and compares the digests: takes two or three minutes and the
# network. bash tests/slow/image-base.sh [HUTCH], as root or as a user with subordinate ids.
set -euo pipefail
hutch=${1:-build/src/cli/hutch}
state=$(mktemp -d)
export HUTCH_STATE_DIR=$state
cleanup() { "$hutch" image rm base >/dev/null 2>&1 || true; rm -rf "$state"; }
trap cleanup EXIT

build() { "$hutch" image build --force --json base 2>/dev/null | /usr/bin/python3 -c 'import json,sys; print(json.load(sys.stdin)["sha256"])'; }

start=$SECONDS
first=$(build)
echo "first build:  $first, $((SECONDS - start)) s"
"$hutch" image ls
for file in usr/bin/python3 usr/bin/git usr/bin/curl workspace; do
	root=$("$hutch" image inspect --json base | /usr/bin/python3 -c 'import json,sys; print(json.load(sys.stdin)["root"])')
	[ "$(id -u)" != 0 ] || [ -e "$root/$file" ] || { echo "no /$file in the image"; exit 1; }
done
start=$SECONDS
second=$(build)
echo "second build: $second, $((SECONDS - start)) s"
[ "$first" = "$second" ] || { echo "the same input gave two digests"; exit 1; }
echo "1 passed"
