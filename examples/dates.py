"""Translate dates as people write them ("March 3rd, 1999") to ISO 8601, and see where the model looks."""

import argparse
import tempfile
from pathlib import Path

import anaphora as an

ASKED = ["March 3rd, 1999", "the fourth of July 1976", "12 Nov 2031"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", default="dates", help="a file of pairs, or a corpus")
    parser.add_argument("--steps", type=int, default=400, help="steps of training")
    parser.add_argument("--out", type=Path, default=None, help="where the run and pictures go")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp(prefix="dates-"))

    model = an.Translator(
        "lstm-attention",
        tokens="char",  # dates are spelled, not made of words
        hidden=64,
        embedding=32,
        steps=options.steps,
        valid_every=100,
        valid_examples=50,
        max_length=12,
        device="cpu",
    )
    model.fit(options.data, out=out / "run", verbose=False)
    print("exact match, dev data:", model.score(options.data)["exact_match"])

    for asked, found in zip(ASKED, model.search(ASKED, beam=5, n_best=2), strict=True):
        best, second = found[0], found[1]
        print(f"{asked:28} {best.text}  (then {second.text}, {second.score - best.score:+.2f})")

    trace = model.probe(ASKED[0])
    trace.view("alignment").save(out / "alignment.html")
    trace.view("beam").save(out / "beam.svg")
    an.history(out / "run").view("curves").save(out / "curves.svg")
    print(f"The run and pictures: {out}")


if __name__ == "__main__":
    main()
