"""One optimizer step: the gradient of the mean loss per symbol of one global batch, clipped, applied.

With r of R processes and m of M parts, shard r·M + m of R·M is worked through here. All sums run over
the whole batch, so R and M change the order of additions and nothing else:

    L = Σ total / Σ count,    g = ∂L/∂θ,    θ ← optimizer(θ, g·min(1, clip/‖g‖₂))
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from anaphora.errors import out_of_memory
from anaphora.native.cuda import check_kernels
from anaphora.nn import Recurrent
from anaphora.nn.casting import Weights
from anaphora.ops.optimizer import Length
from anaphora.settings import TrainingSettings
from anaphora.settings.own import Part
from anaphora.training.distributed import Group, LossModule, local_gradients, wrap
from anaphora.training.objective import Objective, carried_state
from anaphora.training.optimizers import build_optimizer, plain_step, set_learning_rate, step_of_gpu
from anaphora.training.precision import LossScale, Precision, autocast
from anaphora.training.recomputing import recompute
from anaphora.training.seeding import seed_everything
from anaphora.training.sharding import Sharded, local
from anaphora.training.sums import Numbers, Sums
from anaphora.training.tuning import NONE, Tuning


@dataclass(frozen=True)
class Outcome:
    """What a step found. ``loss`` is the mean per symbol, ``norm`` the true gradient's length before clipping."""

    loss: float
    count: float
    norm: float
    clipped: bool
    applied: bool
    asked: bool  # some process was asked to stop

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.norm)


