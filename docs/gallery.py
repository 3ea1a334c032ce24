"""Makes the pictures of docs/guides/inside.md: trains small models on embedded corpora and draws what is inside them.

python docs/gallery.py [FOLDER]        (a quarter of an hour on two cores; by default docs/pictures)
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import anaphora as an
from anaphora.probe.classical import probe_hmm, probe_kalman
from anaphora.probe.ctc import probe_ctc
from anaphora.probe.vectors import probe_vectors
from anaphora.tasks.looking import Asked
from anaphora.views.places import position_trace
from anaphora.views.registry import picture

QUIET: dict[str, Any] = {"device": "cpu", "threads": 1}
TEXT = "ninety-one thousand six"


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)

    def keep(name: str, trace: Any, view: str | None = None, **options: Any) -> None:
        picture(trace, view or name, **options).save(folder / f"inside-{name}.svg")
        sys.stderr.write(f"inside-{name}.svg\n")

    with tempfile.TemporaryDirectory() as place:
        runs = Path(place)
        translators(runs)
        attentive = an.load(runs / "lstm-attention")
        trace = attentive.probe(TEXT)
        keep("curves", an.history(runs / "lstm-attention", runs / "transformer"))
        keep("samples", an.history(runs / "transformer"), examples=2)
        keep("health", an.history(runs / "lstm-attention", runs / "transformer"))
        keep("alignment", trace)
        keep("attribution", attentive.probe(TEXT, what=("attribution",)))
        keep("beam", trace, steps=6)
        keep("heads", an.load(runs / "transformer").probe(TEXT), of="cross_attention")
        language(runs)
        reader = an.load(runs / "lstm")
        text = "def add(self, other):\n    return self"
        trace = reader.probe(text, what=("gradients",))
        for name in ("states", "gates", "gradients"):
            keep(name, trace)
        keep("sampling", reader.probe("def add(se"), temperature=0.7, top_p=0.9)
        keep("embeddings", words(), analogy="king,man,woman", word="king")
        senses(runs)
        for name, run, number in (
            ("spectrogram", "speech", 3),
            ("captions", "captions", 6),
            ("glimpses", "numerals", 2),
        ):
            keep(name, example(runs / run, number))
    keep("positions", position_trace(length=48, width=48))
    keep("ctc", speech())
    weather = an.HMM(2, emissions="categorical").set(
        start=[0.6, 0.4],
        transitions=[[0.9, 0.1], [0.2, 0.8]],
        probabilities=[[0.6, 0.3, 0.1], [0.1, 0.3, 0.6]],
    )
    keep("hmm", probe_hmm(weather, weather.sample(40, seed=1)[0], states=["calm", "stormy"]))
    level = an.Kalman.local_level(level=0.3, noise=1.0, initial=1.0)
    keep("kalman", probe_kalman(level, level.sample(120, seed=1)[1]))


def translators(runs: Path) -> None:
    """Numbers in words, English to German, by an LSTM with attention and by a Transformer."""
    common = {
        "tokens": "bpe",
        "vocab_size": 120,
        "batch_tokens": 2000,
        "steps": 700,
        "valid_every": 100,
        **QUIET,
    }
    an.Translator(model="lstm-attention", hidden=96, embedding=64, dropout=0.1, lr=3e-3, **common).fit(
        "numbers", out=runs / "lstm-attention"
    )
    sizes = {"layers": 2, "hidden": 64, "heads": 4, "feedforward": 128, "dropout": 0.0, "warmup": 100}
    an.Translator(model="transformer", lr=3e-3, **sizes, **common).fit("numbers", out=runs / "transformer")


def language(runs: Path) -> None:
    """The standard library's own source text, character by character."""
    sizes = {
        "hidden": 96,
        "embedding": 48,
        "layers": 1,
        "steps": 500,
        "batch_tokens": 2048,
        "valid_every": 250,
    }
    an.LanguageModel(model="lstm", tokens="char", lr=5e-3, **sizes, **QUIET).fit("python", out=runs / "lstm")


def senses(runs: Path) -> None:
    """Words of synthetic voices, captions of scenes of shapes, numerals looked at bit by bit."""
    an.Transcriber(model="bilstm-ctc", steps=500, valid_every=500, **QUIET).fit("tones", out=runs / "speech")
    an.Captioner(model="lstm-attention", steps=1400, valid_every=700, **QUIET).fit(
        "shapes", out=runs / "captions"
    )
    an.Classifier(model="glimpse", steps=600, valid_every=300, **QUIET).fit("numerals", out=runs / "numerals")


def example(run: Path, number: int) -> Any:
    """A dev example of a run, by its number, as `anaphora inspect RUN --text '#3'` looks at it."""
    model = an.load(run)
    x, facts = Asked(model, run).find(f"#{number}")
    trace = model.probe(x)
    trace.facts |= facts
    return trace


def words() -> Any:
    """Vectors of the words of `kin`, a corpus made so that king − man + woman can be learned."""
    vectors = an.Word2Vec(32, epochs=5, seed=1).fit("kin").vectors
    return probe_vectors(vectors.words, vectors.matrix)


def speech() -> Any:
    """Frames that say h e l l o, with blanks between, as a trained network would."""
    names = ["-", "h", "e", "l", "o"]
    path = [0, 0, 1, 1, 0, 2, 2, 2, 0, 3, 3, 0, 0, 3, 3, 0, 4, 4, 4, 0, 0]
    logits = np.random.default_rng(0).normal(0, 1.0, (len(path), 5))
    logits[np.arange(len(path)), path] += 3.0
    return probe_ctc(logits, [1, 2, 3, 3, 4], symbols=names)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "pictures")
