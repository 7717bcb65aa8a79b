# SPDX-License-Identifier: Apache-2.0
"""Part of machine_memory.py: traces of a VM's writes in the file that VMs share."""

import mmap
import os
import subprocess
from pathlib import Path

import machine_fill as fill
import memory

WRITTEN = 100  # MiB


def template(box):
    """The memory of the template that the sandbox is a clone of."""
    [path] = {line.split(None, 5)[5] for line in Path(f"/proc/{fill.qemu(box)}/maps").read_text().splitlines() if line.endswith("/memory")}
    return Path(path)


def look(path):
    st = path.stat()
    return memory.cached_pages(path), (st.st_blocks, st.st_size, st.st_mtime_ns, st.st_ctime_ns)


def no_trace():
    """One clone watches the template while another one writes to its memory."""
    with fill.boxes() as made:
        first, second = made.create(*fill.SMALL), made.create(*fill.SMALL)
        path = template(first)
        fill.require(template(second) == path, "the clones have two templates")
        memory.warm(path)
        data, (before, was) = memory.data_pages(path), look(path)
        anonymous = memory.sums(Path(f"/proc/{fill.qemu(second)}/smaps").read_text())["Anonymous"]
        fill.fill(second, WRITTEN * 10 // 9 + 1, disk=False)
        after, now = look(path)
        grown = memory.sums(Path(f"/proc/{fill.qemu(second)}/smaps").read_text())["Anonymous"] - anonymous
        of = memory.of_file(fill.qemu(second), "/memory")
    fill.require(was == now, f"blocks, size and times were {was} and are {now}")
    fill.require(not after - before, f"{len(after - before)} pages are new in the cache, {len(after - before - data)} of them holes")
    fill.require(grown >= WRITTEN << 20, f"only {grown} bytes of {WRITTEN} MiB are anonymous")
    fill.require(of["Shared_Dirty"] == 0 and of["Private_Dirty"] <= of["Anonymous"], f"dirty pages of the file: {of}")
    return f"{len(data)} pages of data, {len(before & data)} in the cache, {len(before - data)} more of holes; {grown >> 20} MiB anonymous"


def write_holes(fd, size, data):
    """Maps the file as a whole, privately, and writes to some of its holes."""
    holes = [page for page in range(size // memory.PAGE) if page not in data][::16][:1000]
    with mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as at:
        for page in holes:
            at[page * memory.PAGE] = 1
    return set(holes)


def file_grows():
    with fill.boxes() as made:
        path = template(made.create(*fill.SMALL))
        copy = Path(os.environ["HUTCH_STATE_DIR"]) / "copied-memory"
        subprocess.run(["cp", "--sparse=always", path, copy], check=True)
    try:
        data, before = memory.data_pages(copy), memory.cached_pages(copy)
        with open(copy, "r+b") as f:
            written = write_holes(f.fileno(), copy.stat().st_size, data)
        new = memory.cached_pages(copy) - before - data
        fill.require(written and written <= new | before, f"{len(written)} pages were written, {len(new)} are new in the cache")
        return f"{len(written)} holes were written, {len(new)} pages of holes are new in the cache"
    finally:
        copy.unlink()


def memfd_grows():
    size = 64 << 20
    fd = os.memfd_create("memory")
    try:
        os.ftruncate(fd, size)
        written = write_holes(fd, size, set())
        blocks = os.fstat(fd).st_blocks * 512 // memory.PAGE
    finally:
        os.close(fd)
    fill.require(blocks >= len(written), f"{len(written)} pages were written, the file has {blocks}")
    return f"{len(written)} holes were written, the file has {blocks} pages"
