# SPDX-License-Identifier: Apache-2.0
"""
Tests the KVM path on hosts without KVM. QEMU emulates, in software, a VM whose CPU has AMD's SVM.
Linux in it loads kvm-amd and runs inner VMs on KVM: slow, but real. That Linux is Debian's cloud
kernel, as `hutch image kernel` makes it. Its root is an EROFS with programs of this host and their
libraries. Nothing is downloaded: HUTCH_TEST_KERNEL_DIR has the kernel's package.

One outer VM runs the script STEPS, which prints a line for each step; each test checks one result.
"""

import contextlib
import io
import lzma
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
import unittest
from pathlib import Path

DEADLINE = 600  # seconds, for a busy host; an idle one takes 60
MEMORY = "2G"
CPU = "max,-ssse3,-sse4.1,-sse4.2,-avx,-avx2"  # has SVM; hashing is twice as fast without emulated vectors
DISK = 64 << 20
QEMU = "/usr/bin/qemu-system-x86_64"
FIRMWARE = Path("/usr/share/qemu")
MODULES = ["virtio_mmio", "virtio_blk", "erofs", "overlay", "kvm-amd"]
INNER_MODULES = ["virtio_mmio", "virtio_console"]

AGENT = f"""
agent: {{name: nested, type: test}}
isolation: {{level: microvm}}
resources: {{memory: 96MiB, disk: {DISK >> 20}MiB}}
"""

# Emulated KVM is slow.
HOST = """
accel: kvm
accel_timeout: 5m
disk_overcommit: true
"""

# The inner VM without any Hutch code: does KVM in the outer VM boot a kernel?
BARE = (
    "qemu-system-x86_64 -M microvm,acpi=on,pit=off,pic=off,rtc=on,isa-serial=off,x-option-roms=off -accel kvm -cpu host -m 256M -nodefaults"
    " -no-user-config -display none -no-reboot -serial none -global virtio-mmio.force-legacy=false -kernel /boot/kernel -initrd /boot/bare"
    " -append 'reboot=t panic=-1 quiet loglevel=0 cryptomgr.notests=1 8250.nr_uarts=0 agent'"
    " -chardev null,id=c0 -device virtio-serial-device,max_ports=2 -device virtserialport,chardev=c0,name=hutch,nr=1,id=port -qmp stdio"
)

STEPS = f"""
say() {{ read up rest < /proc/uptime; echo "nested: $up $*"; }}
say began
[ -e /sys/module/kvm_amd ] && [ -c /dev/kvm ] && say kvm
mkfifo /tmp/in /tmp/out
{BARE} < /tmp/in > /tmp/out 2>&1 &
exec 8> /tmp/in 9< /tmp/out
echo '{{"execute": "qmp_capabilities"}}' >&8
while read -r line <&9; do
	echo "qemu: $line"
	case $line in *VSERPORT_CHANGE*)
		say bare ready
		echo '{{"execute": "quit"}}' >&8
	esac
done
wait $!
say bare end $?
exec 8>&- 9<&-

export HUTCH_LIBEXEC_DIR=/opt/hutch HUTCH_CONFIG_PATH=/etc/hutch HUTCH_LOG=info HUTCH_AUDIT=off
mkdir /var/lib
cp -a /state /var/lib/hutch
say copied
# The first makes the verdict, the second a template, and is a clone of it, as is the third.
HUTCH_TEMPLATES=off
export HUTCH_TEMPLATES
for n in boot template clone; do
	hutch run --rm -a /etc/hutch/nested.yaml -- /bin/probe tsc
	say $n end $?
	HUTCH_TEMPLATES=on
done
cat /var/lib/hutch/machine/accel.json
echo
"""


def cpio(entries):
    """A "newc" archive of (name, mode, bytes) for the kernel, with the device that a console
    needs."""
    out = bytearray()
    for i, (name, mode, data) in enumerate([*entries, ("dev/console", 0o020600, b""), ("TRAILER!!!", 0, b"")]):
        device = (5, 1) if mode == 0o020600 else (0, 0)
        head = (i + 1, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0)
        out += b"070701" + b"".join(b"%08X" % n for n in head) + name.encode() + b"\0"
        out += b"\0" * (-len(out) % 4) + data
        out += b"\0" * (-len(out) % 4)
    return bytes(out)


