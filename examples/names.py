"""Tag names: Teddy Roosevelt is a person, Teddy bears are toys. What do context and a CRF add?"""

import argparse
import tempfile
from pathlib import Path

import anaphora as an

ASKED = ["we saw Teddy bears", "we saw Teddy Roosevelt", "she likes Apple juice", "she likes Apple stores"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", default="names", help="CoNLL columns, a table, or a corpus")
    parser.add_argument("--steps", type=int, default=120, help="steps of training")
    parser.add_argument("--out", type=Path, default=None, help="where runs and pictures go")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp(prefix="names-"))

    small = {
        "hidden": 24,
        "embedding": 24,
        "steps": options.steps,
        "valid_every": 60,
        "lr": 0.02,
        "device": "cpu",
    }
    models = {
        "hmm": an.Tagger("hmm"),
        "left to right": an.Tagger("bilstm", bidirectional=False, **small),
        "both sides": an.Tagger("bilstm", **small),
        "both sides and CRF": an.Tagger("bilstm-crf", **small),
    }
    for name, model in models.items():
        model.fit(options.data, out=out / name.replace(" ", "-"), verbose=False)
        found = model.score(options.data)
        print(
            f"{name:20} precision {found['precision']:5.1f}  recall {found['recall']:5.1f}  F1 {found['f1']:5.1f}"
        )

    best = models["both sides and CRF"]
    for text, tags in zip(ASKED, best.predict([text.split() for text in ASKED]), strict=True):
        print(" ".join(f"{word}/{tag}" for word, tag in zip(text.split(), tags, strict=True)))
    best.probe(ASKED[1]).view("states").save(out / "states.svg")
    print(f"Runs and a picture: {out}")


if __name__ == "__main__":
    main()
