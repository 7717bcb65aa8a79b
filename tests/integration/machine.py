# SPDX-License-Identifier: Apache-2.0
"""Boots a kernel in QEMU without confinement; PID 1 reports what the kernel supports."""

import contextlib
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

SECONDS = 300


def clock_khz():
    mhz = re.search(r"cpu MHz\s*: ([0-9.]+)", Path("/proc/cpuinfo").read_text())
    return int(float(mhz.group(1)) * 1000) if mhz else 2000000


def command(kernel, initrd, disks, fd):
    line = ("reboot=t panic=-1 no_timer_check quiet loglevel=0 cryptomgr.notests=1 8250.nr_uarts=0 tsc=reliable "
            f"tsc_early_khz={clock_khz()}")
    words = ["qemu-system-x86_64", "-M", "microvm,acpi=on,pit=off,pic=off,rtc=on,isa-serial=off,x-option-roms=off",
             "-accel", "tcg,tb-size=64", "-cpu", "qemu64,+rdrand,+arat", "-m", "256M", "-nodefaults", "-no-user-config",
             "-display", "none", "-no-reboot", "-serial", "none", "-global", "virtio-mmio.force-legacy=false",
             "-kernel", kernel, "-initrd", initrd, "-append", line, "-chardev", f"socket,id=c0,fd={fd}",
             "-device", "virtio-serial-device,max_ports=2", "-device", "virtserialport,chardev=c0,name=hutch,nr=1"]
    for i, (path, read_only) in enumerate(disks):
        words += ["-blockdev", f"driver=raw,node-name=d{i},read-only={read_only},file.driver=file,file.filename={path},file.locking=off",
                  "-device", f"virtio-blk-device,drive=d{i}"]
    return words


def boot(kernel, initrd, disks):
    """The lines of PID 1 as a mapping, and the seconds until it was ready."""
    ours, theirs = socket.socketpair()
    start, ready, said = time.monotonic(), None, b""
    with ours, contextlib.ExitStack() as stack:
        qemu = stack.enter_context(subprocess.Popen(command(kernel, initrd, disks, theirs.fileno()), pass_fds=[theirs.fileno()],
                                                    stdin=subprocess.DEVNULL, stderr=subprocess.PIPE))
        stack.callback(qemu.kill)
        theirs.close()
        ours.settimeout(SECONDS)
        with contextlib.suppress(TimeoutError, ConnectionError):
            while b"\nend " not in said and (chunk := ours.recv(4096)):
                said += chunk
                if ready is None:
                    ready = time.monotonic() - start
        if not said:
            qemu.kill()
            raise AssertionError(f"the machine said nothing: {qemu.stderr.read().decode()}")
    return {line.split()[0]: int(line.split()[1]) for line in said.decode().splitlines()}, ready


if __name__ == "__main__":  # `machine.py KERNEL INITRD EROFS EXT4`: seconds until ready
    result, seconds = boot(*sys.argv[1:3], [(sys.argv[3], "on"), (sys.argv[4], "off")])
    print(f"{seconds:.2f}")
    bad = {name: number for name, number in result.items() if number != 0}
    if bad or "end" not in result:
        sys.exit(f"not there: {bad}")
