"""Refuse words of our own where the field has words: ``python tools/words.py`` (``make lint``).

It reads the source, the benchmarks, the tools and the pages; of Python the comments and texts alone, so that a name in the code may be any
word. A line that means something else by such a word is listed in ``ALLOWED``.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACES = (
    *("src/anaphora", "benchmarks", "docs", "examples", "tools"),
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
)
ENDINGS = {".py", ".c", ".h", ".cu", ".md", ".toml"}
WORDS = {
    r"turned(?! (?:into|as|clockwise|off|on|left to right|by a quarter)\b)": "reversed or transposed",
    r"told": "reported, an error, warns; or call it with …",
    r"(?:say|says|said) so": "warns, is an error, names it",
    r"whoever|who reads|who asks|who has given up": "name the actor: the caller, a model that reads …",
    r"nobody|somebody|anybody": "no one, someone, or name the actor; asynchronous for what no one waits for",
    r"parted by": "separated by",
    r"besides the file": "in addition to the file",
    r"in vain|has given up|was given up": "timed out, was abandoned",
    r"without a word": "silently, unless set",
    r"on a processor": "on the CPU, on an SM",
    r"CannotPrint|PRINTED_\w+|printed (?:kernel|program|code|C)s?": "generated",
    r"recorded (?:as a|graph)|recorded on the GPU": "captured",
    r"way of running|ways to run": "backends, methods",
    r"flattering": "optimistic",
    r"(?:from|of) strangers": "untrusted",
    r"turned round|by its side|in their turn|as it were": "reversed, beside it, one after the other",
    r"computed, not waited for|waited for by no one": "asynchronous",
    r"(?<![`.{])learnt(?!\.json|[:`[])": "learned; artifacts for what a run keeps",
    r"asked for": "the target, requested, needed, or the name of the option",
    r"(?:asked|said) otherwise": "by default",
    r"(?<!`)anew(?!`)": "again, from scratch",
    r"everybody": "everyone",
    r"for want of": "for lack of",
    r"misspelt|spelt": "misspelled, spelled",
    r"(?:was|is) said so|is not told": "is reported, is not given",
}
"""A pattern of whole words, and what to write instead."""
ALLOWED = {
    "src/anaphora/data/corpora/sentences.py": r"nobody (mentioned|will find)",  # sentences of the corpus
    "tools/words.py": r".*",
}


_ALL = re.compile(
    "|".join(rf"(?P<w{n}>(?<![\w-])(?:{word})(?![\w-]))" for n, word in enumerate(WORDS)), re.IGNORECASE
)


def findings(path: Path, name: str) -> list[str]:
    """``name:line: 'word': say …`` for each such word of a file."""
    text, better, found = path.read_text(encoding="utf-8"), list(WORDS.values()), []
    prose: list[range] | None = None
    for match in _ALL.finditer(text):
        if path.suffix == ".py":
            prose = _prose(text) if prose is None else prose
            if not any(match.start() in piece for piece in prose):
                continue
        number = text.count("\n", 0, match.start()) + 1
        if not re.search(ALLOWED.get(name, r"(?!)"), text.splitlines()[number - 1]):
            found.append(f"{name}:{number}: {match[0]!r}: say {better[int(str(match.lastgroup)[1:])]}")
    return found


def _prose(code: str) -> list[range]:
    """Where comments and texts of more than one word stand in a Python file."""
    starts = [0, *accumulate(len(line) for line in code.splitlines(keepends=True))]
    found = []
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        words = token.type == tokenize.COMMENT or (token.type in _TEXTS and " " in token.string)
        if words:
            (line, column), (last, end) = token.start, token.end
            found.append(range(starts[line - 1] + column, starts[last - 1] + end))
    return found


_TEXTS = {
    tokenize.STRING,
    getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING),
}  # texts with fields have parts from Python 3.12 on


def main() -> int:
    found = []
    for place in PLACES:
        start = ROOT / place
        files = [start] if start.is_file() else sorted(p for p in start.rglob("*") if p.suffix in ENDINGS)
        for path in files:
            found += findings(path, path.relative_to(ROOT).as_posix())
    print("\n".join(found) or "words: none of our own")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
