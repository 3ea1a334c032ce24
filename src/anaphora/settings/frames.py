"""Settings of what reads each frame by itself, before the layers that read them in order."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator

from anaphora.settings.base import Settings


class FrameSettings(Settings):
    frontend: Literal["none", "dense", "conv"] = Field(
        "none",
        description="What reads each frame of vectors before the layers that read them in order (lip reading, video): "
        "nothing, a feed-forward layer, or convolutions over the frame. Texts have none.",
    )
    frame: str = Field(
        "",
        description="Rows and columns of a frame that is a picture, such as 24x32, for frontend = conv; empty: a frame is a "
        "row of numbers.",
    )

    @field_validator("frame")
    @classmethod
    def _two_sizes(cls, frame: str) -> str:
        if frame and not re.fullmatch(r"[1-9]\d{0,3}x[1-9]\d{0,3}", frame):
            raise ValueError("it must be rows and columns, such as 24x32")
        return frame

    @property
    def frame_size(self) -> tuple[int, int] | None:
        """``frame`` as rows and columns."""
        if not self.frame:
            return None
        rows, columns = self.frame.split("x")
        return int(rows), int(columns)

    @classmethod
    def problem(cls, s: Any) -> str | None:
        if s.frame and s.frontend != "conv":
            return f"frame = '{s.frame}' is for frontend = 'conv', but frontend = '{s.frontend}'"
        return None