class Kernel:
    """The modules of the unpacked package."""

    def __init__(self, package, into):
        subprocess.run(["dpkg-deb", "-x", package, into], check=True)
        root = next(p for p in (into / "lib/modules", into / "usr/lib/modules") if p.is_dir())
        self.files = {self.plain(p): p for p in root.rglob("*.ko*")}

    @staticmethod
    def plain(path):
        return path.name.split(".ko")[0].replace("-", "_")

    @staticmethod
    def module(path):
        return lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()

    def needs(self, name):
        """`name` and the modules that it depends on, in load order, from .modinfo."""
        path = self.files.get(name.replace("-", "_"))
        if not path:  # built in
            return []
        found = re.search(rb"\0depends=([^\0]*)\0", b"\0" + self.module(path))
        before = [m for d in found[1].decode().split(",") if d for m in self.needs(d)]
        return [*before, path]

    def initrd(self, init, modules):
        order = list(dict.fromkeys(p for m in modules for p in self.needs(m)))
        listed = "".join(f"/lib/{self.plain(p)}.ko\n" for p in order).encode()
        return cpio(
            [
                *((d, 0o040755, b"") for d in ("dev", "lib", "proc", "root", "sys")),
                ("init", 0o100755, init.read_bytes()),
                ("modules", 0o100644, listed),
                *((f"lib/{self.plain(p)}.ko", 0o100644, self.module(p)) for p in order),
            ]
        )


class Root:
    """A tree of this host's programs and their libraries."""

    def __init__(self, at):
        self.at = at
        for d in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "boot", "dev", "etc", "proc", "run", "sys", "tmp", "var"):
            (at / d).mkdir(parents=True)
        for d in ("bin", "sbin", "lib", "lib64"):
            (at / d).symlink_to(f"usr/{d}")

    def file(self, source, to=None):
        """Copies a file to the same path as on this host, or to `to`."""
        place = str(to or source)
        if not place.startswith("/usr/") and place.startswith(("/bin/", "/sbin/", "/lib/", "/lib64/")):
            place = "/usr" + place
        path = self.at / place.lstrip("/")
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, path)

    def program(self, source, to=None):
        self.file(source, to)
        told = subprocess.run(["ldd", source], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"(/\S+) \(0x", told):
            self.file(library)

    def image(self, to):
        subprocess.run(["mkfs.erofs", "--quiet", "-T0", to, self.at], check=True, stdout=subprocess.DEVNULL)


def package():
    """The kernel's package in HUTCH_TEST_KERNEL_DIR."""
    where = os.environ.get("HUTCH_TEST_KERNEL_DIR")
    found = sorted(Path(where).glob("linux-image-[0-9]*-cloud-amd64_*.deb")) if where else []
    if not found:
        raise unittest.SkipTest("HUTCH_TEST_KERNEL_DIR has no package of Debian's cloud kernel")
    return found[-1]


def missing():
    wanted = [QEMU, FIRMWARE / "qboot.rom", *(shutil.which(p) or p for p in ("mkfs.erofs", "mkfs.ext4", "dpkg-deb", "lz4"))]
    return [str(w) for w in wanted if not os.path.exists(w)]


