"""What the training loop is told about captions: the loss, the dev metrics and the samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from anaphora.data.pictures import Pixels
from anaphora.data.symbols import PAD
from anaphora.data.tokenizers import Tokenizer
from anaphora.models.seq2seq import Seq2Seq
from anaphora.nn.attention import Hard, score_function_in_time
from anaphora.tasks.caption.batches import CaptionBatch, CaptionTensors
from anaphora.tasks.caption.describing import describe_pictures
from anaphora.tasks.caption.info import CaptionerSettings
from anaphora.tasks.caption.measures import caption_scores
from anaphora.training.objective import LossSum

_TOGETHER = 64


class CaptionObjective:
    """Negative log probability of the caption, −Σ_τ log p(y_τ | y_<τ, picture), smoothed if asked.

    Hard attention is trained by the score function, a draw answering for the losses of its word and of all later ones.
    The baseline of a word is its loss with soft attention, which no draw touches; as that is computed anyway,
    ``soft_share`` of the gradient is its own. The dev metrics are ``loss`` (per symbol, not smoothed) and, from greedy
    captions, CIDEr, BLEU and exact match.
    """

    def __init__(
        self,
        settings: CaptionerSettings,
        tokenizer: Tokenizer,
        dev: Sequence[tuple[Pixels, list[str]]],
        *,
        samples: int = 4,
    ):
        self.settings = settings
        self.metric = settings.metric
        self.greater_is_better = settings.metric != "loss"
        self.tokenizer = tokenizer
        self.chance = math.log(tokenizer.size)
        self._dev = list(dev)
        self._shown = samples
        self._outputs: list[str] = []

    def loss(self, model: Seq2Seq, batch: CaptionBatch) -> LossSum:
        t = batch.tensors(next(model.parameters()).device)
        attention = model.decoder.attentions[0] if model.decoder.attentions else None
        if isinstance(attention, Hard) and model.training:
            return LossSum(self._drawn(model, attention, t), batch.symbols)
        forcing = self.settings.teacher_forcing if model.training else 1.0
        logits = model.decoder(t.target_in, t.repeated(model.encoder(t.images)), forcing)
        return LossSum(self._costs(logits, t, smooth=model.training).sum(), batch.symbols)

    def _drawn(self, model: Seq2Seq, attention: Hard, t: CaptionTensors) -> Tensor:
        memory = t.repeated(model.encoder(t.images))
        with attention.mixing():
            mixed = self._costs(model.decoder(t.target_in, memory), t, smooth=True)
        with attention.following() as log_probs:
            cost = self._costs(model.decoder(t.target_in, memory), t, smooth=True)
        log_prob = torch.cat(log_probs, 1)
        hard = score_function_in_time(cost, log_prob, mixed.detach())
        share = self.settings.soft_share
        return share * mixed.sum() + (1 - share) * hard

    def _costs(self, logits: Tensor, t: CaptionTensors, *, smooth: bool) -> Tensor:
        """The loss of each symbol ``(batch, T)``, 0 at padding."""
        return F.cross_entropy(
            logits.transpose(1, 2).float(),
            t.target_out,
            ignore_index=PAD,
            label_smoothing=self.settings.label_smoothing if smooth else 0.0,
            reduction="none",
        )

    @torch.no_grad()
    def evaluate(self, model: Seq2Seq) -> dict[str, float]:
        if not self._dev:
            return {}
        pictures = [picture for picture, _ in self._dev]
        references = [[self.tokenizer.normalized(text) for text in texts] for _, texts in self._dev]
        nbest = describe_pictures(
            model, pictures, beam=1, length_penalty=0.0, max_length=self.settings.max_length
        )
        self._outputs = [self.tokenizer.decode(best[0].tokens) for best in nbest]
        scores = caption_scores(self._outputs, references, tokenize=self.settings.bleu_tokenize)
        measured = {key: scores[key] for key in ("cider", "bleu", "exact_match")}
        return {"loss": self._dev_loss(model), **measured}

    def _dev_loss(self, model: Seq2Seq) -> float:
        """Per symbol of all references."""
        captions = [
            [ids[: self.settings.max_tokens] for ids in self.tokenizer.encode_batch(texts)]
            for _, texts in self._dev
        ]
        total, count = 0.0, 0
        for begin in range(0, len(captions), _TOGETHER):
            some = list(range(begin, min(begin + _TOGETHER, len(captions))))
            batch = CaptionBatch([self._dev[i][0] for i in some], [captions[i] for i in some], some)
            part = self.loss(model, batch)
            total, count = total + float(part.total), count + int(part.count)
        return total / max(count, 1)

    def samples(self, model: Seq2Seq) -> list[dict[str, str]]:
        """The first dev pictures with the captions of the last evaluation."""
        return [
            {"source": f"#{number}", "reference": texts[0], "output": output}
            for number, ((_, texts), output) in enumerate(
                zip(self._dev[: self._shown], self._outputs, strict=False), start=1
            )
        ]
