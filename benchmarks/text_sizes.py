"""From how many texts on a network is better than `ngrams`: the presets of `Classifier` on 1 000 to 64 000 sentences, and on as many words.

    python benchmarks/text_sizes.py fra.txt cmudict.dict --models ngrams lstm --sizes 1000 4000 16000 64000

``address``: English sentences of Tatoeba, and whether their French translation (the second column of FRA) says *tu*, *vous*, *je* or none of
them, the first that holds. ``stress``: words of the CMU dictionary with two syllables or more, and which syllable is stressed: the first, the second or
one behind it. 4 000 others judge. Prints accuracy and macro F1 in percent, and seconds of training; one thread, one seed.
"""

from __future__ import annotations

import argparse
import random
import re
import time
import warnings
from pathlib import Path

import torch

import anaphora as an
from text_classes import measured

JUDGES = 4000
PERSONS = {
    "tu": {"tu", "t", "te", "toi", "ton", "ta", "tes"},
    "vous": {"vous", "votre", "vos"},
    "je": {"je", "j", "me", "moi", "mon", "ma", "mes"},
}
Rows = list[tuple[str, str]]


def address(path: Path) -> Rows:
    """Each English sentence once, by its first translation."""
    found: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        english, french = line.split("\t")[:2]
        words = set(re.findall(r"\w+", french.lower()))
        found.setdefault(english, next((name for name, own in PERSONS.items() if own & words), "none"))
    return list(found.items())


def stress(path: Path) -> Rows:
    """Each word once, by its first pronunciation."""
    found: dict[str, str] = {}
    for line in path.read_text(encoding="latin-1").splitlines():
        word, *phones = line.split("#")[0].split() or [""]
        vowels = [phone for phone in phones if phone[-1].isdigit()]
        stressed = [i for i, vowel in enumerate(vowels) if vowel.endswith("1")]
        if word.isalpha() and len(vowels) > 1 and stressed:
            found.setdefault(word, str(min(3, stressed[0] + 1)))
    return list(found.items())


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("fra", type=Path)
    given.add_argument("cmudict", type=Path)
    given.add_argument("--models", nargs="+", default=["ngrams", "lstm"])
    given.add_argument("--sizes", nargs="+", type=int, default=[1000, 4000, 16000, 64000])
    asked = given.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name, rows in (("address", address(asked.fra)), ("stress", stress(asked.cmudict))):
        random.Random(5).shuffle(rows)
        judges, rest = rows[:JUDGES], rows[JUDGES:]
        texts, truth = map(list, zip(*judges, strict=True))
        for size in asked.sizes:
            for model in asked.models:
                begun = time.monotonic()
                m = an.Classifier(model).fit(rest[:size])
                seconds = time.monotonic() - begun
                right, f1 = measured("class", truth, list(m.predict(texts)))
                print(f"{name}  {size}  {model}  {right:.1f} ({f1:.1f})  {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
