"""What the training loop needs for translation: the loss, the dev metrics and the samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from anaphora.data.batches.pairs import PairBatch, PairTensors
from anaphora.data.symbols import PAD
from anaphora.data.tokenizers import PairTokenizer
from anaphora.kinds.measures.texts import check_bleu_metric, standard_error, translation_measures
from anaphora.models.seq2seq import Seq2Seq
from anaphora.ops.softmax_loss import summed_loss
from anaphora.settings import SearchSettings
from anaphora.tasks.translate.inference import encode_sources, greedy_outputs, search_outputs
from anaphora.tasks.translate.info import TranslatorSettings
from anaphora.training.objective import LossSum
from anaphora.training.own import chosen_metric, own_loss, own_measures, summed
from anaphora.training.rdrop import divergence
from anaphora.training.schedules import teacher_forcing

FINAL = 500
"""Dev pairs by which the best weights of a run are chosen at its end."""


FEW = 300
"""Dev pairs below which measures of two evaluations differ by chance more than by what was learned between them."""


class TranslationObjective:
    """Negative log probability of the target, −Σ_τ log p(y_τ | y_<τ, x), smoothed if asked.

    The dev metrics are ``loss`` (per symbol, not smoothed) and, from greedy outputs, BLEU (where it is defined), chrF and exact match.
    """

    evaluations = 10  # searching takes long
    uncertainty: float
    """Of outputs of letters, or of other ``symbols`` of a fixed set such as phones, and fewer than `FEW` dev pairs: the standard error of a
    difference of two measures like the last `final` one, √2 times its own."""

    def __init__(
        self,
        settings: TranslatorSettings,
        tokenizer: PairTokenizer,
        dev: Sequence[tuple[str, str]],
        *,
        samples: int = 4,
        symbols: bool = False,
    ):
        self.settings = settings
        self._step = 1
        self.metric, greater = chosen_metric(settings)
        self.greater_is_better = self.metric != "loss" if greater is None else greater
        check_bleu_metric(self.metric, [t for _, t in dev], settings.bleu_tokenize)
        self._own_loss = own_loss(settings)
        self.tokenizer = tokenizer
        self.chance = math.log(tokenizer.target.size)
        self._dev = list(dev)
        letters = symbols or "char" in (settings.target_tokens or settings.tokens)
        if letters and 1 < len(self._dev) < FEW and self.metric in ("chrf", "exact_match"):
            self.uncertainty = 0.0
        self._shown = samples
        self._outputs: list[str] = []

    def begin_step(self, number: int) -> None:
        """Step ``number`` begins, on which the share of true symbols fed to the decoder depends."""
        self._step = number

    def loss(self, model: Seq2Seq, batch: PairBatch) -> LossSum:
        t = batch.tensors(next(model.parameters()).device)
        alpha = self.settings.r_drop if model.training else 0.0
        if alpha:
            t = t.twice()
        logits = model(
            t.source,
            t.source_lengths,
            t.target_in,
            t.target_lengths,
            teacher_forcing=teacher_forcing(self.settings, self._step) if model.training else 1.0,
        )
        found = self._summed(logits, t, batch.symbols, training=model.training)
        if alpha:
            # half of the published sum, so that lr and clip mean what they mean without it
            apart = divergence(logits.flatten(0, 1), (t.target_out[: len(batch)] != PAD).flatten())
            found = LossSum(0.5 * (found.total + alpha * apart), found.count)
        return found

    def _summed(self, logits: Tensor, t: PairTensors, symbols: int, *, training: bool) -> LossSum:
        if self._own_loss:
            return LossSum(summed(self._own_loss, logits, t.target_out, t.target_out != PAD), symbols)
        smoothing = self.settings.label_smoothing if training else 0.0
        total = summed_loss(logits.flatten(0, 1), t.target_out.flatten(), ignored=PAD, smoothing=smoothing)
        return LossSum(total, symbols)

    def evaluate(self, model: Seq2Seq) -> dict[str, float]:
        return self._measured(model, self._dev)

    def final(self, model: Seq2Seq) -> dict[str, float]:
        """The measures of outputs that are searched for as in use, of the first `FINAL` dev pairs: they cost several times as much."""
        found = self._measured(model, self._dev[:FINAL], as_used=True)
        if hasattr(self, "uncertainty"):
            references = [self.tokenizer.target.normalized(target) for _, target in self._dev]
            self.uncertainty = math.sqrt(2) * standard_error(self._outputs, references, self.metric)
        return found

    @torch.no_grad()
    def _measured(
        self, model: Seq2Seq, dev: Sequence[tuple[str, str]], *, as_used: bool = False
    ) -> dict[str, float]:
        if not dev:
            return {}
        sources = encode_sources(self.tokenizer, [s for s, _ in dev], self.settings.max_tokens)
        references = [self.tokenizer.target.normalized(t) for _, t in dev]
        # As users get them: without autocast, where a GPU also repeats the captured steps of a Transformer by itself.
        s = self.settings
        with torch.autocast(next(model.parameters()).device.type, enabled=False):
            if as_used:
                asked = {key: getattr(s, key) for key in SearchSettings.model_fields}
                nbest = search_outputs(model, sources, around=self.tokenizer.around, **asked)
                symbols = [list(best[0].tokens) for best in nbest]
            else:
                symbols = greedy_outputs(
                    model, sources, max_length=s.max_length, around=self.tokenizer.around
                )
        self._outputs = [self.tokenizer.target.decode(ids) for ids in symbols]
        measured = translation_measures(self._outputs, references, tokenize=s.bleu_tokenize)
        return {
            "loss": self._dev_loss(model, sources, references),
            **measured.numbers(),
            **own_measures(s, references, self._outputs, measured.report),
        }

    def _dev_loss(self, model: Seq2Seq, sources: list[list[int]], references: list[str]) -> float:
        targets = [t[: self.settings.max_tokens] for t in self.tokenizer.targets(references)]
        total, count = 0.0, 0
        order = sorted(range(len(sources)), key=lambda i: (len(targets[i]), len(sources[i]), i))
        for begin in range(0, len(order), 64):
            rows = order[begin : begin + 64]
            some = [sources[i] for i in rows], [targets[i] for i in rows]
            part = self.loss(model, PairBatch(*some, rows, self.tokenizer.around.start))
            total, count = total + float(part.total), count + int(part.count)
        return total / max(count, 1)

    def samples(self, model: Seq2Seq) -> list[dict[str, str]]:
        """The first dev pairs with the outputs of the last evaluation."""
        return [
            {"source": source, "reference": reference, "output": output}
            for (source, reference), output in zip(self._dev[: self._shown], self._outputs, strict=False)
        ]
