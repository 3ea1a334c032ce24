"""Models and tables without a network in their common formats: ARPA, word2vec, JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from anaphora._version import __version__
from anaphora.data.symbols import SPELLINGS
from anaphora.data.tokenizers import PairTokenizer, Tokenizer
from anaphora.errors import AnaphoraError
from anaphora.files.writing import replace_file, writing
from anaphora.models.classical.hmm.tagger import HMMTagger
from anaphora.models.classical.ngram import NGram, files
from anaphora.models.classical.ngram.counts import Words
from anaphora.models.embeddings import formats
from anaphora.nn.embedding import Embedding

FORMAT = 1


def write_arpa(m: Any, place: Path) -> None:
    """The n-grams of a language model, as KenLM and SRILM read them: words as they are, other symbols with ▁ for a space
    and ↵ for a line break."""
    if not isinstance(m.model_, NGram):
        raise AnaphoraError(
            f"the preset {m.settings_.model} has no n-grams; ARPA files are for the preset ngram."
        )
    words = Words(m.tokenizer_.size, [*SPELLINGS, *_spellings(m.tokenizer_)])
    files.write_arpa(place, m.model_.table, words, "word")


def write_word2vec(m: Any, place: Path) -> None:
    """The vectors of the symbols that the model reads; a name that ends in .bin is written in binary."""
    tokenizer = _tokenizer(m)
    embedding = None
    if isinstance(m.model_, nn.Module) and tokenizer is not None:
        embedding = next((one for one in m.model_.modules() if isinstance(one, Embedding)), None)
    if embedding is None or tokenizer is None or len(embedding.weight) != tokenizer.size:
        raise AnaphoraError(
            f"this {type(m).__name__} ({m.settings_.model}) has no vectors of symbols to export."
        )
    vectors = embedding.weight.detach().float().cpu().numpy()
    formats.write(place, _spellings(tokenizer), vectors[len(SPELLINGS) :])


def write_json(m: Any, place: Path) -> None:
    """An HMM as what it is made of: how often words had tags, ``[word, tag, inside a sentence, as its first word]``, and
    how often tags followed each other, ``[tag, …, times]``; the number after the last tag is the edge of a sentence."""
    hmm = m.model_
    if not isinstance(hmm, HMMTagger):
        raise AnaphoraError(
            f"the preset {m.settings_.model} is no HMM; json is for the preset hmm of a Tagger."
        )
    seen = np.argwhere(hmm.counts.sum(0) > 0)
    moved = np.argwhere(hmm.moves > 0)
    document = {
        "format": FORMAT,
        "anaphora": __version__,
        "task": m.command,
        "order": hmm.order,
        "tags": hmm.tags,
        "words": hmm.words,
        "counts": [[int(w), int(t), *map(int, hmm.counts[:, w, t])] for w, t in seen],
        "moves": [[*map(int, row), int(hmm.moves[tuple(row)])] for row in moved],
    }
    with writing(place):
        replace_file(place, (json.dumps(document, ensure_ascii=False) + "\n").encode())


def _tokenizer(m: Any) -> Tokenizer | None:
    """Of what the model reads: of a translator the source."""
    found = getattr(getattr(m, "inputs_", None), "tokenizer", None) or getattr(m, "tokenizer_", None)
    found = found.source if isinstance(found, PairTokenizer) else found
    return found if isinstance(found, Tokenizer) else None


def _spellings(tokenizer: Tokenizer) -> list[str]:
    """The symbols without the special ones, none of which has white space in it."""
    found = tokenizer.spellings[len(SPELLINGS) :]
    if tokenizer.kind == "word":
        found = [spelling.removeprefix(" ") for spelling in found]
    return [spelling.replace(" ", "▁").replace("\n", "↵") for spelling in found]
