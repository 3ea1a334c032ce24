"""Settings of a decoder that reads a prompt before it writes: Whisper."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from anaphora.settings.base import Settings


class PromptSettings(Settings):
    decoder_layers: int = Field(
        0,
        ge=0,
        le=64,
        description="Layers of the decoder where they are not as many as the encoder's; 0 = as many.",
    )
    written_positions: int = Field(448, ge=4, description="Symbols that the decoder has positions for.")
    prompt: str = Field(
        "",
        description="Symbols that stand between <s> and every text, their numbers with spaces between them; ? is the most probable "
        "of `languages`.",
    )
    languages: str = Field("", description="Symbols of languages, as `prompt`.")
    never: str = Field("", description="Symbols that are never written, as `prompt`.")
    never_first: str = Field("", description="Symbols that no text begins with, as `prompt`.")

    @classmethod
    def problem(cls, s: Any) -> str | None:
        for name in ("prompt", "languages", "never", "never_first"):
            marks = getattr(s, name).split()
            if not all(mark.isdigit() or (name == "prompt" and mark == "?") for mark in marks):
                return (
                    f"{name} = {getattr(s, name)[:40]!r} must be numbers of symbols with spaces between them"
                )
        if "?" in s.prompt.split() and not s.languages:
            return "prompt has a ?, which stands for one of languages: give those"
        if len(s.prompt.split()) + 2 >= s.written_positions:
            return f"written_positions = {s.written_positions} leaves no room after the prompt"
        if s.features != "whisper":
            return f"features = {s.features!r} must be 'whisper', which the convolutions read"
        if s.subsample != 2:
            return f"subsample = {s.subsample} must be 2, by which the second convolution goes on"
        return None
