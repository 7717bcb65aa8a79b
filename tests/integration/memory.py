# SPDX-License-Identifier: Apache-2.0
"""
The memory of VMs: programs that fill it, the pages of a file that the host has in its cache, and
those that a process has mapped.
"""

import ctypes
import mmap
import os
import re
from pathlib import Path

PAGE = mmap.PAGESIZE
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
LIBC.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
FAILED = ctypes.c_void_p(-1).value
MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ *(.*)$")
# Fills argv[1] MiB of memory and argv[2] MiB of a file, and checks both. A random block, shifted,
# fills each MiB, so no two pages are equal.
FILL = r"""
import os, sys
memory, disk = int(sys.argv[1]), int(sys.argv[2])
block = os.urandom((1 << 20) + 8192)
def part(i):
    return block[i % 8192:i % 8192 + (1 << 20)]
held = [bytearray(part(i)) for i in range(memory)]
if disk:
    with open("/workspace/filled", "wb", buffering=0) as f:
        for i in range(disk):
            f.write(part(i + 1))
        os.fsync(f.fileno())
    with open("/workspace/filled", "rb", buffering=0) as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        for i in range(disk):
            assert f.read(1 << 20) == part(i + 1), f"MiB {i} of the disk differs"
"""
CHECK = r"""
for i, one in enumerate(held):
    assert one == part(i), f"MiB {i} of the memory differs"
"""
# Fills its memory and then checks it after each SIGUSR1. HELD has its pid, and the number of good
# checks or "differs".
HELD = "/dev/shm/held"
HOLD = FILL + r"""
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
n = 0
while True:
    with open("HELD.new", "w") as f:
        f.write(f"{os.getpid()} {n}")
    os.rename("HELD.new", "HELD")
    signal.sigwait([signal.SIGUSR1])
    n = n + 1 if all(one == part(i) for i, one in enumerate(held)) else "differs"
""".replace("HELD", HELD)


def extents(fd):
    """Yields the start and end of each run of data of a file with holes."""
    end, size = 0, os.fstat(fd).st_size
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError:  # ENXIO: no more data
            return
        end = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, end


def data_pages(path):
    """The numbers of the pages with data; all others are holes."""
    with open(path, "rb") as f:
        return {page for start, end in extents(f.fileno()) for page in range(start // PAGE, (end + PAGE - 1) // PAGE)}


def warm(path):
    """Reads all data, so that the cache has it."""
    with open(path, "rb") as f:
        for start, end in extents(f.fileno()):
            while start < end:
                start += len(os.pread(f.fileno(), min(end - start, 1 << 20), start))


def cached_pages(path):
    """The numbers of the pages in the host's cache. Reads none of them: mincore(2) only looks."""
    with open(path, "rb") as f:
        size = os.fstat(f.fileno()).st_size
        address = LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, f.fileno(), 0)
        if address == FAILED:
            raise OSError(ctypes.get_errno(), "mmap")
        seen = ctypes.create_string_buffer((size + PAGE - 1) // PAGE)
        r = LIBC.mincore(address, size, seen)
        LIBC.munmap(address, size)
        if r != 0:
            raise OSError(ctypes.get_errno(), "mincore")
    return {page for page, byte in enumerate(seen.raw[:(size + PAGE - 1) // PAGE]) if byte & 1}


def sums(text):
    """The sum of each field, in bytes, of the mappings in the text of a smaps file."""
    found = {}
    for name, kib in re.findall(r"(?m)^(\w+): +(\d+) kB$", text):
        found[name] = found.get(name, 0) + int(kib) * 1024
    return found


def private(pid):
    """The bytes that no other process has mapped."""
    of = sums(Path(f"/proc/{pid}/smaps_rollup").read_text())
    return of["Private_Dirty"] + of["Private_Clean"]


def of_file(pid, name):
    """The sums of the process's mappings of files whose path ends with `name`; also of deleted
    files."""
    taken, take = [], False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if head := MAPPING.match(line):
            take = head[1].removesuffix(" (deleted)").endswith(name)
        elif take:
            taken.append(line)
    return sums("\n".join(taken))


def file_share(pid, name):
    """The process's share of the pages of a file that it has mapped and not written: 1 alone, 1/2
    with one other."""
    of = of_file(pid, name)
    return (of["Pss"] - of["Anonymous"]) / (of["Rss"] - of["Anonymous"])
