"""Which words of a caption name which object, where the data know the places of objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anaphora.data.corpora import find
from anaphora.data.corpora.shapes import SceneCorpus
from anaphora.data.corpora.shapes_drawing import SIDE
from anaphora.tasks.caption.measures import Box


def named_objects(
    facts: Mapping[str, Any],
    outputs: Sequence[str],
    references: Sequence[Sequence[str]],
    size: tuple[int, int],
) -> dict[int, list[tuple[range, Box]]]:
    """For every caption that equals a reference: each object's words, and its box in a picture of ``size``.

    ``facts`` say what the data are; other data than scenes know no places, and nothing is returned.
    """
    if facts.get("kind") != "corpus":
        return {}
    corpus, variant = find(facts["name"], facts["variant"])
    if not isinstance(corpus, SceneCorpus):
        return {}
    tall, wide = size[0] / SIDE, size[1] / SIDE
    found: dict[int, list[tuple[range, Box]]] = {}
    for i, scene in enumerate(corpus.generate(variant, facts["split"], facts["scenes"])):
        if outputs[i] in references[i]:
            which = references[i].index(outputs[i])
            found[i] = [(range(*item.spans[which]), _scaled(item.box, wide, tall)) for item in scene.objects]
    return found


def _scaled(box: Box, wide: float, tall: float) -> Box:
    left, top, right, bottom = box
    return left * wide, top * tall, right * wide, bottom * tall
