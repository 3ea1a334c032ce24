"""Checks that warn while a run can still be saved. Each message names the observation, its meaning and a remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anaphora.settings import TrainingSettings

UNKNOWN = "<unk>"
EARLIEST = 200  # steps before which a loss above chance or much clipping is nothing to worry about
CLIPPED = 0.8  # share of clipped steps from which on the clip is the learning rate in disguise
DIVERGED = 100.0  # how many times the usual loss; its square where no uniform guess says what is usual
STREAK = 5  # steps in a row above that


@dataclass(frozen=True)
class Finding:
    """One warning."""

    kind: str
    message: str


@dataclass
class Health:
    """Looks at losses, norms and outputs. ``state()`` goes into checkpoints, so a resumed run warns alike."""

    settings: TrainingSettings
    chance: float | None
    said: list[str] = field(default_factory=list)
    first_loss: float | None = None
    streak: int = 0
    steps: int = 0  # since clipping was last looked at
    clipped: int = 0
    norms: float = 0.0

    def stepped(self, loss: float, norm: float, clipped: bool) -> str | None:
        """Look at one step. Returns the message when training has diverged and must stop."""
        if self.first_loss is None:
            self.first_loss = loss
        self.steps += 1
        self.clipped += clipped
        self.norms += norm
        # a badly scaled start is not yet a divergence, so the first loss counts as well
        usual = max(1.0, abs(self.first_loss), self.chance or 0.0)
        limit = usual * (DIVERGED if self.chance else DIVERGED**2)
        self.streak = self.streak + 1 if loss > limit else 0
        if self.streak < STREAK:
            return None
        guess = f" (a uniform guess has {self.chance:.1f})" if self.chance else ""
        return f"the loss has been above {limit:.3g} for {STREAK} steps and is now {loss:.3g}{guess}"

    def logged(self, step: int, loss: float) -> list[Finding]:
        """Look at the mean loss since the last log line."""
        findings: list[Finding] = []
        if step <= max(EARLIEST, self.settings.warmup):
            self._forget_clipping()
            return findings
        if self.chance is not None and loss > self.chance:
            findings += self._once(
                "above-chance",
                f"the loss {loss:.2f} at step {step} is above ln V = {self.chance:.2f}, that of a uniform guess: "
                "the model has learned nothing; lower lr, lengthen warmup, and check that sources and targets belong together.",
            )
        if self.steps >= EARLIEST:
            share = self.clipped / self.steps
            if share > CLIPPED:
                findings += self._once(
                    "clipped",
                    f"{share:.0%} of the last {self.steps} steps before step {step} were clipped to {self.settings.clip:g} "
                    f"(mean gradient norm {self.norms / self.steps:.2g}): clip now sets the step size; raise it or lower lr.",
                )
            self._forget_clipping()
        return findings

    def evaluated(self, step: int, samples: Sequence[Mapping[str, str]]) -> list[Finding]:
        """Look at the outputs on dev data: they betray what a falling loss hides."""
        outputs = [sample.get("output", "").split() for sample in samples]
        if not outputs:
            return []
        if all(not words for words in outputs):
            return self._once(
                "empty",
                f"all {len(outputs)} sample outputs at step {step} are empty: the model ends at once; train longer, and "
                "check that targets are not empty.",
            )
        spoken = [words for words in outputs if words]
        if all(set(words) == {UNKNOWN} for words in spoken):
            return self._once(
                "unknown",
                f"all sample outputs at step {step} consist of {UNKNOWN}: the vocabulary covers too little of the targets; "
                'use tokens="bpe" or a larger vocab_size.',
            )
        if all(len(set(words)) == 1 and len(words) > 2 for words in spoken):
            word = spoken[0][0]
            return self._once(
                "repeating",
                f"the sample outputs at step {step} repeat one word ({word!r}): the model has learned frequencies only; "
                "train longer, lower lr, or use a model with attention.",
            )
        self.said = [kind for kind in self.said if kind not in ("empty", "unknown", "repeating")]
        return []

    def state(self) -> dict[str, Any]:
        names = ("said", "first_loss", "streak", "steps", "clipped", "norms")
        return {name: getattr(self, name) for name in names}

    def restore(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def _once(self, kind: str, message: str) -> list[Finding]:
        if kind in self.said:
            return []
        self.said = [*self.said, kind]
        return [Finding(kind, message)]

    def _forget_clipping(self) -> None:
        self.steps = self.clipped = 0
        self.norms = 0.0
