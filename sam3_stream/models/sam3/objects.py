"""Which public id lives in which slot, and what is known of each object."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sam3_stream.core.errors import CapacityError


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """An object of a session: its public id, its slot, and what to call it."""

    object_id: int
    slot: int
    prompt_id: str
    label: str


class ObjectTable:
    """The one owner of the mapping from public ids to slots.

    Args:
        slots: Number of objects there is room for.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._entries: dict[int, ObjectEntry] = {}

    def __contains__(self, object_id: int) -> bool:
        return object_id in self._entries

    def __getitem__(self, object_id: int) -> ObjectEntry:
        return self._entries[object_id]

    def __iter__(self) -> Iterator[ObjectEntry]:
        """Entries in order of id."""
        return iter([self._entries[object_id] for object_id in sorted(self._entries)])

    def __len__(self) -> int:
        return len(self._entries)

    def check_room(self, more: int) -> None:
        """Raise `CapacityError` unless so many more objects fit."""
        if len(self) + more > self._slots:
            raise CapacityError(
                f"no room for {more} more object{'s' if more > 1 else ''}: {len(self)} of {self._slots} are tracked; "
                "remove some, or open the session with a higher max_objects"
            )

    def add(self, object_id: int, prompt_id: str, label: str, slot: int | None = None) -> ObjectEntry:
        """Give an object the lowest free slot, or the one that is named."""
        self.check_room(1)
        if slot is None:
            taken = {entry.slot for entry in self._entries.values()}
            slot = next(number for number in range(self._slots) if number not in taken)
        entry = ObjectEntry(object_id, slot, prompt_id, label)
        self._entries[object_id] = entry
        return entry

    def remove(self, object_id: int) -> ObjectEntry | None:
        """Forget an object; its entry, or None when there is no such object."""
        return self._entries.pop(object_id, None)

    def clear(self) -> None:
        """Forget all objects."""
        self._entries.clear()
