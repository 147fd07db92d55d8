"""Rings of memories by age: what is kept, what is pushed out, what never grows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from sam3_stream.models.sam3.memory_bank import MemoryBank


def small_bank(slots: int = 3) -> MemoryBank:
    return MemoryBank(
        slots,
        grid=2,
        mask_grid=8,
        memory_channels=4,
        pointer_channels=8,
        conditioning=4,
        recent=6,
        pointers=15,
        device=torch.device("cpu"),
        dtype=torch.float32,
    )


def write(bank: MemoryBank, slots: Sequence[int], value: float, conditioning: bool = False) -> None:
    """Remember frame number `value`."""
    count = len(slots)
    memories = torch.full((count, 4, 4), value)
    bank.write(slots, memories, torch.full((count, 8), value), np.full(count, conditioning))


def remembered(bank: MemoryBank, slot: int) -> tuple[list[float], list[int], list[float], list[int]]:
    """Frames and offsets of the memories, frames and ages of the pointers, that the next frame would attend to."""
    (group,) = bank.groups([slot])
    memories = bank.memories_selc[slot, torch.from_numpy(group.entries_nm[0]), 0, 0].tolist()
    pointers = bank.pointers_spc[slot, torch.from_numpy(group.pointers_np[0]), 0].tolist()
    return memories, group.offsets_nm[0].tolist(), pointers, group.pointer_ages_np[0].tolist()


def test_attends_to_conditioning_six_recent_memories_and_fifteen_recent_pointers():
    bank = small_bank()
    write(bank, [1], 0, conditioning=True)
    for frame in range(1, 31):
        bank.advance()
        write(bank, [1], frame)
    bank.advance()
    memories, offsets, pointers, ages = remembered(bank, 1)
    assert memories == [0, 25, 26, 27, 28, 29, 30]
    assert offsets == [0, 6, 5, 4, 3, 2, 1]
    assert pointers == [0, *range(30, 15, -1)]
    assert ages == [31, *range(1, 16)]


def test_a_fifth_conditioning_frame_makes_the_oldest_a_recent_one_while_it_is_young():
    bank = small_bank()
    for frame in range(5):
        write(bank, [0], frame, conditioning=True)
        bank.advance()
    memories, offsets, pointers, ages = remembered(bank, 0)
    assert memories == [1, 2, 3, 4, 0]
    assert offsets == [0, 0, 0, 0, 5]
    assert pointers == [1, 2, 3, 4, 0]
    assert ages == [4, 3, 2, 1, 5]


def test_a_fifth_conditioning_frame_forgets_the_oldest_when_that_is_old():
    bank = small_bank()
    for frame in range(0, 100, 20):
        write(bank, [0], frame, conditioning=True)
        for quiet in range(1, 20):
            bank.advance()
            write(bank, [0], frame + quiet)
        bank.advance()
    memories, _, pointers, _ = remembered(bank, 0)
    assert memories[:4] == pointers[:4] == [20, 40, 60, 80]
    assert 0 not in memories + pointers


def test_a_second_look_at_a_frame_replaces_the_first():
    bank = small_bank()
    write(bank, [0], 0, conditioning=True)
    bank.advance()
    write(bank, [0], 1)
    write(bank, [0], 1.5, conditioning=True)
    bank.advance()
    memories, offsets, pointers, _ = remembered(bank, 0)
    assert memories == [0, 1.5]
    assert offsets == [0, 0]
    assert pointers == [0, 1.5]


def test_objects_that_remember_equally_much_share_a_group_and_others_do_not():
    bank = small_bank()
    write(bank, [0, 2], 0, conditioning=True)
    bank.advance()
    write(bank, [0, 2], 1)
    write(bank, [1], 1, conditioning=True)
    bank.advance()
    groups = {tuple(group.slots_n.tolist()) for group in bank.groups([0, 1, 2])}
    assert groups == {(0, 2), (1,)}


def test_a_cleared_slot_remembers_nothing_of_the_object_before():
    bank = small_bank()
    write(bank, [0], 0, conditioning=True)
    bank.clear(0)
    write(bank, [0], 7, conditioning=True)
    bank.advance()
    assert remembered(bank, 0)[0] == [7]


def test_size_does_not_depend_on_what_happened():
    bank = small_bank()
    before = bank.nbytes
    for frame in range(200):
        write(bank, [0, 1, 2], frame, conditioning=frame % 7 == 0)
        bank.advance()
    assert bank.nbytes == before


def test_resampling_keeps_values_and_ages():
    bank = small_bank()
    write(bank, [0], 3, conditioning=True)
    bank.logits_shw[0] = 5.0
    bank.advance()
    bank.resample(4, 16)
    assert bank.memories_selc.shape == (3, 10, 16, 4)
    assert remembered(bank, 0)[0] == [3]
    assert bool((bank.memories_selc[0, 0] == 3).all())
    assert bank.logits_shw.shape == (3, 16, 16)
    assert bool((bank.logits_shw[0] == 5).all())
