# SPDX-License-Identifier: Apache-2.0
"""
hutch-guest as /init of a VM, under QEMU without confinement. wire.py drives it over its port; QMP
stops, saves and continues it. HUTCH_VM_KERNEL names a kernel, HUTCH_VM_INITRD (optional) a
directory with further initrd files: modules.
"""

import json
import os
import secrets
import shutil
import socket
import stat
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import wire
from waiting import eventually

MEMORY = 256
BOOT = 180  # seconds, limit for any step: the VM is emulated, and the host may be busy
MACHINE = "microvm,acpi=on,pit=off,pic=off,rtc=on,isa-serial=off,x-option-roms=off"
APPEND = "reboot=t panic=-1 no_timer_check quiet loglevel=0 cryptomgr.notests=1 tsc_early_khz={} tsc=reliable 8250.nr_uarts=0"


def kernel_path():
    return os.environ.get("HUTCH_VM_KERNEL")


def tools_missing():
    return [p for p in ("qemu-system-x86_64", "mkfs.erofs", "mkfs.ext4") if not shutil.which(p, path=os.environ["PATH"] + ":/usr/sbin")]


def tsc_khz():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("cpu MHz"):
            return int(float(line.split(":")[1]) * 1000)
    return 2000000


def cpio(entries):
    """A cpio archive for the kernel: (name, mode, data)."""
    out = bytearray()
    for i, (name, mode, data) in enumerate([*entries, ("TRAILER!!!", 0, b"")]):
        raw = name.encode() + b"\0"
        head = [i + 1, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(raw), 0]
        out += b"070701" + b"".join(b"%08X" % x for x in head) + raw
        out += b"\0" * (-len(out) % 4) + data
        out += b"\0" * (-len(out) % 4)
    return bytes(out)


def make_initrd(guest, extra, path):
    entries = [(d, stat.S_IFDIR | 0o755, b"") for d in ("dev", "proc", "sys")]
    for top in [extra] if extra else []:
        for p in sorted(Path(top).rglob("*")):
            name = str(p.relative_to(top))
            if p.is_dir() and name not in ("dev", "proc", "sys"):
                entries.append((name, stat.S_IFDIR | 0o755, b""))
            elif p.is_file():
                entries.append((name, stat.S_IFREG | 0o644, p.read_bytes()))
    entries.append(("init", stat.S_IFREG | 0o755, Path(guest).read_bytes()))
    Path(path).write_bytes(cpio(entries))


def copy_program(root, path):
    """Copies a program of this host with its libraries."""
    text = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
    for p in [path, *(w for w in text.split() if w.startswith("/"))]:
        to = Path(root, p.lstrip("/"))
        if not to.exists():
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(p, to)


def make_image(top, programs, probe):
    root = Path(top, "tree")
    for d in ("bin", "etc", "home/user", "root", "tmp", "usr/bin", "sbin"):
        (root / d).mkdir(parents=True)
    for p in programs:
        copy_program(root, os.path.realpath(shutil.which(p)))
        link = root / "bin" / p
        if not link.exists():
            link.symlink_to(os.path.realpath(shutil.which(p)))
    shutil.copy(probe, root / "bin/probe")
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nuser:x:1000:\n")
    (root / "etc/resolv.conf").symlink_to("/nowhere/resolv.conf")
    (root / "etc/machine-id").write_text("image\n")
    os.chmod(root / "tmp", 0o1777)
    if os.geteuid() == 0:
        os.chown(root / "home/user", 1000, 1000)
    # --all-root: independent of the user who makes it. /home/user then belongs to root, and the
    # tests write elsewhere.
    subprocess.run(["mkfs.erofs", "--all-root", f"{top}/image.erofs", str(root)], check=True, capture_output=True)


