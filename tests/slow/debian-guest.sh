#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# debian-guest.sh BUILD [TEST...]: tests Hutch in Debian 12 with systemd, only control groups v2,
# and AppArmor, which few build hosts have. Runs debian/test_debian.py in an emulated VM (QEMU, no
# KVM) and prints its results as TAP. The emulated CPU has SVM, so that VMs in the guest use KVM. The disk is made once and kept in HUTCH_GUEST_CACHE
# (~/.cache/hutch-guest) under the hash of its inputs; that takes some minutes, the network, and
# root. The guest has no network device. Needs qemu-system-x86_64, mmdebstrap, e2fsprogs, cpio.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$here/../..
build=$(realpath "${1:?usage: debian-guest.sh BUILD [TEST...]}")
shift
seconds=${HUTCH_GUEST_SECONDS:-900}
cache=${HUTCH_GUEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hutch-guest}
packages=apparmor,busybox-static,crun,dbus,erofs-utils,kmod,libpsl5,libssl3,libyaml-0-2,linux-image-cloud-amd64,passwd,python3,qemu-system-x86,systemd,systemd-sysv,uidmap,zlib1g
modules='virtio_pci virtio_blk virtio_console ext4 overlay'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
began=$SECONDS

# ---- the disk: Debian, and a service that runs the second disk's script ----

# Runs in the new system as root. There is no device manager: every unit that waits for a device
# would wait for ever.
customize()
{
	cat <<'HOOK'
set -e
rm -f "$1"/etc/apparmor.d/lsb_release "$1"/etc/apparmor.d/nvidia_modprobe
rm -rf "$1"/var/cache/* "$1"/var/lib/apt/lists/* "$1"/usr/share/zoneinfo
for unit in getty@tty1.service serial-getty@ttyS0.service getty.target apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer \
	e2scrub_all.timer e2scrub_reap.service fstrim.timer systemd-hwdb-update.service systemd-journal-catalog-update.service \
	systemd-update-utmp.service systemd-update-utmp-runlevel.service systemd-logind.service systemd-pstore.service \
	systemd-random-seed.service ldconfig.service systemd-udevd.service systemd-udevd-control.socket systemd-udevd-kernel.socket \
	systemd-udev-trigger.service systemd-tmpfiles-clean.timer; do
	ln -sf /dev/null "$1/etc/systemd/system/$unit"
done
echo guest >"$1/etc/hostname"
echo 0123456789abcdef0123456789abcdef >"$1/etc/machine-id"
mkdir -p "$1/payload" "$1/etc/systemd/system/multi-user.target.wants"
cat >"$1/etc/systemd/system/payload.service" <<'UNIT'
[Unit]
Description=What is on the second disk
After=multi-user.target dbus.service apparmor.service
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=exec
ExecStart=/bin/sh -c 'tar -xf /dev/vdb -C /payload && exec sh /payload/run >/dev/vport0p1 2>&1 </dev/null'
UNIT
ln -s ../payload.service "$1/etc/systemd/system/multi-user.target.wants/payload.service"
HOOK
}

# Lists modules for insmod in the order of their dependencies. $1: the root.
put_modules()
{
	local dir name path
	dir=$(echo "$1"/lib/modules/*)
	for name in $modules; do
		# "kernel/a.ko: kernel/b.ko kernel/c.ko", where c.ko comes first. Built-in ones have no line.
		sed -n "s|^\(.*/$name\.ko\): *\(.*\)|\1 \2|p" "$dir/modules.dep" | tr ' ' '\n' | tac
	done | awk 'NF && !seen[$0]++' | while read -r path; do
		cp "$dir/$path" "$work/initrd/modules/"
		echo "/modules/${path##*/}" >>"$work/initrd/order"
	done
}

make_initrd()
{
	mkdir -p "$work"/initrd/{bin,dev,modules,root}
	cp "$1/bin/busybox" "$work/initrd/bin/"
	put_modules "$1"
	cat >"$work/initrd/init" <<'INIT'
#!/bin/busybox sh
while read -r path; do busybox insmod "$path"; done </order
busybox mount -t devtmpfs dev /dev
busybox mount -t ext4 -o noatime /dev/vda /root || exec busybox sh
busybox mount --move /dev /root/dev
exec busybox switch_root /root /sbin/init
INIT
	chmod 755 "$work/initrd/init"
	(cd "$work/initrd" && find . | cpio --quiet -o -H newc) >"$2"
}

make_disk()
{
	local root=$work/root
	mmdebstrap --quiet --variant=minbase --include="$packages" --skip=output/dev --dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
		--customize-hook="$(customize)" --format=directory bookworm "$root" >&2
	mkdir -p "$1.part"
	cp "$root"/boot/vmlinuz-* "$1.part/vmlinuz"
	cp "$root/bin/busybox" "$1.part/"
	make_initrd "$root" "$1.part/initrd"
	truncate -s 2G "$1.part/disk"
	mke2fs -q -t ext4 -O ^has_journal -d "$root" "$1.part/disk"
	mv "$1.part" "$1"
	rm -rf "$root" "$work/initrd"
}

