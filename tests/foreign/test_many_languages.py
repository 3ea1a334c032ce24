"""M2M-100 and NLLB: a language is chosen for the source and for the output, and a missing one is an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_pairs import MODELS, TEXTS, made
from test_sentencepiece import LINES, ODD, trained

import anaphora as an
from anaphora.cli import main
from anaphora.data.tokenizers.vocabularies import Around
from anaphora.errors import AnaphoraError, DataError
from anaphora.tasks.translate.inference import search_outputs

transformers = pytest.importorskip("transformers")


def m2m(folder: Path, **values: Any) -> Any:
    """A folder with a model of sentencepiece and a vocabulary that numbers its pieces in another order."""
    data = trained(model_type="bpe")
    import sentencepiece

    cutter = sentencepiece.SentencePieceProcessor(model_proto=data)
    pieces = [cutter.id_to_piece(i) for i in range(3, len(cutter))]
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", *sorted(pieces)]
    folder.mkdir(parents=True)
    (folder / "sentencepiece.bpe.model").write_bytes(data)
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(vocabulary)}))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "M2M100Tokenizer", "language_codes": "m2m100", **values})
    )
    config, kind, sizes = MODELS["m2m"]
    special = {"vocab_size": len(vocabulary) + 108, "pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 0}
    torch.manual_seed(5)
    model = getattr(transformers, kind)(
        getattr(transformers, config)(**(sizes | special | {"decoder_start_token_id": 2}))
    ).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.2 * torch.randn_like(weight)
    model.save_pretrained(folder)
    return model


def test_ids_and_outputs_of_every_direction_are_theirs(tmp_path: Path) -> None:
    theirs = m2m(tmp_path / "m2m")
    tokenizer = transformers.M2M100Tokenizer.from_pretrained(tmp_path / "m2m")
    m = an.load(tmp_path / "m2m", an.Translator, device="cpu")
    order = m.tokenizer_.source.numbering.order
    texts = [text for text in (*LINES[:5], *ODD) if "<" not in text and "\x00" not in text]
    for source, target in (("en", "fr"), ("de", "zu")):
        tokenizer.src_lang = source
        pair = m.tokenizer_.between(source, target)
        for text, ids in zip(texts, pair.sources(texts), strict=True):
            assert [*(order[i] for i in ids), 2] == tokenizer(text).input_ids, text
        asked = tokenizer(LINES[:4], padding=True, return_tensors="pt")
        forced = tokenizer.get_lang_id(target)
        written = theirs.generate(**asked, forced_bos_token_id=forced, num_beams=1, max_length=12)
        found = search_outputs(m.model_, pair.sources(LINES[:4]), around=pair.around, beam=1, max_length=11)
        for nbest, row in zip(found, written.tolist(), strict=True):
            assert [order[i] for i in nbest[0].tokens] == [i for i in row[1:] if i not in (1, 2)]
        again = m.predict(LINES[:4], source_language=source, target_language=target, beam=1, max_length=11)
        assert again == [m.tokenizer_.target.decode(nbest[0].tokens) for nbest in found]
        assert "__" not in "".join(again)


def test_a_language_that_is_missing_or_unknown_is_an_error(tmp_path: Path, capsys: Any) -> None:
    m2m(tmp_path / "m2m", src_lang="en")
    m = an.load(tmp_path / "m2m", an.Translator, device="cpu")
    with pytest.raises(
        AnaphoraError, match="between 100 languages: choose both with source_language and target_"
    ):
        m.predict(["a cat"])
    with pytest.raises(
        AnaphoraError, match="target_language = 'xx' is none of the model's languages: af, am"
    ):
        m.predict(["a cat"], target_language="xx")
    m.save(tmp_path / "run")
    (tmp_path / "text.txt").write_text("the cat\n")
    ask = ["predict", str(tmp_path / "run"), str(tmp_path / "text.txt"), "--set", "max_length=6"]
    assert main.run(ask) == 2
    assert "choose both" in capsys.readouterr().err
    assert main.run([*ask, "--set", "target_language=fr"]) == 0
    french = capsys.readouterr().out.splitlines()
    assert french == m.predict(["the cat"], target_language="fr", max_length=6)
    asked = ["import", str(tmp_path / "m2m"), "-o", str(tmp_path / "en-fr")]
    assert main.run([*asked, "--target-language", "xx"]) == 2
    assert main.run([*asked, "--target-language", "fr"]) == 0
    assert an.load(tmp_path / "en-fr", device="cpu").predict(["the cat"], max_length=6) == french


def test_a_translator_of_two_languages_has_none_to_choose(tmp_path: Path) -> None:
    made(tmp_path, "marian")
    m = an.load(tmp_path, an.Translator, device="cpu")
    with pytest.raises(DataError, match="does not choose among languages"):
        m.between("en", "de")


def test_pieces_and_directions_go_back(tmp_path: Path) -> None:
    m2m(tmp_path / "m2m")
    m = an.load(tmp_path / "m2m", an.Translator, device="cpu").between("en", "fr")
    m.export(tmp_path / "back", to="hf")
    again = an.load(tmp_path / "back", an.Translator, device="cpu")
    assert again.tokenizer_.around == m.tokenizer_.around
    assert again.predict(LINES[:2], max_length=8) == m.predict(LINES[:2], max_length=8)
    tokenizers = [
        transformers.M2M100Tokenizer.from_pretrained(tmp_path / one, src_lang="en") for one in ("m2m", "back")
    ]
    assert len({tuple(one(LINES[0]).input_ids) for one in tokenizers}) == 1


def test_nllb_reads_its_languages_from_the_tokenizer(tmp_path: Path) -> None:
    made(tmp_path, "m2m")
    m = an.load(tmp_path, an.Translator, device="cpu")
    assert list(m.tokenizer_.around.languages) == ["eng_Latn", "fra_Latn"]
    usual = m.predict(TEXTS, max_length=7)
    assert m.predict(TEXTS, source_language="fra_Latn", target_language="eng_Latn", max_length=7) != usual
    assert "Latn" not in "".join(usual)


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("tokenizer_config.json", {"language_codes": "klingon"}, "language_codes = 'klingon'"),
        ("tokenizer_config.json", {"legacy_behaviour": True}, "puts the language behind a text"),
        ("tokenizer_config.json", {"src_lang": "xx"}, "source_language = 'xx' is none of"),
        ("vocab.json", {"<s>": 0, "<unk>": 0}, "does not number its 2 pieces"),
        ("vocab.json", {f"p{i}": i for i in range(200)}, "more than"),
        ("vocab.json", {"a": 0}, "no <unk>"),
    ],
)
def test_what_does_not_fit_is_named(
    file: str, content: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    m2m(tmp_path / "m2m")
    (tmp_path / "m2m" / file).write_text(json.dumps(content))
    with pytest.raises(AnaphoraError, match=sentence):
        an.load(tmp_path / "m2m")


def test_a_stored_direction_is_read_again() -> None:
    around = Around(languages={"en": 7, "fr": 9}).between("en", "fr")
    assert (around.before, around.first, around.open) == ((7,), (9,), "")
    assert Around.from_json(around.to_json()) == around
    assert "languages" not in Around().to_json()
    with pytest.raises(ValueError, match="count from 0"):
        Around.from_json(around.to_json() | {"languages": {"en": -1}})
