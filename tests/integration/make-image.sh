#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make-image.sh FILE [PACKAGE...]: make the root directory of the test sandboxes as a tarball: Debian
# with Python, vim, top and the given packages. This takes half a minute and the network, so it
# happens once for all runs; an existing FILE is left as it is.
set -euo pipefail
file=${1:?usage: make-image.sh FILE [PACKAGE...]}
shift
[ ! -s "$file" ] || exit 0
# If several suites start at once, one of them makes it.
exec 9>"$file.lock"
flock 9
[ ! -s "$file" ] || exit 0

# `hutch image build` gives every image a user with uid 1000 and a workspace.
hook='set -e
echo "user:x:1000:1000::/home/user:/bin/sh" >>"$1/etc/passwd"
echo "user:x:1000:" >>"$1/etc/group"
echo "team:x:1007:user" >>"$1/etc/group"
mkdir -p "$1/home/user" "$1/workspace"
chown 1000:1000 "$1/home/user" "$1/workspace"
echo "the image" >"$1/etc/motd"
rm -rf "$1"/var/cache/* "$1"/var/lib/apt/lists/* "$1"/usr/share/locale/* "$1"/usr/share/zoneinfo/*'
mmdebstrap --variant=essential --include="python3,vim-tiny,procps $*" --skip=output/dev --format=tar \
	--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
	--dpkgopt='path-exclude=/usr/share/doc/*' --customize-hook="$hook" bookworm - >"$file.part"
chmod 644 "$file.part"
mv "$file.part" "$file"
