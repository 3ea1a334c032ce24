"""Spoken digits of speakers that training never heard: each of the four of fsdd held out in turn.

    python benchmarks/fsdd_holdout.py FOLDER/recordings [--held-out theo …] [--seeds 1 …] [--set NAME=VALUE …]

Training and test data are those of `fsdd_strings`; what is not set are the defaults of the preset. For each speaker and seed a
line is printed as soon as it is known: the share of digits wrong in strings (with the words of training as lexicon), the share of
single recordings right, alone and with a pause before and after, and the word error on the dev strings of known speakers.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import anaphora as an
import fsdd_strings as fsdd
from anaphora.data.batches.pooled import random_of

Pairs = list[tuple[tuple[Any, int], str]]


def pairs(rows: list[fsdd.Digit]) -> Pairs:
    return [((wave, fsdd.RATE), words) for words, wave in rows]


def corpus(recordings: Path, held_out: str) -> dict[str, Pairs]:
    """The lists of `fsdd_strings` in memory."""
    by_speaker = fsdd.read(recordings)
    unseen = [digit for _, digit in by_speaker.pop(held_out)]
    known = list(by_speaker.values())
    voices = {
        "train": [[digit for number, digit in rows if number >= fsdd.DEV_BELOW] for rows in known],
        "dev": [[digit for number, digit in rows if number < fsdd.DEV_BELOW] for rows in known],
        "test": [unseen],
    }
    found = {
        name: pairs(fsdd.strings(name, of, random_of(1, place)))
        for place, (name, of) in enumerate(voices.items())
    }
    padded = [fsdd.string([digit], 1, True, random_of(2, i)) for i, digit in enumerate(unseen)]
    return {**found, "singles": pairs(unseen), "padded": pairs(padded)}


def others(recordings: Path) -> dict[str, Pairs]:
    """Strings and single recordings of all speakers of another folder, such as `synthetic_digits` writes."""
    speakers = [[digit for _, digit in rows] for rows in fsdd.read(recordings).values()]
    return {
        "others": pairs(fsdd.strings("test", speakers, random_of(3, 0))),
        "others_singles": pairs([digit for rows in speakers for digit in rows]),
    }


def measure(
    data: dict[str, Pairs], settings: dict[str, Any], details: bool, voices: int, adapt: int
) -> dict[str, float]:
    began = time.perf_counter()
    model = an.Transcriber(**settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(data["train"], valid=data["dev"])
    seconds = time.perf_counter() - began
    scores = {name: model.score(data[name], lexicon="train") for name in ("dev", "test", "singles", "padded")}
    heard = {}
    if "others" in data:
        heard["others_wrong"] = model.score(data["others"], lexicon="train")["wer"]
        heard["others_right"] = model.score(data["others_singles"], lexicon="train")["exact_match"]
    if voices > 1:
        heard["voices_strings"] = model.score(data["test"], lexicon="train", voices=voices)["wer"]
        heard["voices_singles"] = model.score(data["singles"], lexicon="train", voices=voices)["exact_match"]
    if adapt:
        heard |= adapted(model, data, adapt)
    if details:
        print(
            {name: scores["test"][name] for name in ("substitutions", "insertions", "deletions", "errors")},
            flush=True,
        )
    return {
        "strings_wrong": scores["test"]["wer"],
        "singles_right": scores["singles"]["exact_match"],
        "padded_right": scores["padded"]["exact_match"],
        "dev_wrong": scores["dev"]["wer"],
        "seconds": seconds,
        **heard,
    }


def adapted(model: Any, data: dict[str, Pairs], rounds: int) -> dict[str, float]:
    """Scores after the model has adapted to the strings, and to the single recordings, of the speaker held out, without their words."""
    found = {}
    for name in ("test", "singles"):
        began = time.perf_counter()
        other = model.adapt([sound for sound, _ in data[name]], rounds=rounds, lexicon="train")
        seconds = time.perf_counter() - began
        found[f"adapted_to_{name}_strings"] = other.score(data["test"], lexicon="train")["wer"]
        found[f"adapted_to_{name}_singles"] = other.score(data["singles"], lexicon="train")["exact_match"]
        found[f"adapted_to_{name}_seconds"] = seconds
    return found


def value(text: str) -> tuple[str, Any]:
    name, _, given = text.partition("=")
    try:
        return name, json.loads(given)
    except ValueError:
        return name, given


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recordings", type=Path, help="the folder recordings of fsdd")
    parser.add_argument("--held-out", nargs="+", default=["george", "nicolas", "theo", "yweweler"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--set", nargs="*", type=value, default=[], metavar="NAME=VALUE")
    parser.add_argument("--name", default="", help="what to call these settings in the lines")
    parser.add_argument("--voices", type=int, default=1, help="score with so many voices, too")
    parser.add_argument(
        "--adapt", type=int, default=0, help="adapt to the unlabelled recordings in so many rounds, too"
    )
    parser.add_argument("--others", type=Path, help="score recordings of other speakers in this folder, too")
    parser.add_argument("--errors", action="store_true", help="print the commonest errors in strings, too")
    asked = parser.parse_args()
    for speaker in asked.held_out:
        data = corpus(asked.recordings, speaker) | (others(asked.others) if asked.others else {})
        for seed in asked.seeds:
            found = measure(data, {**dict(asked.set), "seed": seed}, asked.errors, asked.voices, asked.adapt)
            line = "  ".join(f"{key} {number:6.2f}" for key, number in found.items())
            print(f"{asked.name:12} {speaker:9} seed {seed}  {line}", flush=True)


if __name__ == "__main__":
    main()
