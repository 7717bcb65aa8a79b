#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# docker-inside.sh BUILD IMAGE [TEST]: runs tests/egress/test_docker.py, Docker and Podman in VMs, as
# root in the tests' own internet. IMAGE is a tarball, made if missing, which takes minutes and the
# network. HUTCH_TEST_KERNEL_DIR has the package of a kernel. Needs docker-registry.
set -eu
build=$(realpath "$1")
image=$(realpath "$2")
tests=$(dirname "$(dirname "$(realpath "$0")")")
bash "$tests/egress/make-image.sh" "$image" docker.io docker-compose podman crun uidmap slirp4netns fuse-overlayfs iptables \
	iproute2 nftables sudo busybox-static redis-server
export HUTCH="$build/src/cli/hutch" HUTCHD="$build/src/daemon/hutchd" HUTCH_KEEPER="$build/src/warden/hutch-keeper"
export HUTCH_GUEST="$build/src/guest/hutch-guest" HUTCH_RAM_SO="$build/src/ram/hutch-ram.so"
export HUTCH_TEST_LEVEL=microvm HUTCH_WORLD_REGISTRY=1 HUTCH_EGRESS_IMAGE="$image" PYTHONDONTWRITEBYTECODE=1
cd "$build/tests/egress"
exec /usr/bin/python3 "$tests/egress/world.py" /usr/bin/python3 "$tests/integration/run_as.py" root "$tests/egress" "test_docker${3:+.$3}"
