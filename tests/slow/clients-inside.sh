#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# clients-inside.sh BUILD DIRECTORY [TEST]: runs tests/egress/test_services.py, real clients with
# secrets against real servers that demand them, as root in the tests' own internet. DIRECTORY keeps
# the image and the servers, made if missing, which takes minutes and the network. Needs
# docker-registry, node 20 and Go. HUTCH_TEST_LEVEL=microvm uses VMs.
set -eu
build=$(realpath "$1")
tests=$(dirname "$(dirname "$(realpath "$0")")")
# Another recipe is another directory.
keep=$(realpath -m "$2")/$(cat "$0" "$tests/egress/make-image.sh" | sha256sum | cut -c1-12)
mkdir -p "$keep"
bash "$tests/egress/make-image.sh" "$keep/base.tar" skopeo python3-setuptools python3-wheel openjdk-17-jre-headless ant
if [ ! -s "$keep/image.tar" ]; then
	rm -rf "$keep/root"
	mkdir -p "$keep/root/opt"
	/usr/bin/python3 -m pip install -q --target "$keep/root/opt/aws" awscli
	cp "$keep/base.tar" "$keep/image.part"
	tar -rf "$keep/image.part" --owner=0 --group=0 --sort=name -C "$keep/root" opt/aws
	cp "$keep/base.tar.ca.pem" "$keep/image.tar.ca.pem"
	cp "$keep/base.tar.ca.key" "$keep/image.tar.ca.key"
	mv "$keep/image.part" "$keep/image.tar"
fi
if [ ! -e "$keep/servers" ]; then
	rm -rf "$keep/servers.part"
	mkdir -p "$keep/servers.part/verdaccio"
	cd "$keep/servers.part"
	# The newest node-fetch 2 does not run verdaccio.
	echo '{"dependencies": {"verdaccio": "6.2.0"}, "overrides": {"node-fetch": "2.7.0"}}' >verdaccio/package.json
	npm install --prefix verdaccio --no-audit --no-fund --loglevel=error
	/usr/bin/python3 -m pip install -q --target pypiserver 'pypiserver[passlib]==2.3.2' 'bcrypt<4.1'
	GOBIN=$PWD/bin go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
	mv "$keep/servers.part" "$keep/servers"
fi
chmod -R a+rX "$keep/servers"
export HUTCH="$build/src/cli/hutch" HUTCHD="$build/src/daemon/hutchd" HUTCH_KEEPER="$build/src/warden/hutch-keeper"
export HUTCH_GUEST="$build/src/guest/hutch-guest" HUTCH_TAP="$build/src/tap/hutch-tap" HUTCH_RAM_SO="$build/src/ram/hutch-ram.so"
export HUTCH_EGRESS_IMAGE="$keep/image.tar" HUTCH_WORLD_SERVICES="$keep/servers" PYTHONDONTWRITEBYTECODE=1
cd "$build/tests/egress"
exec /usr/bin/python3 "$tests/egress/world.py" /usr/bin/python3 "$tests/integration/run_as.py" root "$tests/egress" "test_services${3:+.$3}"
