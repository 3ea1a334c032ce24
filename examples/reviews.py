"""Classify film reviews: does the order of words matter, and what does an answer rest on?"""

import argparse
import tempfile
from pathlib import Path

import anaphora as an

HARD = "completely lacking a good script, good actors and a good director"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", default="reviews", help="a file of texts and labels, or a corpus")
    parser.add_argument("--steps", type=int, default=150, help="steps of training")
    parser.add_argument("--out", type=Path, default=None, help="where runs and pictures go")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp(prefix="reviews-"))

    common = {"steps": options.steps, "hidden": 64, "valid_every": 50, "device": "cpu"}
    models = {"bow": dict(common), "lstm": dict(common)}
    del models["bow"]["hidden"]
    fitted: dict[str, an.Classifier] = {}
    for name, settings in models.items():
        fitted[name] = an.Classifier(name, **settings).fit(options.data, out=out / name, verbose=False)
    fitted["ngrams"] = an.Classifier("ngrams").fit(options.data, verbose=False)

    print(f"{'model':8} {'accuracy':>8}  {HARD!r}")
    for name, model in fitted.items():
        print(f"{name:8} {model.score(options.data)['accuracy']:8.1f}  {model.predict([HARD])[0]}")

    trace = fitted["lstm"].probe(HARD, what=("attribution",))
    trace.view("attribution").save(out / "attribution.html")
    trace.view("states").save(out / "states.svg")
    found = an.compare(out / "bow", out / "lstm", data=options.data)
    (out / "compare.txt").write_text(str(found), encoding="utf-8")
    print(f"Runs, pictures and a comparison: {out}")


if __name__ == "__main__":
    main()
