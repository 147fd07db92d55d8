"""Good messages in which bytes, parts or header values were changed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgpack

NASTY = [None, True, -1, 0, 1, 2**31, 2**63 - 1, 1.5, float("nan"), "", "raw", "rle", b"\xff", [], [1], [0, 0], {}]


def mutated(parts: Sequence[bytes], random: Random) -> list[bytes]:
    """One change to a message, of a random kind."""
    kind = random.choice([_other_bytes, _other_length, _other_parts, _other_value, _other_value])
    return kind(list(parts), random)


def _other_bytes(parts: list[bytes], random: Random) -> list[bytes]:
    index = random.randrange(len(parts))
    part = bytearray(parts[index]) or bytearray(1)
    for _ in range(random.randint(1, 4)):
        part[random.randrange(len(part))] = random.randrange(256)
    parts[index] = bytes(part)
    return parts


def _other_length(parts: list[bytes], random: Random) -> list[bytes]:
    index = random.randrange(len(parts))
    part = parts[index]
    parts[index] = random.choice([part[:-1], part + b"\0", b"", part[:3]])
    return parts


def _other_parts(parts: list[bytes], random: Random) -> list[bytes]:
    index = random.randrange(len(parts))
    return random.choice([parts[:index], parts[index:], [*parts, b"x"], parts[::-1], []])


def _other_value(parts: list[bytes], random: Random) -> list[bytes]:
    fields = msgpack.unpackb(parts[1])
    node = fields
    while True:
        key = random.choice(list(node) if isinstance(node, dict) else range(len(node)))
        if not isinstance(node[key], dict | list) or not node[key] or random.random() < 0.3:
            break
        node = node[key]
    node[key] = random.choice(NASTY)
    parts[1] = msgpack.packb(fields)
    return parts
