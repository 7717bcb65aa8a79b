#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes the root tree for the sandboxes of the E2B conformance tests, as a tar file: Debian with
# bash, git, python3 and a user "user" (1000) whose shell is bash, like E2B's images. An existing
# file is kept.
set -euo pipefail
file=${1:?usage: make-image.sh FILE}
[ ! -s "$file" ] || exit 0
# If several suites start at once, one of them makes the file.
exec 9>"$file.lock"
flock 9
[ ! -s "$file" ] || exit 0

hook='set -e
echo "user:x:1000:1000::/home/user:/bin/bash" >>"$1/etc/passwd"
echo "user:x:1000:" >>"$1/etc/group"
mkdir -p "$1/home/user" "$1/workspace"
chown 1000:1000 "$1/home/user" "$1/workspace"
rm -rf "$1"/var/cache/* "$1"/var/lib/apt/lists/* "$1"/usr/share/locale/* "$1"/usr/share/zoneinfo/*'
mmdebstrap --variant=essential --include=bash,coreutils,procps,git,python3,ca-certificates --skip=output/dev --format=tar \
	--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
	--dpkgopt='path-exclude=/usr/share/doc/*' --customize-hook="$hook" bookworm - >"$file.part"
chmod 644 "$file.part"
mv "$file.part" "$file"