# ---- the payload: the programs, files of packages, the image of the sandboxes, the tests ----
make_payload()
{
	local to=$work/payload name
	mkdir -p "$to/programs" "$to/tests" "$work/image"/{bin,etc,dev,proc,sys,run,tmp,home/user,workspace}
	for name in src/cli/hutch src/daemon/hutchd src/warden/hutch-keeper src/tap/hutch-tap src/guest/hutch-guest src/preparer/hutch-preparer src/ram/hutch-ram.so; do
		cp "$build/$name" "$to/programs/"
	done
	strip "$to"/programs/*
	cp -r "$top/dist" "$to/"
	cp "$build/tests/slow/module" "$to/"
	cp "$here/debian/test_debian.py" "$top"/tests/integration/{run,not_in_machines,waiting}.py "$to/tests/"
	# A minimal root tree: the tests are about the host around it.
	cp "$build/tests/integration/bomb" "$build/tests/slow/module" "$disk/busybox" "$work/image/bin/"
	for name in sh cat echo head id nslookup sleep stty timeout true; do ln -s busybox "$work/image/bin/$name"; done
	printf 'root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n' >"$work/image/etc/passwd"
	printf 'root:x:0:\nuser:x:1000:\n' >"$work/image/etc/group"
	chmod 1777 "$work/image/tmp" "$work/image/workspace"
	tar -C "$work/image" --owner=0 --group=0 -cf "$to/image.tar" .
	# The kernel of VMs, which takes minutes to unpack in the guest.
	mkdir -m700 "$work/state"
	HUTCH_STATE_DIR=$work/state HUTCH_AUDIT=off "$build/src/cli/hutch" image kernel ${HUTCH_TEST_KERNEL_DIR:+--from "$HUTCH_TEST_KERNEL_DIR"} >&2
	cp -r "$work/state/machine" "$to/"
	printf '#!/bin/sh\nexport PYTHONDONTWRITEBYTECODE=1\nexport HUTCH=/usr/bin/hutch\nexec /usr/bin/python3 /payload/tests/run.py /payload/tests %s\n' "$*" >"$to/run"
	tar -C "$to" --owner=0 --group=0 --mode=u=rwX,go=rX -cf "$work/payload.tar" .
}

boot()
{
	# norandmaps: programs start four times as fast. q35 has clocks that the kernel can calibrate
	# others with. One CPU, as in test_nested_kvm.py: with two, VMs on KVM in the guest do not boot.
	# Hashing is twice as fast without emulated vectors.
	local append='console=ttyS0 loglevel=4 rw panic=-1 apparmor=1 security=apparmor systemd.unified_cgroup_hierarchy=1'
	# A calibration on a busy host would be wrong, and the timers of VMs in the guest depend on it.
	append+=" tsc_early_khz=$(awk '/^cpu MHz/ { print int($4 * 1000); exit }' /proc/cpuinfo)"
	append+=' norandmaps mitigations=off no_timer_check tsc=reliable cryptomgr.notests=1 systemd.show_status=error'
	timeout "$seconds" qemu-system-x86_64 -M q35 -accel tcg,tb-size=256 -smp 1 -m 1500M -cpu max,-ssse3,-sse4.1,-sse4.2,-avx,-avx2 \
		-nodefaults -no-user-config -display none -no-reboot -kernel "$1/vmlinuz" -initrd "$1/initrd" -append "$append" \
		-serial "file:$work/console" -chardev file,id=tap,path=/dev/stdout -device virtio-serial-pci -device virtserialport,chardev=tap,name=tap \
		-drive "file=$1/disk,if=none,id=d0,format=raw,snapshot=on,cache=unsafe" -device virtio-blk-pci,drive=d0 \
		-drive "file=$work/payload.tar,if=none,id=d1,format=raw,readonly=on" -device virtio-blk-pci,drive=d1 </dev/null
}

mkdir -p "$cache"
disk=$cache/$({ echo "$packages $modules"; customize; declare -f make_initrd put_modules make_disk; } | sha256sum | cut -c 1-16)
[ -d "$disk" ] || make_disk "$disk"
made=$SECONDS
make_payload "$@"
boot "$disk" | tee "$work/tap" || echo "Bail out! QEMU: status $?"
echo "# disk $((made - began)) s, guest $((SECONDS - made)) s"
if ! grep -q '^1\.\.[1-9]' "$work/tap" || grep -q '^not ok\|^Bail out' "$work/tap"; then
	tail -n 40 "$work/console" | sed 's/^/# console: /'
	exit 1
fi
