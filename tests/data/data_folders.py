"""A folder of texts with a folder per label, for tests."""

from __future__ import annotations


def text_folder(folder, count=2):
    for label in ("neg", "pos"):
        (folder / label).mkdir(parents=True)
        for number in range(count):
            (folder / label / f"{number}.txt").write_text(f"a {label} film,\nnumber {number}\n")
    return folder
