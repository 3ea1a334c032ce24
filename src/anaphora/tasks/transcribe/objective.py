"""What the training loop needs for transcription: the loss, the dev metrics and the samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anaphora.data.batches.padded import padded, tensors_of
from anaphora.data.batches.pooled import in_order
from anaphora.data.symbols import BOS, EOS, PAD
from anaphora.data.tokenizers import Tokenizer
from anaphora.kinds.measures.judged import values
from anaphora.kinds.measures.transcripts import error_measures
from anaphora.models.ctc import CTCModel, FrameScores, JointModel, log_probabilities
from anaphora.models.seq2seq import Seq2Seq
from anaphora.models.transducer import TransducerModel
from anaphora.nn import inside
from anaphora.ops.softmax_loss import summed_loss
from anaphora.search import ctc_loss, transducer_loss
from anaphora.settings.transcribe import TranscriberSettings
from anaphora.tasks.spoken import Frames, SpokenBatch
from anaphora.tasks.transcribe.inference.decoding import BATCH, greedy_texts
from anaphora.tasks.transcribe.inference.words import attention_weights
from anaphora.training.objective import LossSum
from anaphora.training.own import chosen_metric, no_own_loss, own_loss, own_measures, summed
from anaphora.training.schedules import teacher_forcing

SHOWN = 4
Model = CTCModel | Seq2Seq | TransducerModel


class TranscriptionObjective:
    """The loss of a recording x with transcript y, per symbol of y and its end:

    - CTC: −log Σ_{π: collapse(π) = y} Π_t p_t(π_t), with `label_prior` as `FrameScores` says, and while training ``consistency`` times what two copies of a recording
      disagree (`disagreement`);
    - attention: −Σ_τ log p(y_τ | y_<τ, x), smoothed if asked, and while training ``order_weight`` for every frame that
      attention goes back (`going_back`);
    - joint: w·CTC + (1 − w)·attention;
    - transducer: w·CTC + (1 − w)·(−log Σ_alignments Π p(step | t, u)), see `anaphora.search.transducer_loss`.

    A transcript with more symbols than its recording has frames adds nothing to CTC. ``dev`` are frames, transcripts
    and names. The dev metrics are ``loss`` (not smoothed) and, of greedy texts, WER, CER and the share without error.
    """

    chance = None

    evaluations = 10  # searching takes long

    def __init__(
        self,
        settings: TranscriberSettings,
        tokenizer: Tokenizer,
        dev: tuple[list[Frames], list[str], list[str]],
        unsaid: Sequence[int] = (),
    ):
        self.settings, self.tokenizer, self._unsaid = settings, tokenizer, unsaid
        self._step = 1
        self.metric, greater = chosen_metric(settings)
        self.greater_is_better = bool(greater)
        if settings.model != "attention":
            no_own_loss(settings, "CTC is a loss of whole texts; choose the preset attention")
        self._own_loss = own_loss(settings)
        self._inputs, self._transcripts, self._names = dev
        self._targets = tokenizer.encode_batch(self._transcripts)
        self._texts: list[str] = []

    def begin_step(self, number: int) -> None:
        """Step ``number`` begins, on which the share of true symbols fed to the decoder depends."""
        self._step = number

    def loss(self, model: Model, batch: SpokenBatch) -> LossSum:
        x, lengths = tensors_of(batch.inputs, next(model.parameters()).device)
        smoothing = self.settings.label_smoothing if model.training else 0.0
        forcing = teacher_forcing(self.settings, self._step) if model.training else 1.0
        if isinstance(model, CTCModel):
            scores, frames = model(x, lengths)
            total = frame_loss(model.frames, scores, frames, batch.targets, (batch.others, batch.shares))
            if batch.copies > 1 and len(batch):
                members = len(scores) // len(batch.targets)
                total = total + self.settings.consistency * disagreement(scores, frames) / members
            return LossSum(total, batch.symbols)
        if isinstance(model, TransducerModel):
            return LossSum(self._of_alignments(model, x, lengths, batch.targets), batch.symbols)
        target_in = padded(batch.targets, x.device, first=BOS)
        target_out = padded(batch.targets, x.device, last=EOS)
        memory = model.encode(x, lengths)
        with inside.record() as notes:
            logits = model.decoder(target_in, memory, forcing)
        if self._own_loss is None:
            total = _symbol_loss(logits, target_out, smoothing)
        else:
            total = summed(self._own_loss, logits, target_out, target_out != PAD)
        if model.training and self.settings.order_weight:
            weights = attention_weights(model, notes, target_in.shape[1])
            total = total + self.settings.order_weight * going_back(weights, target_out != PAD)
        if isinstance(model, JointModel):
            scores, frames = model.frames(memory)
            w = self.settings.ctc_weight
            total = w * frame_loss(model.frames, scores, frames, batch.targets) + (1 - w) * total
        return LossSum(total, batch.symbols)

    def _of_alignments(
        self, model: TransducerModel, x: Tensor, lengths: Tensor, targets: list[list[int]]
    ) -> Tensor:
        """w·CTC + (1 − w)·transducer, summed over recordings."""
        memory = model.encode(x, lengths)
        logits, frames = model(memory, padded(targets, x.device))
        w = self.settings.ctc_weight
        written = transducer_loss(
            logits, [list(row) for row in targets], frames, reduction="sum", impossible="zero"
        )
        scores, _ = model.frames(memory)
        return w * frame_loss(model.frames, scores, frames, targets) + (1 - w) * written

    @torch.no_grad()
    def evaluate(self, model: Model) -> dict[str, float]:
        if not self._inputs:
            return {}
        total, count = 0.0, 0
        for rows in in_order(self._inputs, BATCH):
            batch = SpokenBatch([self._inputs[i] for i in rows], [self._targets[i] for i in rows], rows)
            part = self.loss(model, batch)
            total, count = total + float(part.total), count + int(part.count)
        self._texts = greedy_texts(model, self._inputs, self.tokenizer, self._unsaid)
        found = {"loss": total / max(count, 1), **values(error_measures(self._references(), self._texts))}
        return found | own_measures(self.settings, self._references(), self._texts, found)

    def samples(self, model: Any) -> list[dict[str, str]]:
        """The first dev recordings with the texts of the last evaluation."""
        rows = zip(self._names, self._references(), self._texts, strict=False)
        return [{"source": n, "reference": r, "output": o} for n, r, o in list(rows)[:SHOWN]]

    def _references(self) -> list[str]:
        return [self.tokenizer.normalized(text) for text in self._transcripts]


def going_back(weights: Tensor, real: Tensor) -> Tensor:
    """Σ_τ max(0, c_{τ−1} − c_τ) with c_τ = Σ_j j α_τj: how many frames attention goes back, of weights α
    ``(batch, T, S)`` of which ``real`` ``(batch, T)`` belong to symbols. Speech is written in the order it is heard."""
    places = torch.arange(weights.shape[2], device=weights.device, dtype=weights.dtype)
    centres = weights @ places
    back = F.relu(centres[:, :-1] - centres[:, 1:])
    return (back * real[:, 1:]).sum()


def disagreement(scores: Tensor, lengths: Tensor) -> Tensor:
    """Σ_t KL(q_t ‖ p_t) + KL(p_t ‖ q_t) over the real frames, summed over pairs of rows: p and q are what the model thinks of two
    copies of a recording, and the first of each divergence is taken as given (CR-CTC, Yao et al. 2024).

    scores ``(2 · pairs, time, symbols)``, copies next to each other; lengths ``(2 · pairs,)``, the same for both.
    """
    log_p = torch.log_softmax(scores.float(), -1)
    pairs = log_p.detach().view(-1, 2, *log_p.shape[1:])
    other = pairs.flip(1).view_as(log_p)  # (2 · pairs, time, symbols), of the other copy
    real = torch.arange(scores.shape[1], device=scores.device) < lengths[:, None]
    return torch.where(real, (other.exp() * (other - log_p)).sum(-1), 0.0).sum()


def _symbol_loss(logits: Tensor, target_out: Tensor, smoothing: float) -> Tensor:
    """Summed cross entropy of logits ``(batch, T, symbols)`` with what should follow ``(batch, T)``."""
    return summed_loss(logits.flatten(0, 1), target_out.flatten(), ignored=PAD, smoothing=smoothing)


def frame_loss(
    frames: nn.Module,
    scores: Tensor,
    lengths: Tensor,
    targets: Sequence[Sequence[int]],
    mixed: tuple[Sequence[Sequence[int]], Sequence[float]] = ((), ()),
) -> Tensor:
    """Summed CTC loss of the scores ``(batch, time, symbols)`` that ``frames`` gave, of which ``lengths`` ``(batch,)`` are real. A target
    that its frames cannot spell adds nothing. With a prior, while training, it is the loss that `FrameScores` describes, and what it
    counts is counted on. Where several networks gave scores, ``(members · batch, time, symbols)``, it is what `MemberScores` describes.
    Where rows are ``mixed``, with other targets y' by shares λ, it is (1 − λ) loss(y) + λ loss(y').
    """
    members = max(1, len(scores) // max(1, len(targets)))
    others, shares = mixed
    asked: dict[str, Any] = {"reduction": "none" if others else "sum", "impossible": "zero"}
    # a model of your own has scores of its own
    prior = frames if isinstance(frames, FrameScores) and frames.prior and frames.training else None
    if members == 1 and prior is None and not others:
        return ctc_loss(scores.float(), [list(row) for row in targets], lengths, **asked)
    log_p = log_probabilities(scores)

    def loss(log_p: Tensor, times: int) -> Tensor:
        weighed = log_p if prior is None else prior.weighed(log_p)
        one, other = (
            ctc_loss(
                weighed,
                [list(row) for row in rows] * times,
                lengths[: len(weighed)],
                normalized=True,
                **asked,
            )
            if rows
            else weighed.new_zeros(())
            for rows in (targets, others)
        )
        if not others:
            return one
        share = torch.tensor(shares, dtype=one.dtype, device=one.device).repeat(times)
        return ((1 - share) * one + share * other).sum()

    if prior is not None:
        prior.count(log_p.detach(), lengths)
    total = loss(log_p, members) / members
    if members == 1:
        return total
    together = log_p.view(members, -1, *log_p.shape[1:]).logsumexp(0) - math.log(members)
    return (total + loss(together, 1)) / 2
