"""Graphs of the tasks that read a whole input: classify, embed, tag and answer."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn

from anaphora.data.tag_vocabulary import LONGEST_SPELLING
from anaphora.errors import AnaphoraError
from anaphora.kinds.vectors import VectorInputs
from anaphora.models.answerer import PictureAnswerer
from anaphora.models.classical.hmm.tagger import HMMTagger
from anaphora.models.classical.rocket import RocketClassifier, RocketGraph
from anaphora.models.encoders import TransformerEncoder
from anaphora.tasks.exporting import inputs
from anaphora.tasks.exporting.graph import Export, Graph, on_cpu


def classifier_export(m: Any) -> Export:
    """Symbols ``(batch, time)`` (ids of n-grams for ngrams and fasttext), vectors ``(batch, time, features)`` or pictures ``(batch,
    rows, columns, channels)``, and lengths -> scores ``(batch, outputs)``."""
    s = m.settings_
    facts = {
        "max_tokens": None if m._longest == sys.maxsize else m._longest,
        "threshold": m._threshold,
        "scan": s.scan,
        "outputs": m.model_.outputs,
    }
    # Of rocket int8 rounds the features of a sequence as well: its probabilities moved by up to 0.13.
    return Export(
        {"model": _reader(m, "scores", m._longest)}, facts, exact=isinstance(m.model_, RocketClassifier)
    )


def embedder_export(m: Any) -> Export:
    """Inputs as those of a classifier -> vectors ``(batch, vector_size)``, whose length the runtime makes 1."""
    return Export(
        {"model": _reader(m, "embeddings", m.settings_.max_tokens)},
        {"max_tokens": m.settings_.max_tokens, "outputs": m.settings_.vector_size},
    )


def _reader(m: Any, output: str, longest: int) -> Graph:
    """``longest``: the most symbols of an input, for which there are positions."""
    given = m.inputs_
    texts = not isinstance(given, VectorInputs)
    inputs.check_reading(getattr(given, "tokenizer", None), getattr(given, "features", None))
    sizes = given.sizes
    picture = (given.size, sizes["channels"]) if isinstance(given, VectorInputs) and given.size else None

    def make(batch: int, length: int) -> dict[str, Tensor]:
        if picture is not None:
            size, channels = picture
            return {
                "pictures": inputs.numbers((batch, *size, channels)),
                "lengths": torch.full((batch,), size[0]),
            }
        if texts:
            length = min(length, longest)
            return {
                "symbols": inputs.symbols(sizes["symbols"], (batch, length)),
                "lengths": inputs.lengths(batch, length),
            }
        return {
            "vectors": inputs.numbers((batch, length, sizes["features"])),
            "lengths": inputs.lengths(batch, length),
        }

    axes = {
        "symbols": ("batch", "time"),
        "vectors": ("batch", "time", ""),
        "pictures": ("batch", "", "", ""),
        "lengths": ("batch",),
    }
    model = on_cpu(m.model_)
    if isinstance(model, RocketClassifier):
        model = RocketGraph(model)
    return Graph(model, make, axes, (output,))


class _Pieces(nn.Module):
    """Pieces ``(batch, time)`` between <s> and </s>, and lengths -> emissions of every piece ``(batch, time, tags)``."""

    def __init__(self, model: Any):
        super().__init__()
        self.encoder, self.output = model.encoder, model.output

    def forward(self, pieces: Tensor, lengths: Tensor) -> Tensor:
        states = TransformerEncoder.forward(self.encoder, pieces, lengths).annotations
        found: Tensor = self.output(states)
        return found.float()


def _of_pieces(m: Any, model: Any) -> tuple[Graph, dict[str, Any]]:
    """A word's emissions are W h + b of one piece or of a mean, so they are as well those of the piece, or their mean."""
    encoder = model.encoder
    room = encoder.room

    def make(batch: int, length: int) -> dict[str, Tensor]:
        length = length if room is None else min(length, room + 1 + encoder.end)
        pieces = inputs.symbols(m.tokenizer_.size, (batch, length))
        return {"pieces": pieces, "lengths": inputs.lengths(batch, length)}

    axes = {"pieces": ("batch", "time"), "lengths": ("batch",)}
    facts = {"word": encoder.word, "end": bool(encoder.end), "room": room}
    return Graph(_Pieces(model), make, axes, ("emissions",)), facts