def make_disk(path, mib=64):
    with open(path, "wb") as f:
        f.truncate(mib << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,nodiscard", "-O", "^has_journal", path], check=True,
                   capture_output=True, env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin"})


class Qmp:
    def __init__(self, sock):
        self.sock, self.file = sock, sock.makefile("rw")
        self.events = []
        json.loads(self.file.readline())
        self("qmp_capabilities")

    def __call__(self, command, **arguments):
        self.file.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self.file.flush()
        while True:
            line = self.file.readline()
            if not line:
                raise EOFError(f"QEMU ended at {command}")
            answer = json.loads(line)
            if "event" in answer:
                self.events.append(answer)
            elif "error" in answer:
                raise AssertionError(f"{command}: {answer['error']}")
            else:
                return answer["return"]

    def wait(self, name, test=lambda data: True):
        while True:
            for e in self.events:
                if e["event"] == name and test(e.get("data")):
                    return e
            line = self.file.readline()
            if not line:
                raise EOFError(f"QEMU ended while {name} was waited for")
            self.events.append(json.loads(line))

    def ignore_shared(self, state):
        """Whether memory is in its own file. Set each time: a copy that is saved in turn has all
        in one file."""
        self("migrate-set-capabilities", capabilities=[{"capability": "x-ignore-shared", "state": state}])

    def migrate(self, uri, shared):
        self.ignore_shared(shared)
        self("migrate", uri=uri)
        status = eventually(lambda: (s := self("query-migrate").get("status")) in ("completed", "failed", "cancelled") and s, "the end of a migration")
        if status != "completed":
            raise AssertionError(self("query-migrate"))


class Machine:
    """
    One QEMU. `memory` is a file with the guest's memory: shared while a template is made, private
    for its clones. With `state` the VM continues from there and boots no kernel.
    """

    def __init__(self, parts, disk, memory=None, state=None, shared=False, console=None):
        self.parts, self.state, self.shared = parts, state, shared
        ours, theirs = socket.socketpair()
        mine, yours = socket.socketpair()
        for s in (mine, ours):
            s.settimeout(None)
        # The memory backend has the same name in all cases: a saved state refers to it.
        machine = MACHINE + ",memory-backend=mem0"
        args = ["qemu-system-x86_64", "-M", machine, "-accel", "tcg,tb-size=64", "-cpu", "qemu64,+rdrand,+arat", "-m", f"{MEMORY}M",
                "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "none",
                "-global", "virtio-mmio.force-legacy=false", "-S",
                "-chardev", f"socket,id=q0,fd={yours.fileno()}", "-mon", "chardev=q0,mode=control",
                "-chardev", f"socket,id=c0,fd={theirs.fileno()}", "-device", "virtio-serial-device,max_ports=2",
                "-device", "virtserialport,id=port,chardev=c0,name=hutch,nr=1",
                "-blockdev", f"driver=raw,node-name=d0,read-only=on,file.driver=file,file.filename={parts.top}/image.erofs,file.locking=off",
                "-device", "virtio-blk-device,drive=d0",
                "-blockdev", f"driver=raw,node-name=d1,file.driver=file,file.filename={disk},file.locking=off",
                "-device", "virtio-blk-device,drive=d1"]
        share = "on" if shared else "off"
        args += ["-object", f"memory-backend-file,id=mem0,size={MEMORY}M,mem-path={memory},share={share}" if memory else
                 f"memory-backend-ram,id=mem0,size={MEMORY}M"]
        args += ["-incoming", "defer"] if state else ["-kernel", kernel_path(), "-initrd", f"{parts.top}/initrd", "-append",
                                                        APPEND.format(tsc_khz())]
        self.memory = memory
        self.process = subprocess.Popen(args, pass_fds=[theirs.fileno(), yours.fileno()], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        theirs.close()
        yours.close()
        # Kill a hung VM, so that every wait for it fails.
        self.watchdog = threading.Timer(4 * BOOT, self.process.kill)
        self.watchdog.daemon = True
        self.watchdog.start()
        self.qmp = Qmp(mine)
        self.link = wire.Link(ours)

    def run(self):
        try:
            return self._run()
        except (EOFError, OSError) as e:
            raise AssertionError(f"{e}: {self.process.stderr.read().decode()}") from e

    def _run(self):
        if self.state:
            self.qmp.ignore_shared(bool(self.memory))
            self.qmp("migrate-incoming", uri=f"exec:cat {self.state}")
            eventually(lambda: self.qmp("query-status")["status"] != "inmigrate", "a state that is loaded")
        self.qmp("cont")
        return self

    def hello(self, **more):
        seed = more.pop("seed", secrets.token_bytes(wire.SEED))
        fields = {"version": wire.VERSION, "hostname": "box", "read": ["/"], "write": ["/"], "execute": ["/"], "cwd": "/work", "seed": seed,
                  "time": time.time_ns(), "machine": "0123456789abcdef" * 2, "pids": 64, **more}
        self.link.frame(wire.HELLO, 0, 0, wire.encode(**fields))
        self.link.wait(lambda: self.link.guest, "HELLO", BOOT)
        self.link.wake(time=more.get("time", time.time_ns()))
        return self.link.guest

    def save(self, state):
        """Saves a VM that sleeps or waits for HELLO: stops it, and saves its state without the
        disk."""
        self.qmp("stop")
        self.qmp.migrate(f"exec:cat > {state}", self.shared)

    def ended(self, timeout=BOOT):
        """QEMU's exit status; it must end on its own."""
        return self.process.wait(timeout)

    def kill(self):
        self.watchdog.cancel()
        self.process.kill()
        said = self.process.stderr.read()
        self.process.stderr.close()
        self.process.wait()
        self.link.close()
        self.qmp.sock.close()
        return said


class Parts:
    """The parts that VMs need, in a directory of their own."""

    def __init__(self, guest, probe, programs):
        self.top = tempfile.mkdtemp(prefix="hutch-vm-")
        make_initrd(guest, os.environ.get("HUTCH_VM_INITRD"), f"{self.top}/initrd")
        make_image(self.top, programs, probe)
        make_disk(f"{self.top}/blank")

    def disk(self, name, of="blank"):
        path = f"{self.top}/{name}"
        subprocess.run(["cp", "--sparse=always", f"{self.top}/{of}", path], check=True)
        return path

    def done(self):
        shutil.rmtree(self.top, ignore_errors=True)
