"""Models of sentencepiece are read without its package, and cut texts into the same pieces."""

from __future__ import annotations

import io
import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_pairs import MODELS

import anaphora as an
from anaphora.data.tokenizers.own import read_own_tokenizer
from anaphora.data.tokenizers.pieces import PieceTokenizer, SentencePieces
from anaphora.data.tokenizers.vocabularies import Numbering
from anaphora.errors import AnaphoraError, DataError

LINES = [
    "The cat sat on the mat, and the dog ran far away.",
    "Two birds sing while it rains again and again!",
    "We see the sea; she sells sea shells by the shore.",
    "Le café naïve de 東京 coûte ½ € (①).",
    "Die Straße führt über die Brücke.",
] * 12
ODD = ["", " ", "  a  b ", "tab\there\r\nline", "a\u00a0b\u3000c", "ﬁne ½ ① x² №", "😀😀 </s> <unk>", "e\u0301 ⑻ۘ/W",
       "\u200bzero", "a\x00b", "▁x ▁", "ＦＵＬＬ", "trailing  ", "x" * 60]  # fmt: skip
KINDS: list[dict[str, Any]] = [
    {"model_type": "unigram"},
    {"model_type": "bpe"},
    {"model_type": "unigram", "normalization_rule_name": "identity", "add_dummy_prefix": False},
    {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "nfkc_cf", "vocab_size": 400},
    {"model_type": "unigram", "user_defined_symbols": "<sep>,sea", "remove_extra_whitespaces": False},
]


def trained(**settings: Any) -> bytes:
    sentencepiece = pytest.importorskip("sentencepiece")
    out = io.BytesIO()
    usual = {"vocab_size": 120, "minloglevel": 2, "num_threads": 1, **settings}
    if settings.get("model_type") != "bpe":
        usual["hard_vocab_limit"] = False
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(LINES), model_writer=out, **usual)
    return out.getvalue()


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_texts_are_cut_as_sentencepiece_cuts_them(kind: int) -> None:
    data = trained(**KINDS[kind])
    import sentencepiece

    theirs = sentencepiece.SentencePieceProcessor(model_proto=data)
    model = SentencePieces.parse(data)
    engine, numbers = model.engine()
    draw = random.Random(3)
    spread = [(32, 126), (0xA0, 0x24F), (0x300, 0x36F), (0x2000, 0x2FFF)]
    drawn = ["".join(chr(draw.randint(*draw.choice(spread))) for _ in range(15)) for _ in range(300)]
    for text in (*LINES, *ODD, *drawn):
        found = [numbers[i] for i in engine.encode(model.prepared(text)).ids]
        assert found == theirs.encode(text), text


def message(*fields: tuple[int, Any]) -> bytes:
    """A message of protobuf: numbers, floats and bytes."""
    found = b""
    for number, value in fields:
        if isinstance(value, bytes):
            found += bytes([number << 3 | 2]) + varint(len(value)) + value
        elif isinstance(value, float):
            found += bytes([number << 3 | 5]) + struct.pack("<f", value)
        else:
            found += varint(number << 3) + varint(value)
    return found


def varint(value: int) -> bytes:
    found = b""
    while value >= 128:
        found, value = found + bytes([value & 127 | 128]), value >> 7
    return found + bytes([value])


PIECES = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), ("▁", -3.0, 1), ("▁the", -1.0, 1), ("▁cat", -2.0, 1),
          ("t", -4.0, 1), ("h", -4.0, 1), ("e", -4.0, 1), ("s", -4.0, 1)]  # fmt: skip


def file_of(**changes: Any) -> bytes:
    pieces = [(1, message((1, text.encode()), (2, score), (3, kind))) for text, score, kind in PIECES]
    return message(*pieces, (2, message((3, changes.get("kind", 1)))), (3, message((3, 1), (4, 1), (5, 1))))


def test_a_file_is_read_without_the_package() -> None:
    vocabulary = [text for text, *_ in PIECES]
    words = PieceTokenizer(file_of(), vocabulary, Numbering(10, (None, 0, 1, 2)))
    spelled = words.pieces(words.encode("  the  cats </s>"))
    assert spelled == ["▁the", "▁cat", "s", "▁", "<unk>", "s", "<unk>"]  # what is spelled like an end is text
    assert words.decode(words.encode("the cats")) == "the cats"
    again = read_own_tokenizer(words.to_json(), "auto", trust=False)
    assert again.encode("the cats") == words.encode("the cats")
    assert again.spellings == words.spellings


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "no pieces"),
        (b"\xff" * 30, "no message of protobuf|without an end"),
        (file_of()[:-3], "cut off"),
        (file_of(kind=3), "model_type is 3"),
        (file_of() + message((3, message((2, b"\x08\0\0\0abc")))), "rules for characters are cut off"),
        (b"GIF89a" + b"\0" * 40, "no message|no pieces|cut off"),
    ],
)
def test_a_damaged_file_is_refused_in_one_sentence(data: bytes, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence) as caught:
        PieceTokenizer(data, ["<unk>"], Numbering(1, (None, 0, None, None)))
    assert "\n" not in str(caught.value)