def small_image(to):
    """An image with one program in it."""
    with tarfile.open(to, "w") as tar:
        for name in ("bin", "dev", "etc", "home", "proc", "run", "sys", "tmp", "var", "var/tmp", "workspace"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for name, mode, data in (("bin/probe", 0o755, program("NESTED_INIT").read_bytes()), ("etc/passwd", 0o644, b"root:x:0:0::/:/bin/sh\n")):
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = mode, len(data)
            tar.addfile(entry, io.BytesIO(data))


def program(name):
    return Path(os.environ[name])


def make_state(work, state):
    """Makes hutch's stored state here, where it is fast: kernel, initrd, image, disks. Returns
    the path of the kernel."""
    env = {"HUTCH_STATE_DIR": str(state), "HUTCH_AUDIT": "off", "PATH": os.environ["PATH"], "HOME": str(work)}

    def run(*args):
        return subprocess.run(args, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=True).stdout.splitlines()

    state.mkdir(mode=0o700)
    small_image(work / "image.tar")
    run(program("HUTCH"), "image", "import", "base", work / "image.tar")
    run(program("HUTCH"), "image", "kernel", "--from", package().parent)
    kernel = run(program("MACHINE_PARTS"), "kernel", program("HUTCH_GUEST"))[1]
    run(program("MACHINE_PARTS"), "root", next((state / "images/trees").glob("*/root")))
    for size in (DISK, 4 << 20):  # the second is for the live check
        run(program("MACHINE_PARTS"), "blank", str(size))
    return Path(kernel)


def make(work):
    """The outer VM's kernel, initrd and root in `work`."""
    modules = Kernel(package(), work / "package")
    root = Root(work / "root")
    kernel = make_state(work, root.at / "state")
    for name in ("sh", "mkfifo", "mkdir", "cat", "cp", "ls"):
        root.program(shutil.which(name))
    root.program(QEMU)
    for name in ("qboot.rom", "bios-microvm.bin", "linuxboot_dma.bin", "pvh.bin", "kvmvapic.bin"):
        root.file(FIRMWARE / name)
    root.program(program("HUTCH"), "/usr/bin/hutch")
    for name in ("HUTCH_KEEPER", "HUTCH_GUEST", "HUTCH_RAM_SO"):
        root.program(program(name), f"/opt/hutch/{program(name).name}")
    for name, text in (("etc/passwd", "root:x:0:0::/tmp:/bin/sh\n"), ("etc/group", "root:x:0:\n"), ("etc/hutch/host.yaml", HOST),
                       ("etc/hutch/nested.yaml", AGENT), ("nested", STEPS)):
        (root.at / name).parent.mkdir(exist_ok=True)
        (root.at / name).write_text(text)
    (root.at / "boot/kernel").symlink_to("/state/" + str(kernel.relative_to(root.at / "state")))
    (root.at / "boot/bare").write_bytes(modules.initrd(program("NESTED_INIT"), INNER_MODULES))
    root.image(work / "root.erofs")
    (work / "initrd").write_bytes(modules.initrd(program("NESTED_INIT"), MODULES))
    return kernel


def start(work, kernel):
    """Runs the outer VM to its end. Returns its console output and the seconds it took."""
    tsc = subprocess.run([program("NESTED_INIT"), "tsc"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    append = f"console=ttyS0 reboot=t panic=-1 loglevel=4 cryptomgr.notests=1 no_timer_check tsc=reliable tsc_early_khz={tsc}"
    args = [
        QEMU, "-M", "microvm,acpi=on,rtc=on,pit=off,pic=off,isa-serial=on,x-option-roms=off", "-accel", "tcg,tb-size=256", "-cpu", CPU,
        "-smp", "1", "-m", MEMORY, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-global", "virtio-mmio.force-legacy=false", "-kernel", kernel, "-initrd", work / "initrd", "-serial", f"file:{work / 'console'}",
        "-append", append + " norandmaps mitigations=off",
        "-drive", f"if=none,id=d0,format=raw,readonly=on,file={work / 'root.erofs'}", "-device", "virtio-blk-device,drive=d0",
    ]
    began = time.monotonic()
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(args, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=DEADLINE, check=False)
    return (work / "console").read_text(errors="replace"), time.monotonic() - began


class NestedKvm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if missing():
            raise unittest.SkipTest("missing: " + ", ".join(missing()))
        with tempfile.TemporaryDirectory(prefix="hutch-nested-") as name:
            work = Path(name)
            kernel = make(work)
            cls.console, cls.seconds = start(work, kernel)
        print(f"# the machine took {cls.seconds:.0f} s")
        for line in cls.console.splitlines():
            print("# " + line)

    def said(self, step):
        self.assertRegex(self.console, rf"(?m)^nested: [0-9.]+ {step}\r?$", "see the machine's console, above")

    def test_bare(self):
        self.said("kvm")
        self.said("bare ready")
        self.said("bare end 0")

    def test_verdict(self):
        self.assertRegex(self.console, r'"works": true')

    def test_boot(self):
        self.said("boot end 0")

    def test_clone(self):
        self.said("template end 0")
        self.said("clone end 0")
        self.assertEqual(self.console.count("preparing a template"), 1)
        self.assertEqual(len(re.findall(r"(?m)^[0-9]{5,}\r?$", self.console)), 3, "what the program in the sandbox prints, each time")


if __name__ == "__main__":
    unittest.main()