def clip_groups(model: nn.Module) -> list[list[nn.Parameter]]:
    """The parameters in groups: all of one layer of a stack (whatever a list of modules holds), else of one module."""
    modules = dict(model.named_modules())
    groups: dict[str, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        path = name.split(".")[:-1]
        while path and isinstance(modules[".".join(path)], nn.ParameterList | nn.ParameterDict):
            path.pop()
        layer = [i for i in range(1, len(path)) if isinstance(modules[".".join(path[:i])], nn.ModuleList)]
        groups.setdefault(".".join(path[: layer[0] + 1] if layer else path), []).append(parameter)
    return list(groups.values())


class Queued(NamedTuple):
    """A step that the device may still work on."""

    numbers: Numbers
    expected: int


class Stepper:
    """Does steps with one model, one objective and one optimizer."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        settings: TrainingSettings,
        group: Group,
        precision: Precision,
        tuning: Tuning = NONE,
    ):
        self.model, self.objective, self.settings = model, objective, settings
        self.group, self.precision = group, precision
        self.parts = settings.accumulate
        """In how many parts the last batch was worked through: more where it did not fit into memory."""
        if settings.checkpoint_activations:
            recompute(model)
        loss = LossModule(model, objective)
        self.sharded = Sharded(loss, group) if settings.shard == "full" else None
        self.loss: nn.Module = self.sharded.loss if self.sharded else wrap(loss, group)
        self.optimizer = build_optimizer(model, settings, tuning.rates)
        self.scale = LossScale(enabled=precision == "fp16")
        own = isinstance(settings.optimizer, Part)
        fused = not own and all(g.get("fused") for g in self.optimizer.param_groups)
        self._groups = clip_groups(model) if settings.clip_by == "group" and settings.clip else []
        self._ahead = fused and group.device.type == "cuda" and not self._groups and not self.sharded
        # Apple's GPUs have no float64
        self._wide = torch.float32 if group.device.type == "mps" else torch.float64
        # Looked for once: a walk through all modules takes longer than a small kernel.
        self._parameters = list(model.parameters())
        self._tuning, self._named = tuning, dict(model.named_parameters())
        self._held: list[nn.Parameter] = []
        self._whole = Length() if group.device.type == "cuda" else None
        self._begun: tuple[int, tuple[Tensor, Tensor | int]] | None = None
        # A model of recurrent layers waits for its host most. Others may be compiled, and such weights are not theirs.
        recurrent = any(isinstance(module, Recurrent) for module in model.modules())
        alone = group.world == 1 and group.device.type == "cuda" and not self.sharded
        self._cast = Weights(model) if recurrent and alone else None
        model.train()

    def gradient(
        self, batch: Any, number: int, asked: bool = False, *, lr: float = 0.0
    ) -> tuple[Outcome, float]:
        """Leave the batch's gradient in ``.grad``; the outcome, and the factor that makes it the clipped true one.

        On a GPU the weights are moved already, with ``lr``; `apply` knows.
        """
        return self.finish(self.queue(batch, number, asked, lr=lr))

    def queue(self, batch: Any, number: int, asked: bool = False, *, lr: float = 0.0) -> Queued:
        """All that a GPU has to do for this step, without waiting for what it finds: `finish` does."""
        if not self.model.training:
            self.model.train()
        # Half precision needs losses of order one before the count is known, so divide by the expected count.
        expected = max(1, batch.symbols)
        weight = self.scale.value * self.group.world / expected
        self._hold(number)
        self.parts = self.settings.accumulate
        while (sums := self._in_parts(batch, number, weight)) is None:
            self.parts *= 2
        numbers = sums.of_all(self.group, asked, self._length(self._parameters))
        if self._ahead and not numbers.nothing:
            self._run_ahead(numbers, expected, lr)
        return Queued(numbers, expected)

    def finish(self, queued: Queued) -> tuple[Outcome, float]:
        """What `gradient` gives of a queued step, when it is known."""
        total, count, stop, norm = queued.numbers.read()
        check_kernels(wait=False)  # the numbers have come, so every kernel of the step has ended
        if count == 0:
            return Outcome(0.0, 0.0, 0.0, False, False, stop > 0), 0.0
        true = queued.expected / count / self.scale.value
        norm *= true
        if self._groups:
            clipped = self._clip_groups(self.settings.clip / true) if math.isfinite(norm) else False
            return Outcome(total / count, count, norm, clipped, False, stop > 0), true
        clipped = 0 < self.settings.clip < norm
        factor = true * (self.settings.clip / norm if clipped else 1.0)
        return Outcome(total / count, count, norm, clipped, False, stop > 0), factor

    @property
    def begins_early(self) -> bool:
        """Whether `begin` may be called for the next step while the last one is queued and not finished.

        The weights must have moved by then, and a step that is not finite must change nothing that the next one needs: with
        fp16 it would change the scale. The gradient of the last step stays where it is, which an objective that is ``captured``
        would overwrite.
        """
        alone = self._ahead and self.group.world == 1 and self.settings.accumulate == 1
        captured = getattr(self.objective, "captured", False)
        return alone and not self._tuning.stages and not self.scale.enabled and not captured

    def begin(self, batch: Any, number: int) -> None:
        """Queue the forward pass of the next step, so that a GPU has something to do while the host reads what the last one
        found; `queue` with the same batch goes on from there."""
        if not len(batch):
            return
        try:
            self._begun = number, self._forward(batch.shard(*self._share(0)), number, 0)
        except (MemoryError, RuntimeError) as error:
            if hasattr(self.objective, "state_dict") or not out_of_memory(error):
                raise  # otherwise `queue` tries it in parts

    def _hold(self, number: int) -> None:
        """Leave alone what does not move yet in step ``number``; a process by itself spares its gradient, too."""
        if not self._tuning.stages:
            return
        held = self._tuning.held(number)
        if self.group.world == 1:
            for name in self._tuning.stages:
                self._named[name].requires_grad_(name not in held)
        self._held = [self._named[name] for name in held]

    def _in_parts(self, batch: Any, number: int, weight: float) -> Sums | None:
        """The gradient, summed over ``parts`` of the batch; None where memory ran out and smaller parts can be tried.

        Processes of a group work in step and cannot; nor can an objective whose state of each part goes on with the next
        batch.
        """
        for parameter in self._parameters:
            parameter.grad = None
        sums = Sums(self._wide)
        try:
            for part in range(self.parts):
                with local_gradients(self.loss, local=part < self.parts - 1):
                    self._backward(batch, number, part, weight, sums)
            if self.sharded:
                self.sharded.sum_numbers()
            for parameter in self._held:
                parameter.grad = None
        except (MemoryError, RuntimeError) as error:
            alone = self.group.world == 1 and not self.sharded and not hasattr(self.objective, "state_dict")
            if not alone or self.parts >= len(batch) or not out_of_memory(error):
                raise
        else:
            return sums
        # only now, as the error held what its frames did
        if self.group.device.type == "cuda":
            torch.cuda.empty_cache()
        return None

    def apply(self, factor: float, lr: float) -> None:
        """Move the weights along the gradient left by ``gradient``, unless it has done so itself."""
        if not self._ahead:
            if factor != 1.0:
                torch._foreach_mul_(self._gradients(), factor)
            set_learning_rate(self.optimizer, lr, self.settings.lr)
            plain_step(self.optimizer)
            self._moved()
        self.scale.stepped()

    def _moved(self) -> None:
        """Fused optimizers leave the count of changes as it was, by which packed weights notice that they are old."""
        torch.autograd.graph.increment_version(self._parameters)

    def _run_ahead(self, numbers: Numbers, expected: int, lr: float) -> None:
        """Move the weights before the ``numbers`` are known here, so that the GPU need not wait for us to read them.

        The gradient's factor is computed where the gradient is, and a step that is not finite is left out there. What
        the fused kernels divide the gradient by is 1/true, or more where it is longer than ``clip``:

            max(norm / clip, 1/true),    true = expected / (count · scale)
        """
        numbers.send()
        count, norm = numbers.count, numbers.norm
        least = count * (self.scale.value / expected)
        bad = numbers.total / count + norm
        found = (bad - bad).nan_to_num_(nan=1.0).float()  # 0 if all is finite
        if self.settings.clip:
            divisor = (norm / self.settings.clip).clamp(min=least).float()
        else:
            divisor = torch.as_tensor(least, dtype=torch.float32, device=norm.device)
        set_learning_rate(self.optimizer, lr, self.settings.lr)
        with torch.no_grad():
            step_of_gpu(self.optimizer, divisor, found)
        self._moved()
        numbers.forget()

    def repeat(self, batch: Any, number: int, precision: Precision | None = None) -> bool:
        """Run this process's parts of a batch forward once more, with the same random numbers; whether every loss is
        finite. ``precision`` is another arithmetic to try. What the objective carries to the next step stays as it is."""
        finite, carried = True, carried_state(self.objective)
        for part in range(self.parts):
            shard = batch.shard(*self._share(part))
            empty = len(shard) == 0
            if empty and self.sharded:  # the others gather weights with this process
                shard = batch.shard(0, max(1, len(batch)))
            if not empty or self.sharded:
                self._seed(number, part)
                with autocast(self.group.device, precision or self.precision):
                    total, _ = self._module()(shard)
                finite = finite and (empty or bool(torch.isfinite(total)))
        if self.sharded:
            self.sharded.reshard()
        if carried:
            self.objective.load_state_dict(carried)  # type: ignore[attr-defined]
        return finite

    def fall_back(self, precision: Precision) -> None:
        """Compute in ``precision`` from now on, without a scale for fp16."""
        self.precision, self.scale.enabled, self.scale.fallen = precision, False, precision

    def _backward(self, batch: Any, number: int, part: int, weight: float, sums: Sums) -> None:
        shard, empty = batch.shard(*self._share(part)), False
        if len(shard) == 0:
            if (self.group.world == 1 or part < self.parts - 1) and not self.sharded:
                return
            # The others wait for this process's gradient: give them zeros, computed from any one row.
            shard, empty = batch.shard(0, max(1, len(batch))), True
        begun, self._begun = self._begun, None
        if begun and begun[0] == number and part == 0 and self.parts == 1:
            total, count = begun[1]
        else:
            total, count = self._forward(shard, number, part)
        del begun
        total.backward(total.new_full((), 0.0 if empty else weight))  # type: ignore[no-untyped-call]
        if not empty:
            sums.add(total.detach(), count)

    def _forward(self, shard: Any, number: int, part: int) -> tuple[Tensor, Tensor | int]:
        """The summed loss of a part of step ``number``, and of how many symbols."""
        self._seed(number, part)
        with autocast(self.group.device, self.precision), self._weights():
            total, count = self.loss(shard)
        return total, count

    def _seed(self, number: int, part: int) -> None:
        """Random numbers of this part of step ``number``; an objective that changes with the step hears of it."""
        seed_everything(self.settings.seed, number, self.group.rank, part)
        begin = getattr(getattr(self._module(), "objective", None), "begin_step", None)
        if begin is not None:
            begin(number)

    def _weights(self) -> contextlib.AbstractContextManager[None]:
        """Where autocast would cast one weight after the other on a GPU, they are cast together."""
        if self._cast is None or not torch.is_autocast_enabled("cuda"):
            return contextlib.nullcontext()
        return self._cast.cast(torch.get_autocast_dtype("cuda"))

    def _share(self, part: int) -> tuple[int, int]:
        return self.group.rank * self.parts + part, self.group.world * self.parts

    def _module(self) -> nn.Module:
        inner = self.loss if self.sharded else getattr(self.loss, "module", self.loss)
        return inner if isinstance(inner, nn.Module) else self.loss

    def _gradients(self) -> list[Tensor]:
        """What this process has of the gradients."""
        return [local(p.grad) for p in self._parameters if p.grad is not None]

    def _length(self, parameters: Iterable[nn.Parameter]) -> Tensor:
        """‖g‖₂ over these parameters together: the root of the sum of squares, not the sum of squares."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        if self.sharded:
            return self.sharded.norm(gradients)
        if not gradients:
            return torch.zeros((), device=self.group.device)
        found = self._whole.of(gradients) if self._whole else None
        if found is None:
            found = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        return found

    def _clip_groups(self, most: float) -> bool:
        """Scale each group of gradients longer than ``most`` back to it; whether there was one."""
        clipped = False
        for group in self._groups:
            norm = float(self._length(group))
            if norm > most:
                torch._foreach_mul_([local(p.grad) for p in group if p.grad is not None], most / norm)
                clipped = True
        return clipped
