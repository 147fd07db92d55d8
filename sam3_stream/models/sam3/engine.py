"""Everything that exists only while the weights are in memory."""

from __future__ import annotations

from collections.abc import Callable

from sam3_stream.models.sam3.detector import Detector
from sam3_stream.models.sam3.image_encoder import ImageEncoder
from sam3_stream.models.sam3.network import TrackerNetwork
from sam3_stream.models.sam3.positions import PositionTables


class Engine:
    """The network, its image encoder and the positional tables of the resolutions that were used.

    Args:
        network: The network, on its device.
        load_detector: Reads the detector's weights.
        compile_trunk: Whether the trunk goes through `torch.compile`.
    """

    def __init__(self, network: TrackerNetwork, load_detector: Callable[[], Detector], *, compile_trunk: bool) -> None:
        self.network = network
        self._load_detector = load_detector
        self._detector: Detector | None = None
        self.encoder = ImageEncoder(network, compiled=compile_trunk)
        self._tables: dict[int, PositionTables] = {}

    @property
    def detector(self) -> Detector:
        """The detector, read when the first phrase or exemplar is looked for."""
        if self._detector is None:
            self._detector = self._load_detector()
        return self._detector

    def tables(self, resolution: int) -> PositionTables:
        """Positional tables of a resolution, made once each."""
        if resolution not in self._tables:
            self._tables[resolution] = PositionTables(self.network, resolution)
        return self._tables[resolution]
