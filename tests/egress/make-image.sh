#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make-image.sh FILE [PACKAGE...]: makes a tarball of the root tree for sandboxes in the test's
# internet: Debian with common network clients. It also writes FILE.ca.pem and FILE.ca.key, the
# authority that the tree trusts and that signs the test servers' certificates. This takes a minute
# and the network, so it is done once for all runs; an existing FILE is kept.
set -euo pipefail
file=${1:?usage: make-image.sh FILE [PACKAGE...]}
shift
[ ! -s "$file" ] || exit 0
# If several suites start at once, one of them makes the file.
exec 9>"$file.lock"
flock 9
[ ! -s "$file" ] || exit 0

openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj '/CN=the authority of the egress tests' \
	-keyout "$file.ca.key" -out "$file.ca.pem" -addext 'basicConstraints=critical,CA:TRUE' \
	-addext 'keyUsage=critical,keyCertSign,cRLSign' 2>/dev/null
chmod 644 "$file.ca.pem"

# Adds the entries that `hutch image build` adds to every image, and the authority. npm brings
# 25,000 files; most belong to compilers, checkers and their types, which no test runs.
hook='set -e
echo "user:x:1000:1000::/home/user:/bin/sh" >>"$1/etc/passwd"
echo "user:x:1000:" >>"$1/etc/group"
mkdir -p "$1/home/user" "$1/workspace"
chown 1000:1000 "$1/home/user" "$1/workspace"
cp "$0" "$1/usr/local/share/ca-certificates/egress-tests.crt"
chroot "$1" update-ca-certificates >/dev/null
cd "$1/usr/share/nodejs"
rm -rf @babel @types @webassemblyjs caniuse-lite core-js core-js-pure es-abstract eslint handlebars istanbul lodash lodash-es \
	regenerate-unicode-properties terser web-streams-polyfill webassemblyjs webpack
rm -rf "$1"/var/cache/* "$1"/var/lib/apt/lists/* "$1"/usr/share/locale/* "$1"/usr/share/zoneinfo/*'
packages=(apt ca-certificates curl git nodejs npm openssh-client postgresql-client procps python3 python3-grpcio python3-pip python3-requests wget)
set -f # they are dpkg's to match
skip=(/usr/share/{man,locale,doc}/* /usr/include/*)
# Java's package fails to install without a directory for links to its manual pages.
mmdebstrap --variant=essential --include="$(IFS=,; echo "${packages[*]}${*:+,}$*" | tr ' ' ',')" \
	--skip=output/dev --format=tar "${skip[@]/#/--dpkgopt=path-exclude=}" --dpkgopt=force-unsafe-io \
	--essential-hook="mkdir -p \"\$1/usr/share/man/man1\"" \
	--customize-hook="sh -c '${hook//\'/\'\\\'\'}' '$file.ca.pem' \"\$1\"" bookworm - >"$file.part"
chmod 644 "$file.part"
mv "$file.part" "$file"
