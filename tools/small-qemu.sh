#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# small-qemu.sh [DIR]: builds a small QEMU from Debian's source package, in DIR (a temporary
# directory), and prints the command that installs it for Hutch. Hutch uses it instead of Debian's.
#
# It has one kind of VM (microvm), two devices (virtio-blk, virtio-serial), KVM and TCG, and loads 11
# shared libraries instead of 51: it starts several times faster, and there is less code to attack.
# Debian's security updates do not reach it: build it again after each update of Debian's QEMU.
# `hutch doctor` warns of versions with known vulnerabilities.
#
# Needs: apt-get install -y build-essential dpkg-dev meson ninja-build pkg-config python3-venv
#        libglib2.0-dev libpixman-1-dev libseccomp-dev libfdt-dev zlib1g-dev qemu-system-data seabios
set -euo pipefail
dir=$(realpath "${1:-$(mktemp -d)}")
mkdir -p "$dir/sources" "$dir/lists/partial"
cd "$dir"

# APT's own sources, as source packages; its settings and lists stay as they are.
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list; do
	[ -f "$file" ] || continue
	case $file in
	*.sources) sed 's/^Types:.*/Types: deb-src/' "$file" >"sources/$(basename "$file")" ;;
	*) sed -n 's/^deb\(-src\)\? /deb-src /p' "$file" | sort -u >"sources/$(basename "$file" .list).list" ;;
	esac
done
apt=(apt-get -qq -o Dir::Etc::sourcelist=/nonexistent -o Dir::Etc::sourceparts="$dir/sources" -o Dir::State::lists="$dir/lists" -o APT::Sandbox::User=root)
"${apt[@]}" update
"${apt[@]}" source qemu

cd qemu-*/
# I440FX is not used: without it, QEMU 7.2 does not link.
cat >configs/devices/x86_64-softmmu/hutch.mak <<-'END'
	CONFIG_MICROVM=y
	CONFIG_I440FX=y
	CONFIG_VIRTIO_BLK=y
	CONFIG_VIRTIO_SERIAL=y
END
./configure --target-list=x86_64-softmmu --without-default-features --without-default-devices --with-devices-x86_64=hutch \
	--enable-kvm --enable-tcg --enable-seccomp --enable-pie --prefix=/usr/local --firmwarepath=/usr/share/qemu:/usr/share/seabios \
	--with-pkgversion="small, $(dpkg-parsechangelog -SVersion)" >"$dir/configure.log"
ninja -C build qemu-system-x86_64
echo "install it beside hutch-keeper, in /usr/local/libexec/hutch or /usr/libexec/hutch:"
echo "install -m 755 $PWD/build/qemu-system-x86_64 /usr/local/libexec/hutch/"