def marian(folder: Path) -> Any:
    """A folder as Marian's are: two models that cut, one vocabulary in an order of its own."""
    transformers = pytest.importorskip("transformers")
    source, target = trained(), trained(model_type="bpe")
    pieces = {piece.text for data in (source, target) for piece in SentencePieces.parse(data).pieces}
    kept = sorted(pieces - {"<unk>", "<s>", "</s>"})[
        :-6
    ]  # some pieces of the models are not in the vocabulary
    listed = ["</s>", "<unk>", *kept, ">>fr<<", "<pad>"]
    folder.mkdir(parents=True)
    (folder / "source.spm").write_bytes(source)
    (folder / "target.spm").write_bytes(target)
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(listed)}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MarianTokenizer"}))
    pad = len(listed) - 1
    ids = {"vocab_size": len(listed), "pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": 0}
    config, kind, usual = MODELS["marian"]
    torch.manual_seed(2)
    model = getattr(transformers, kind)(getattr(transformers, config)(**(usual | ids))).eval()
    with torch.no_grad():
        for weight in filter(lambda one: one.requires_grad, model.parameters()):
            weight += 0.2 * torch.randn_like(weight)
    model.generation_config.bad_words_ids = [[pad]]
    model.generation_config.num_beams, model.generation_config.max_length = 4, 14
    model.save_pretrained(folder)
    return model


def test_a_folder_of_marian_gives_equal_ids_and_texts(tmp_path: Path) -> None:
    folder = tmp_path / "marian"
    theirs = marian(folder)
    import transformers

    tokens = transformers.MarianTokenizer.from_pretrained(folder)
    m = an.load(folder, an.Translator, device="cpu")
    texts = [*LINES[:5], ">>fr<< The dog", "unheard of: Жук", ""]
    order = m.tokenizer_.source.numbering.order
    for text, row in zip(texts, m.tokenizer_.sources(texts), strict=True):
        assert [*(order[i] for i in row), 0] == tokens(text).input_ids, text
    for text, row in zip(texts, m.tokenizer_.targets(texts), strict=True):
        assert [*(order[i] for i in row), 0] == tokens(text_target=text).input_ids
        if "Ж" not in text and ">>" not in text:
            shown = tokens.decode([order[i] for i in row], skip_special_tokens=True)
            assert m.tokenizer_.target.decode(row).replace("<unk>", "") == shown
    given = tokens(LINES[:4], return_tensors="pt", padding=True)
    written = tokens.batch_decode(theirs.generate(**given), skip_special_tokens=True)
    assert [text.replace("<unk>", "").strip() for text in m.predict(LINES[:4])] == written
    m.save(tmp_path / "run")
    again = an.load(tmp_path / "run", an.Translator, device="cpu")
    assert again.predict(LINES[:4]) == m.predict(LINES[:4])
    again.export(tmp_path / "back", to="hf")
    for name in ("source.spm", "target.spm"):
        assert (tmp_path / "back" / name).read_bytes() == (folder / name).read_bytes()
    assert json.loads((tmp_path / "back" / "vocab.json").read_text()) == json.loads(
        (folder / "vocab.json").read_text()
    )
    assert an.load(tmp_path / "back", an.Translator, device="cpu").predict(LINES[:4]) == m.predict(LINES[:4])
    reopened = transformers.MarianTokenizer.from_pretrained(tmp_path / "back")
    assert reopened(LINES[:3]).input_ids == tokens(LINES[:3]).input_ids


def test_a_spiece_model_of_t5_gives_equal_ids(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    data = trained(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    folder = tmp_path / "t5"
    config, kind, usual = MODELS["t5"]
    size = len(SentencePieces.parse(data).pieces) + 100
    model = getattr(transformers, kind)(getattr(transformers, config)(**(usual | {"vocab_size": size + 28})))
    model.save_pretrained(folder)
    (folder / "spiece.model").write_bytes(data)
    m = an.load(folder, an.Translator, device="cpu")
    order = m.tokenizer_.source.numbering.order
    tokens = transformers.T5Tokenizer.from_pretrained(folder)
    texts = [*LINES[:5], "the <extra_id_0> sat <extra_id_99> away"]
    for text, row in zip(texts, m.tokenizer_.sources(texts), strict=True):
        assert [*(order[i] for i in row), 1] == tokens(text).input_ids, text
        assert m.tokenizer_.target.decode(row) == tokens.decode(
            tokens(text).input_ids, skip_special_tokens=True
        )
    m.export(tmp_path / "back", to="hf")
    assert (tmp_path / "back" / "spiece.model").read_bytes() == data
    again = an.load(tmp_path / "back", an.Translator, device="cpu")
    assert again.tokenizer_.sources(texts) == m.tokenizer_.sources(texts)


def test_a_vocabulary_that_does_not_fit_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "marian"
    marian(folder)
    (folder / "vocab.json").write_text(json.dumps({"a": 0, "b": 0}))
    with pytest.raises(AnaphoraError, match=r"vocab.json does not number its 2 pieces"):
        an.load(folder)
    (folder / "source.spm").write_bytes(b"\x08")
    with pytest.raises(AnaphoraError, match="tokenizer does not fit"):
        an.load(folder)
