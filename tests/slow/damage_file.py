# SPDX-License-Identifier: Apache-2.0
"""Ways to damage a file, for machine_damage.py. Each of them changes every file it applies to."""

import os
import random


def flip(path):
    data = bytearray(path.read_bytes())
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    else:
        data.append(random.randrange(256))  # an empty file has no bit to flip
    path.write_bytes(data)


def cut(path):
    os.truncate(path, random.randrange(path.stat().st_size))


def drop(path):
    path.unlink()


ALL = (flip, cut, drop)


def applicable(path, hows):
    """Returns those of `hows` that can change this file: an empty one cannot get shorter."""
    return [how for how in hows if how is not cut or path.stat().st_size > 0]
