#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# kernel.sh BUILD [DIRECTORY]: builds both kernels from scratch and measures how fast they boot.
# BUILD is the build directory; packages come from DIRECTORY if given, else from the network. The
# small kernel must have everything that a sandbox needs (`machine-init.c`) and be ready in at most
# half the time of Debian's own. Measured in turn, medians of ROUNDS (5). Needs QEMU, a compiler, 3
# GB in /var/tmp and 5 to 20 minutes; with KERNELS=DIR it uses and keeps existing kernels.
set -eu
build=$(realpath "$1")
from=${2:+--from $(realpath "$2")}
rounds=${ROUNDS:-5}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d /var/tmp/hutch-kernels-XXXXXX)
trap 'rm -rf "$work"' EXIT
hutch=$build/src/cli/hutch
parts=$build/tests/integration/machine-parts

state() { # KIND: where it is kept
	echo "${KERNELS:-$work}/$1"
}

as() { # KIND COMMAND...
	local kind=$1
	shift
	HUTCH_STATE_DIR=$(state "$kind") HUTCH_AUDIT_DIR=$work/audit "$@"
}

for kind in cloud small; do
	mkdir -p "$(state $kind)"
	start=$SECONDS
	# shellcheck disable=SC2046,SC2086 # words
	as $kind "$hutch" image kernel $from $([ $kind = small ] && echo --small)
	echo "$kind: made in $((SECONDS - start)) s"
	as $kind "$parts" kernel "$build/tests/integration/machine-init" > "$work/$kind"
done

mkdir -p "$work/tree/etc"
echo hello > "$work/tree/etc/hello"
mkfs.erofs --quiet "$work/root.erofs" "$work/tree"
cp --sparse=always "$(as cloud "$parts" blank 268435456)" "$work/disk"

for ((i = 0; i < rounds; i++)); do
	for kind in cloud small; do
		/usr/bin/python3 "$here/../integration/machine.py" "$(sed -n 2p "$work/$kind")" "$(sed -n 3p "$work/$kind")" \
			"$work/root.erofs" "$work/disk" >> "$work/$kind.times"
	done
done
for kind in cloud small; do
	sort -n "$work/$kind.times" | sed -n "$(((rounds + 1) / 2))p" > "$work/$kind.median"
	echo "$kind: ready in $(cat "$work/$kind.median") s, $(stat -c %s "$(sed -n 2p "$work/$kind")") bytes"
done
ratio=$(awk '{ getline small < ARGV[2]; printf "%.2f", $1 / small; exit }' "$work/cloud.median" "$work/small.median")
echo "small is ready $ratio times as fast"
awk -v r="$ratio" 'BEGIN { exit r < 2 }'
