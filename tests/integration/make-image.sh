#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make-image.sh FILE [PACKAGE...]: the root tree of the sandboxes of these tests, as a tarball: Debian with Python, vim and top, and these
# packages. It takes half a minute and the network, so it is made once for all runs; a FILE that is there is left as it is.
set -euo pipefail
file=${1:?usage: make-image.sh FILE [PACKAGE...]}
shift
[ ! -s "$file" ] || exit 0
# Of suites that start at once, one makes it.
exec 9>"$file.lock"
flock 9
[ ! -s "$file" ] || exit 0

# What `hutch image build` gives every image: a user with number 1000 and a workspace.
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
