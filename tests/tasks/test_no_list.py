"""What is no list of inputs is refused in a sentence, not by an error of Python."""

from __future__ import annotations

import numpy as np
import pytest
from tasks_tiny import is_one_sentence
from transcribe_tiny import recordings
from transcribe_tiny import tiny as tiny_transcriber

import anaphora as an
from anaphora.errors import AnaphoraError

SMALL = {"steps": 2, "device": "cpu"}
TEXTS = [("good film", "a"), ("bad film", "b")] * 8
MADE = {
    "classify": lambda: an.Classifier("ngrams").fit(TEXTS),
    "translate": lambda: an.Translator("lstm-attention", tokens="char", hidden=8, **SMALL).fit(TEXTS),
    "language": lambda: an.LanguageModel("ngram", tokens="char").fit(["hello there"] * 9),
    "tag": lambda: an.Tagger("hmm").fit([(["a", "b"], ["X", "Y"])] * 9),
    "forecast": lambda: an.Forecaster("var", window=8, horizon=2).fit(np.sin(np.arange(100.0))[:, None]),
    "embed": lambda: an.Embedder("bow", **SMALL).fit([("a b", "b a"), ("c d", "d c"), ("e", "f")] * 9),
    "transcribe": lambda: tiny_transcriber(steps=2).fit(recordings(8), valid=recordings(2, seed=1)),
}


@pytest.mark.parametrize("task", MADE)
def test_none_and_numbers_are_no_inputs(task):
    model = MADE[task]()
    for given in (None, 3, object()):
        for method in (model.predict, model.score, type(model)().fit):
            with pytest.raises(AnaphoraError) as told:
                method(given)
            assert is_one_sentence(told.value), told.value
    with pytest.raises(AnaphoraError) as told:
        model.predict([None])
    assert is_one_sentence(told.value), told.value


def test_what_has_items_by_number_is_still_a_list():
    class Held:
        def __getitem__(self, place):
            return ["good", "bad"][place]

        def __len__(self):
            return 2

    assert len(MADE["classify"]().predict(Held())) == 2
