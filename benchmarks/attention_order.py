"""Whether the attention of a transcriber goes forward: python benchmarks/attention_order.py RUN [--recordings 100]

RUN is a run of the preset attention or joint on tones. For the first test recordings it prints the word error of greedy
texts, in how many steps from one symbol to the next the centre Σ_j j α_τj and the peak of attention do not go back, and
of how many pairs of neighbouring words the second is listened to after the first.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

import anaphora as an
from anaphora.data.audio.recordings_readers import open_recordings
from anaphora.kinds.measures.judged import values
from anaphora.kinds.measures.transcripts import error_measures


def orders(alignment: np.ndarray, symbols: list[str]) -> dict[str, np.ndarray]:
    """Which steps go forward, of weights (T, S): by centre, by peak, and from word to word."""
    places = np.arange(alignment.shape[1])
    words = np.cumsum([symbol.startswith("▁") for symbol in symbols])
    spoken = np.array([symbol != "▁" for symbol in symbols])
    centres = [
        float(alignment[(words == word) & spoken].mean(0) @ places)
        for word in np.unique(words)
        if ((words == word) & spoken).any()
    ]
    return {
        "centre": np.diff(alignment @ places) >= 0,
        "peak": np.diff(alignment.argmax(1)) >= 0,
        "words": np.diff(centres) > 0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="a run of the preset attention or joint")
    parser.add_argument("--recordings", type=int, default=100, help="test recordings to look at")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    model = an.load(asked.run, device="cpu")
    data = open_recordings("tones", role="test", features=model.ear_.features)
    rows = range(min(asked.recordings, len(data)))
    found: dict[str, list[np.ndarray]] = {"centre": [], "peak": [], "words": []}
    for i in rows:
        trace = model.probe(data.wave(i))
        alignment = trace.array("alignment", "target", "source")[:-1]
        for name, forward in orders(alignment, trace.tokens["target"][:-1]).items():
            found[name].append(forward)
    outputs = model.predict([(data.wave(i), model.ear_.rate) for i in rows], beam=1)
    result = {"wer": values(error_measures([data.transcripts[i] for i in rows], outputs))["wer"]}
    for name, parts in found.items():
        every = np.concatenate(parts)
        result |= {f"{name}_forward": 100 * float(every.mean()), f"{name}_steps": len(every)}
    if asked.json:
        print(json.dumps(result))
    else:
        print("\n".join(f"{name:16} {value:.5g}" for name, value in result.items()))


if __name__ == "__main__":
    main()
