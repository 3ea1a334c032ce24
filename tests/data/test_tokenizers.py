"""I8: Tokenizers: the textbook merges, losslessness, unknown symbols, files from elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anaphora.data.symbols import EOS, PAD, UNK
from anaphora.data.table import HeldTable
from anaphora.data.tokenizers import PairTokenizer, Tokenizer
from anaphora.data.tokenizers.vocabularies import single_spaced
from anaphora.errors import DataError

TOY = ["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3
TEXTS = ["two dogs run .", "zwei Hunde laufen .", "the <unk> dog , the dogs", "a dog runs"] * 3
PLAIN_BPE = Tokenizer.train(TEXTS, kind="bpe", vocab_size=1100)
LOSSLESS = {
    "bpe": PLAIN_BPE,
    "char": Tokenizer.train(["a " + "".join(map(chr, range(32, 0x250)))], kind="char", vocab_size=2000),
}


def merges(tokenizer: Tokenizer) -> list[list[str]]:
    found: list[list[str]] = json.loads(tokenizer.to_json())["model"]["merges"]
    return found


def test_the_textbook_example_joins_es_then_est_then_lo() -> None:
    assert merges(Tokenizer.train(TOY, kind="bpe", vocab_size=40))[:3] == [
        ["e", "s"],
        ["es", "t"],
        ["l", "o"],
    ]


def test_merges_are_those_of_counting_by_hand() -> None:
    """An independent trainer: recount all neighbours after every merge, take the most frequent."""
    words = Counter(tuple(f" {word}") for word in TOY)
    rank = {c: i for i, c in enumerate(sorted({c for w in words for c in w}, key=lambda c: (c == " ", c)))}
    expected = []
    while True:
        counts: Counter[tuple[str, str]] = Counter()
        for word, n in words.items():
            for pair in pairwise(word):
                counts[pair] += n
        if not counts or max(counts.values()) < 2:
            break
        best = min(counts, key=lambda p: (-counts[p], rank[p[0]], rank[p[1]]))
        rank["".join(best)] = len(rank)
        expected.append(list(best))
        joined: Counter[tuple[str, ...]] = Counter()
        for word, n in words.items():
            out, i = [], 0
            while i < len(word):
                two = word[i : i + 2] == best
                out.append("".join(best) if two else word[i])
                i += 2 if two else 1
            joined[tuple(out)] += n
        words = joined
    assert merges(Tokenizer.train(TOY, kind="bpe", vocab_size=60)) == expected


@pytest.mark.parametrize("kind", LOSSLESS)
@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=0x24F), max_size=40))
@example("</s> <pad> <s> <unk>")
@example("")
@example("x" * 300)
def test_decoding_gives_the_text_back(kind: str, text: str) -> None:
    text = single_spaced(text)
    tokenizer = LOSSLESS[kind]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert min(ids, default=4) > EOS


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
@example("▁ ▁a a▁b")
@example("<0x41> <0xE2>")
@example("a\u2028b \u0301 \x1c\x00")
@example("👩‍👩‍👧 مرحبا")
def test_bpe_knows_every_character(text: str) -> None:
    text = single_spaced(text)
    assert PLAIN_BPE.decode(PLAIN_BPE.encode(text)) == text


def test_spaces_are_single_and_never_at_the_ends() -> None:
    for tokenizer in LOSSLESS.values():
        assert tokenizer.decode(tokenizer.encode("  a \t dog\nruns\u00a0 ")) == "a dog runs"


def test_characters() -> None:
    tokenizer = Tokenizer.train(["ab b"], kind="char", vocab_size=100)
    assert tokenizer.pieces(range(tokenizer.size)) == ["<pad>", "<unk>", "<s>", "</s>", "b", "▁", "a"]
    assert tokenizer.encode("ba z") == [4, 6, 5, UNK]
    assert tokenizer.decode([4, 6, 5, UNK]) == "ba <unk>"


def test_words_by_frequency_then_alphabet() -> None:
    tokenizer = Tokenizer.train(["b a c", "c d"], kind="word", vocab_size=7)
    assert tokenizer.pieces(range(tokenizer.size))[4:] == ["▁c", "▁a", "▁b"]
    assert tokenizer.encode("b d c") == [6, UNK, 4]
    assert tokenizer.decode([UNK, 6, UNK, 4]) == "<unk> b <unk> c"


def test_a_word_spelled_like_a_special_symbol_is_a_word() -> None:
    tokenizer = Tokenizer.train(["a </s> b"], kind="word", vocab_size=20)
    assert EOS not in tokenizer.encode("a </s> b")
    assert tokenizer.decode(tokenizer.encode("a </s> b")) == "a </s> b"


def test_decoding_stops_at_the_end_symbol_and_skips_padding() -> None:
    ids = PLAIN_BPE.encode("two dogs")
    assert PLAIN_BPE.decode([2, *ids, EOS, *ids]) == "two dogs"
    assert PLAIN_BPE.decode([*ids, PAD, PAD]) == "two dogs"


def test_punctuation_at_a_words_end_does_not_make_a_new_word() -> None:
    tokenizer = Tokenizer.train(["dog dog. dog, it's 3.5"] * 9, kind="bpe", vocab_size=60)
    assert tokenizer.pieces(tokenizer.encode("dog. dog, it's 3.5")) == [
        "▁dog",
        ".",
        "▁dog",
        ",",
        "▁it's",
        "▁3.5",
    ]


def test_lower_case() -> None:
    for kind in ("char", "word", "bpe"):
        tokenizer = Tokenizer.train(["Ein HUND"] * 2, kind=kind, vocab_size=50, lowercase=True)
        again = Tokenizer.from_json(tokenizer.to_json())
        assert again.lowercase
        assert again.decode(again.encode("EIN Hund")) == "ein hund"


def test_small_vocabularies_hold_no_bytes() -> None:
    tokenizer = Tokenizer.train(TOY, kind="bpe", vocab_size=20)
    assert tokenizer.size == 20
    assert tokenizer.encode("☃")[-1] == UNK
    assert tokenizer.decode(tokenizer.encode("low☃")) == "low<unk>"


def test_a_large_alphabet_is_cut_to_its_most_frequent_characters() -> None:
    texts = [chr(0x4E00 + i) * (2 + i % 7) for i in range(3000)]
    tokenizer = Tokenizer.train(texts, kind="bpe", vocab_size=1100)
    assert tokenizer.size <= 1100
    rare, frequent = chr(0x4E00), chr(0x4E00 + 6)
    assert len(tokenizer.encode(frequent)) <= 2
    assert tokenizer.decode(tokenizer.encode(rare + frequent)) == rare + frequent


def test_training_is_the_same_in_another_process() -> None:
    """Many ties: hash-ordered words must not decide them."""
    program = (
        "import hashlib\nfrom anaphora.data.tokenizers import Tokenizer\n"
        "letters = [chr(97 + i % 26) + chr(97 + i % 25) + chr(0x4e00 + i % 900) for i in range(2000)]\n"
        "texts = [f'{i * 7919 % 1000} {word}' for i, word in enumerate(letters)]\n"
        "made = [Tokenizer.train(texts, kind=k, vocab_size=1100).to_json() for k in ('bpe', 'word')]\n"
        "print(hashlib.sha256(''.join(made).encode()).hexdigest())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": str(seed), "RAYON_NUM_THREADS": str(1 + seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(3)
    }
    assert len(found) == 1


def test_text_without_spaces_stays_cheap() -> None:
    start = time.process_time()  # half a second; other work on the machine does not count
    tokenizer = Tokenizer.train(["ab" * 1_000_000], kind="bpe", vocab_size=1100)
    assert len(tokenizer.encode("ab" * 1_000_000)) > 0
    assert time.process_time() - start < 20


def test_half_a_character_is_named() -> None:
    with pytest.raises(DataError, match=r"lone surrogate U\+D800 at position 2"):
        PLAIN_BPE.encode("a \ud800")
    with pytest.raises(DataError, match="lone surrogate"):
        Tokenizer.train(["\udfff"], kind="char", vocab_size=10)


@pytest.mark.parametrize("kind", ["char", "word", "bpe"])
def test_json_brings_the_same_tokenizer_back(kind: str) -> None:
    tokenizer = Tokenizer.train(TEXTS, kind=kind, vocab_size=60)
    again = Tokenizer.from_json(tokenizer.to_json())
    assert again.to_json() == tokenizer.to_json()
    assert again.kind == kind
    assert again.encode("two dogs laufen") == tokenizer.encode("two dogs laufen")


def _changed(path: list[str], value: object) -> str:
    data = json.loads(PLAIN_BPE.to_json())
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "[" * 100_000,
        PLAIN_BPE.to_json()[:-20],
        _changed(["model", "vocab"], {}),
        _changed(["model", "vocab", "</s>"], 70_000),
        _changed(["model", "merges"], [["never", "seen"]]),
        _changed(
            ["pre_tokenizer"],
            {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False},
        ),
        _changed(["added_tokens"], [{"id": 3, "content": "</s>"}]),
    ],
)
def test_a_tokenizer_from_elsewhere_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(DataError, match="train again"):
        Tokenizer.from_json(text)


def test_pair_tokenizer() -> None:
    pairs = HeldTable([("two dogs", "zwei Hunde"), ("a dog", "ein Hund")], {})
    separate = PairTokenizer.train(pairs, kind="word", vocab_size=50)
    assert separate.source.encode("zwei") == [UNK]
    joint = PairTokenizer.train(pairs, kind="word", vocab_size=50, joint=True)
    assert joint.source is joint.target
    assert joint.source.encode("zwei") != [UNK]
    for tokenizer in (separate, joint):
        again = PairTokenizer.from_json(tokenizer.to_json())
        assert again.to_json() == tokenizer.to_json()
        assert (again.source is again.target) == tokenizer.joint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        '{"format": 2}',
        '{"format": 1}',
        '{"format": 1, "joint": false, "source": 3, "target": 4}',
        "[" * 100_000,
    ],
)
def test_a_broken_pair_tokenizer_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="train again"):
        PairTokenizer.from_json(text)
