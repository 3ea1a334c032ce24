"""What the training loop needs for captions: the loss, the dev metrics and the samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from anaphora.data.batches.padded import Augmentation, images_of, padded, stream_pictures
from anaphora.data.batches.pooled import HeldBatches
from anaphora.data.pictures import PictureList, Pixels
from anaphora.data.symbols import BOS, EOS, PAD
from anaphora.data.tokenizers import Tokenizer
from anaphora.kinds.measures.captions import caption_measures
from anaphora.kinds.measures.texts import check_bleu_metric
from anaphora.models.memory import Memory
from anaphora.models.seq2seq import Seq2Seq
from anaphora.nn.attention import Hard, score_function_in_time
from anaphora.tasks.caption.inference import describe_pictures
from anaphora.tasks.caption.info import CaptionerSettings
from anaphora.training.objective import LossSum
from anaphora.training.own import chosen_metric, own_loss, own_measures
from anaphora.training.schedules import teacher_forcing


@dataclass(frozen=True)
class CaptionTensors:
    """A batch as the models take it; PAD past each caption's length."""

    images: Tensor
    """(pictures, 3, height, width) from 0 to 1"""
    which: Tensor
    """(captions,): the picture that each is about"""
    target_in: Tensor
    """(captions, time): BOS y₁ … y_T"""
    target_out: Tensor
    """(captions, time): y₁ … y_T EOS"""

    def repeated(self, memory: Memory) -> Memory:
        """What was seen of each picture, once for each of its captions."""
        return Memory(
            memory.annotations.index_select(0, self.which),
            memory.mask.index_select(0, self.which),
            tuple(state.index_select(1, self.which) for state in memory.last),
        )


@dataclass(frozen=True)
class CaptionBatch:
    """Some pictures with their captions as symbol ids, without BOS and EOS: a picture is seen once for all of them."""

    pictures: list[Pixels]
    captions: list[list[list[int]]]
    indices: list[int]
    """Which picture of the data each is."""

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def symbols(self) -> int:
        """Symbols to predict, the EOS of each caption included."""
        return sum(len(ids) + 1 for about in self.captions for ids in about)

    def shard(self, index: int, of: int) -> CaptionBatch:
        """Pictures ``index``, ``index + of``, …: the part of one of ``of`` workers. It may be empty."""
        return CaptionBatch(self.pictures[index::of], self.captions[index::of], self.indices[index::of])

    def tensors(self, device: torch.device | str = "cpu") -> CaptionTensors:
        rows = [ids for about in self.captions for ids in about]
        which = [place for place, about in enumerate(self.captions) for _ in about]
        return CaptionTensors(
            images_of(self.pictures, device),
            torch.tensor(which, device=device),
            padded(rows, device, first=BOS),
            padded(rows, device, last=EOS),
        )


def caption_batches(
    data: PictureList,
    captions: list[list[list[int]]],
    augmentation: Augmentation,
    *,
    batch_tokens: int,
    seed: int,
) -> HeldBatches[CaptionBatch]:
    """An endless stream of batches of pictures: see `stream_pictures`. Every epoch takes the next of a picture's captions,
    so that a batch holds as many different pictures as captions."""
    usable = [i for i, about in enumerate(captions) if about]
    lengths = [len(ids) + 1 for about in captions for ids in about]

    def make(pictures: list[Pixels], numbers: list[int], epoch: int) -> CaptionBatch:
        drawn = [captions[i][(epoch + i) % len(captions[i])] for i in numbers]
        return CaptionBatch(pictures, [[ids] for ids in drawn], numbers)

    return stream_pictures(
        data,
        usable,
        make,
        symbols=sum(lengths) / max(len(lengths), 1),
        augmentation=augmentation,
        batch_tokens=batch_tokens,
        seed=seed,
    )


_TOGETHER = 64


class CaptionObjective:
    """Negative log probability of the caption, −Σ_τ log p(y_τ | y_<τ, picture), smoothed if asked.

    Hard attention is trained by the score function, a draw answering for the losses of its word and of all later ones.
    The baseline of a word is its loss with soft attention, which no draw touches; as that is computed anyway,
    ``soft_share`` of the gradient is its own. The dev metrics are ``loss`` (per symbol, not smoothed) and, from greedy
    captions, CIDEr, BLEU and exact match.
    """

    evaluations = 10  # searching takes long

    def __init__(
        self,
        settings: CaptionerSettings,
        tokenizer: Tokenizer,
        dev: Sequence[tuple[Pixels, list[str]]],
        *,
        samples: int = 4,
    ):
        self.settings = settings
        self._step = 1
        self.metric, greater = chosen_metric(settings)
        self.greater_is_better = self.metric != "loss" if greater is None else greater
        references = [text for _, texts in dev for text in texts]
        check_bleu_metric(self.metric, references, settings.bleu_tokenize)
        self._own_loss = own_loss(settings)
        self.tokenizer = tokenizer
        self.chance = math.log(tokenizer.size)
        self._dev = list(dev)
        self._shown = samples
        self._outputs: list[str] = []

    def begin_step(self, number: int) -> None:
        """Step ``number`` begins, on which the share of true symbols fed to the decoder depends."""
        self._step = number

    def loss(self, model: Seq2Seq, batch: CaptionBatch) -> LossSum:
        t = batch.tensors(next(model.parameters()).device)
        attention = model.decoder.attentions[0] if model.decoder.attentions else None
        if isinstance(attention, Hard) and model.training:
            return LossSum(self._drawn(model, attention, t), batch.symbols)
        forcing = teacher_forcing(self.settings, self._step) if model.training else 1.0
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
        if self._own_loss:
            real = t.target_out != PAD
            costs = logits.new_zeros(real.shape, dtype=torch.float32)
            return costs.masked_scatter(real, self._own_loss(logits[real].float(), t.target_out[real]))
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
        found = caption_measures(self._outputs, references, tokenize=self.settings.bleu_tokenize).numbers()
        measured: dict[str, float] = {
            key: found[key] for key in ("cider", "bleu", "exact_match") if key in found
        }
        measured |= own_measures(self.settings, references, self._outputs, measured)
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
