"""Ready measures: what outputs are for, as one error of which 0 is perfect. Each is a class; its fields are options."""

from __future__ import annotations

from halfwise.core.measures.audio import Audio
from halfwise.core.measures.boxes import Boxes
from halfwise.core.measures.embedding import Embedding
from halfwise.core.measures.image import Image
from halfwise.core.measures.keypoints import Keypoints
from halfwise.core.measures.logits import Logits
from halfwise.core.measures.mask import Mask
from halfwise.core.measures.measure import Measure
from halfwise.core.measures.text import Text

__all__ = ["MEASURES", "Audio", "Boxes", "Embedding", "Image", "Keypoints", "Logits", "Mask", "Measure", "Text"]

MEASURES: dict[str, type[Measure]] = {
    each.name: each for each in (Boxes, Keypoints, Mask, Logits, Text, Audio, Image, Embedding)
}