def tagger_export(m: Any) -> Export:
    """Words ``(batch, time)``, words with their letters ``(batch, time, 1 + letters)`` or frames ``(batch, time, features)``,
    and lengths -> emissions ``(batch, time, tags)``; where words come in pieces, pieces ``(batch, time)``. The chain over the tags is found by the runtime."""
    if isinstance(m.model_, HMMTagger):
        raise AnaphoraError("an HMM is a table of counts, not a network; export it --to json.")
    inputs.check_words(m)
    letters = m._reader.letters
    if m.framewise:
        inputs.check_reading(None, m._reader.inputs.features)
        features = len(m._reader.inputs.mean)
    else:
        inputs.check_reading(m.tokenizer_)

    def make(batch: int, length: int) -> dict[str, Tensor]:
        lengths = inputs.lengths(batch, length)
        if m.framewise:
            return {"frames": inputs.numbers((batch, length, features)), "lengths": lengths}
        words = inputs.symbols(m.tokenizer_.size, (batch, length))
        if letters is None:
            return {"words": words, "lengths": lengths}
        spelled = inputs.symbols(letters.size, (batch, length, LONGEST_SPELLING))
        return {"words": torch.cat([words.unsqueeze(2), spelled], 2), "lengths": lengths}

    axes = {
        "words": ("batch", "time") if letters is None else ("batch", "time", ""),
        "frames": ("batch", "time", ""),
        "lengths": ("batch",),
    }
    crf = getattr(m.model_, "crf", None)
    chain = None
    if crf is not None:
        parts = {"start": crf.start, "moves": crf.transitions, "end": crf.end}
        chain = {name: value.detach().cpu().tolist() for name, value in parts.items()}
    facts = {"chain": chain, "threshold": m.settings_.threshold}
    if m.learnt_.framing:
        graph, facts["pieces"] = _of_pieces(m, on_cpu(m.model_))
        return Export({"model": graph}, facts)
    return Export({"model": Graph(on_cpu(m.model_), make, axes, ("emissions",))}, facts)


# ------------------------------------------------------------------ questions about pictures


class _EachOwn:
    """`ByPicture` where every question has a picture of its own."""

    def together(self, x: Tensor) -> Tensor:
        return x.unsqueeze(1)

    def apart(self, x: Tensor) -> Tensor:
        return x.squeeze(1)


class _Seen(nn.Module):
    """Images ``(pictures, 3, height, width)`` -> annotations ``(pictures, places, width)``."""

    def __init__(self, model: PictureAnswerer):
        super().__init__()
        self.pictures = model.pictures

    def forward(self, images: Tensor) -> Tensor:
        assert self.pictures is not None
        found: Tensor = self.pictures(images).annotations
        return found


class _Asked(nn.Module):
    """Questions ``(questions, time)`` with what is seen of the picture of each -> scores ``(questions, answers)``."""

    def __init__(self, model: PictureAnswerer):
        super().__init__()
        self.model = model

    def forward(self, question: Tensor, lengths: Tensor, *seen: Tensor) -> Tensor:
        model = self.model
        asked = model.encoder(question, lengths)
        picture = seen[0] if seen else asked.annotations
        read = model.reader(asked, lengths, picture, _EachOwn())  # type: ignore[arg-type]
        found: Tensor = model.output(torch.relu(model.hidden(read)))
        return found


def answerer_export(m: Any) -> Export:
    """Two graphs: what is seen of a picture, once, and the questions about it."""
    inputs.check_reading(m.tokenizer_)
    model = on_cpu(m.model_)
    if not isinstance(model, PictureAnswerer):
        raise AnaphoraError("a model of your own for questions about pictures cannot be exported to ONNX.")
    height, width = m.size
    graphs = {}
    seeing = model.pictures is not None
    if seeing:
        graphs["picture"] = Graph(
            _Seen(model),
            lambda batch, length: {"images": inputs.numbers((batch, 3, height, width)).abs()},
            {"images": ("batch", "", "", "")},
            ("seen",),
        )

    def make(batch: int, length: int) -> dict[str, Tensor]:
        found = {
            "question": inputs.symbols(m.tokenizer_.size, (batch, length)),
            "lengths": inputs.lengths(batch, length),
        }
        if model.pictures is not None:
            places = model.pictures.grid[0] * model.pictures.grid[1]
            found["seen"] = inputs.numbers((batch, places, model.pictures.width))
        return found

    axes = {"question": ("batch", "time"), "lengths": ("batch",), "seen": ("batch", "", "")}
    graphs["model"] = Graph(_Asked(model), make, axes, ("scores",))
    s = m.settings_
    facts = {"max_tokens": s.max_tokens, "history": s.history, "size": [height, width], "seeing": seeing}
    return Export(graphs, facts)
