"""What was lost on the way from the file to the frames."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Losses:
    """Counts of damage, and how to say them in one line.

    Attributes:
        missing_bytes: Bytes that the container says the file should have, beyond its end.
        broken_at: Position in the file from which the container makes no sense; packets there go unseen.
        missing_packets: Packets that the container's index names and the file does not hold.
        damaged_packets: Packets that the container flagged as incomplete; the decoder may make a frame of them yet.
        undecodable_packets: Packets that the decoder refused.
        damaged_frames: Frames that the decoder delivered, but flagged as concealed or broken.
        read_error: Why reading ended early, in FFmpeg's words.
    """

    missing_bytes: int = 0
    broken_at: int | None = None
    missing_packets: int = 0
    damaged_packets: int = 0
    undecodable_packets: int = 0
    damaged_frames: int = 0
    read_error: str | None = None

    def __bool__(self) -> bool:
        return self != Losses()

    def describe(self, name: str, frames: int, expected: int | None) -> str:
        """One line for an error: what is wrong with `name`, and how many frames came through nevertheless.

        Args:
            name: The source.
            frames: How many frames were delivered.
            expected: How many there should be, as far as that is known.
        """
        facts = [
            self.read_error and f"reading stopped: {self.read_error}",
            self.missing_bytes and f"the file ends {_plural(self.missing_bytes, 'byte')} or more too early",
            self.broken_at is not None and f"the file is unreadable from byte {self.broken_at} on",
            self.missing_packets and f"{_plural(self.missing_packets, 'packet')} missing",
            self.damaged_packets and f"{_plural(self.damaged_packets, 'packet')} incomplete",
            self.undecodable_packets and f"{_plural(self.undecodable_packets, 'packet')} not decodable",
            self.damaged_frames and f"{_plural(self.damaged_frames, 'frame')} decoded with errors",
        ]
        total = f" of about {expected}" if expected else ""
        return f"{name} is damaged: {', '.join(fact for fact in facts if fact)}; {frames} frames delivered{total}"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
