"""Sentences in one stream of sound, with pauses of several kinds between them, against the same sentences alone.

    python benchmarks/listening.py RUN [--sentences 12] [--beam 1] [--device cpu]

RUN is a Transcriber of `tones` that hears sound as it arrives (lstm-ctc, conformer-ctc, transducer). The sentences are of its test split,
each by another voice. Pauses are digital silence, or white noise so many dB below the loudest sample. Word error in percent, the
real-time factor, and the seconds from the end of a word until it was shown and until it was certain (mean, 95 %).
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import anaphora as an
from anaphora.data.corpora import find
from anaphora.data.corpora.sound_corpus import SoundCorpus
from anaphora.kinds.measures.judged import values
from anaphora.kinds.measures.transcripts import error_measures

PAUSES: tuple[tuple[float | None, float], ...] = (
    (None, 1.2),
    (None, 6.0),
    (60.0, 1.2),
    (60.0, 6.0),
    (45.0, 1.2),
    (45.0, 6.0),
)
"""dB below the loudest sample, None for digital silence; and seconds."""
PIECE, ENDPOINT = 0.1, 0.8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--sentences", type=int, default=12)
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    model = an.load(asked.run, device=asked.device)
    recordings, texts = spoken(asked.sentences)
    alone = values(error_measures(texts, model.predict(recordings, beam=asked.beam)))["wer"]
    print(f"{asked.sentences} sentences alone: {alone:.1f} % of words wrong", flush=True)
    for weaker, seconds in PAUSES:
        text, report = in_a_stream(model, recordings, weaker, seconds, asked.beam)
        wrong = values(error_measures([" ".join(texts)], [text]))["wer"]
        kind = "silence" if weaker is None else f"noise {weaker:.0f} dB below"
        latency = "  ".join(
            f"{name} {report[name]['mean']:.2f} {report[name]['p95']:.2f}"
            for name in ("shown", "certain")
            if name in report
        )
        print(
            f"{seconds:.1f} s of {kind}: {wrong:.1f} %  real-time {report['real_time_factor']:.3f}  {latency}",
            flush=True,
        )


def spoken(count: int) -> tuple[list[tuple[Any, int]], list[str]]:
    """Recordings of the test split of `tones`, and what is said in them."""
    corpus, variant = find("tones")
    assert isinstance(corpus, SoundCorpus)
    pairs = list(corpus.generate(variant, "test", count))
    return [(samples, corpus.rate) for samples, _ in pairs], [text for _, text in pairs]


def in_a_stream(
    model: Any, recordings: list[tuple[Any, int]], weaker: float | None, seconds: float, beam: int
) -> tuple[str, dict[str, Any]]:
    """What is heard of all of them one after another, and the session's report."""
    rate = recordings[0][1]
    random = np.random.default_rng(1)
    loudest = max(float(np.abs(samples).max()) for samples, _ in recordings)
    parts = []
    for samples, _ in recordings:
        pause = random.standard_normal(round(seconds * rate)).astype(np.float32)
        parts += [samples, pause * (0.0 if weaker is None else loudest * 10 ** (-weaker / 20))]
    whole = np.concatenate(parts).astype(np.float32)
    session = model.listening(rate, endpoint=ENDPOINT, beam=beam)
    for at in range(0, len(whole), round(PIECE * rate)):
        session.push(whole[at : at + round(PIECE * rate)])
    return session.finish().text, session.report()


if __name__ == "__main__":
    main()
