#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# systemd-box.sh DIR IMAGE: become a systemd that is PID 1 of its own namespaces, in a top-level
# control group with the name of DIR. Its root is the host's below an overlay in memory, so no change
# persists. DIR is mounted at /mnt, IMAGE at /image.tar.
set -e
if [ "${3:-}" != inside ]; then
	top=/sys/fs/cgroup
	[ ! -d $top/unified ] || top=$top/unified
	mkdir "$top/${1##*/}"
	echo $$ >"$top/${1##*/}/cgroup.procs"
	exec unshare --mount --pid --fork --cgroup --ipc --uts --net --kill-child bash "$0" "$1" "$2" inside
fi
dir=$1 image=$2 root=$1/root
mount --make-rprivate /
mkdir "$dir/layer" "$root"
mount -t tmpfs -o size=1g tmpfs "$dir/layer"
mkdir "$dir/layer/up" "$dir/layer/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$dir/layer/up,workdir=$dir/layer/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
for place in run:755 tmp:1777 dev:755 var/lib:755; do
	mount -t tmpfs -o "mode=${place#*:},size=800m" tmpfs "$root/${place%:*}"
done
for node in null zero full random urandom tty; do
	touch "$root/dev/$node"
	mount --bind "/dev/$node" "$root/dev/$node"
done
mkdir "$root/dev/pts" "$root/dev/shm" "$root/gone"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount --bind "$dir/give" "$root/mnt"
touch "$root/image.tar"
mount --bind "$image" "$root/image.tar"
rm -rf "$root"/etc/systemd/system/*
echo 0123456789abcdef0123456789abcdef >"$root/etc/machine-id"
printf '[Unit]\nDefaultDependencies=no\n' >"$root/etc/systemd/system/box.target"
cp "$dir"/give/systemd/* "$root/etc/systemd/system/"
# Not chroot(2): the kernel denies user namespaces to a process in a chroot.
cd "$root"
pivot_root . gone
umount -l /gone
exec env -i container=box PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit=box.target \
	--log-target=console --show-status=no
