"""Write Python source, symbol by symbol: counts against a network, and what the temperature does."""

import argparse
import tempfile
from pathlib import Path

import anaphora as an


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", default="python:names", help="a text file, or a corpus")
    parser.add_argument("--steps", type=int, default=400, help="steps of training")
    parser.add_argument("--out", type=Path, default=None, help="where runs and pictures go")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp(prefix="writing-"))

    common = {"tokens": "char", "lines": True}
    counts = an.LanguageModel("ngram", order=5, **common).fit(options.data, out=out / "ngram", verbose=False)
    network = an.LanguageModel(
        "lstm", hidden=64, steps=options.steps, valid_every=100, device="cpu", **common
    )
    network.fit(options.data, out=out / "lstm", verbose=False)

    for name, model in {"5-grams": counts, "LSTM": network}.items():
        print(f"{name:8} perplexity {model.score(options.data)['perplexity']:.2f} per character")
        for temperature in (0.5, 1.0, 1.5):
            print(f"  T = {temperature}: {model.sample('', temperature=temperature, length=40, seed=1)!r}")

    network.probe("read_file").view("sampling").save(out / "sampling.svg")
    an.history(out / "lstm").view("samples").save(out / "samples.html")  # noise becomes words
    print(f"Runs and pictures: {out}")


if __name__ == "__main__":
    main()
