"""Settings of learning from the predictions of trained runs."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from anaphora.settings.base import Settings, written


class TeacherSettings(Settings):
    """Distillation: soft targets besides the true ones."""

    teacher: str = Field(
        "",
        description="Run folders whose predictions the model learns besides the truth (distillation, Hinton 2015; `anaphora distill` "
        "sets it); of several, separated by commas, the mean. The model takes over their symbols and labels.",
    )
    teacher_weight: float = Field(
        0.5, ge=0, le=1, description="Share of the loss that is the divergence from what teacher predicts."
    )
    teacher_temperature: float = Field(
        1.0,
        gt=0,
        allow_inf_nan=False,
        description="T by which the scores of model and teacher are divided before they are compared: above 1 also what is "
        "improbable counts.",
    )

    @property
    def teachers(self) -> tuple[str, ...]:
        """The folders that ``teacher`` names."""
        return tuple(part.strip() for part in self.teacher.split(",") if part.strip())

    @classmethod
    def problem(cls, s: Any) -> str | None:
        for key in ("teacher_weight", "teacher_temperature"):
            value = getattr(s, key)
            if not s.teachers and value != cls.model_fields[key].default:
                return f"{key} = {written(value)} is about teacher: set teacher to a run folder"
        if s.teachers and getattr(s, "init", ""):
            return "init and teacher both say whose symbols the model takes over: leave one of the two out"
        return None
