"""What a user may choose about phrases and exemplars."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sam3_stream.core.association_config import AssociationConfig
from sam3_stream.core.errors import ConfigError
from sam3_stream.models.sam3.detect_interval import DetectInterval
from sam3_stream.models.sam3.prompt_bank import default_bank_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class ConceptOptions:
    """Options of phrases and exemplars in a session.

    A session that is full (`TrackerOptions.max_objects`) finds no more objects until one ends; of more new ones than
    there is room for, those with the highest scores are taken.

    Attributes:
        detect_interval: How often the detector looks; it also looks whenever a concept is added or changed.
        association: Thresholds.
        prompt_bank: Folder where the text features of phrases are kept; None for memory only.
        max_concepts: Concepts that one session looks for at a time: they are one batch of the detector.
    """

    detect_interval: DetectInterval = field(default_factory=lambda: DetectInterval(frames=1))
    association: AssociationConfig = field(default_factory=AssociationConfig)
    prompt_bank: Path | None = field(default_factory=default_bank_folder)
    max_concepts: int = 32

    def __post_init__(self) -> None:
        if self.max_concepts < 1:
            raise ConfigError(f"max_concepts must be 1 or more, got {self.max_concepts}")
