"""Forecast the position of a weight on a spring, with intervals, beside the models before networks."""

import argparse
import tempfile
from pathlib import Path

import anaphora as an


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "data", nargs="?", default="waves", help="a CSV file with a column for each series, or a corpus"
    )
    parser.add_argument("--steps", type=int, default=200, help="steps of training")
    parser.add_argument("--out", type=Path, default=None, help="where runs and pictures go")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp(prefix="spring-"))

    ahead = {"targets": "position", "horizon": 12}
    network = {"hidden": 32, "steps": options.steps, "valid_every": 50, "device": "cpu"}
    models = {
        "var": an.Forecaster("var", **ahead),
        "kalman": an.Forecaster("kalman", **ahead),
        "lstm": an.Forecaster("lstm", **ahead, **network),
    }
    for name, model in models.items():
        model.fit(options.data, out=out / name, verbose=False)
        found = {key: value for key, value in model.score(options.data).items() if isinstance(value, float)}
        print(name.ljust(7), "  ".join(f"{key} {value:.3f}" for key, value in list(found.items())[:4]))

    an.history(out / "lstm").view("curves").save(out / "curves.svg")
    print(f"Runs and pictures: {out}")


if __name__ == "__main__":
    main()
