"""What the tasks share whose inputs are pictures with texts about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from torch import Tensor

from anaphora.data.batches.padded import Augmentation
from anaphora.data.pictures import PictureList, Size
from anaphora.data.pictures_readers import PICTURE_READER, Kind, open_pictures
from anaphora.data.split import Split
from anaphora.tasks.begin_senses import sense_donor
from anaphora.tasks.estimator import Estimator
from anaphora.tasks.eye import Eye, begin_seeing
from anaphora.tasks.recipe import Recipe
from anaphora.training.run import RunFolder
from anaphora.training.weights import snapshot


class PictureEstimator(Estimator):
    """How pictures are opened, found again and changed while training; ``texts``: what is said about them."""

    texts: ClassVar[Kind]
    seeing: ClassVar[str]
    """What the names of the part that sees begin with."""
    _eye: Eye | None = None
    """The published model that sees, where there is one."""
    _donor: Any = None

    @property
    def size(self) -> Size:
        """Height and width of the pictures that the model sees."""
        return self.settings_.picture_size, self.settings_.picture_size

    def _open(
        self, data: Any, valid: Any | None, *, spill: Path | None, **fields: str | None
    ) -> tuple[PictureList, PictureList]:
        self.settings_, self._eye, self._donor = begin_seeing(self.task(), self._given, self.settings_)
        s = self.settings_
        read: dict[str, Any] = {
            "size": self.size,
            "texts": self.texts,
            "bad_rows": s.bad_rows,
            "spill": spill,
        }
        return PICTURE_READER.training(data, valid, Split("rows", s.holdout, s.seed), **read, **fields)

    def _public_weights(self) -> dict[str, Tensor]:
        """Those of the model that ``init`` names, under the names that they have here."""
        donor = self._donor if self._donor is not None else sense_donor(self.settings_.init)
        held = {} if donor is None else snapshot(donor.model_.encoder)
        return {f"{self.seeing}network.{name}": value for name, value in held.items()}

    def _open_test(self, data: Any, bad_rows: str | None, **fields: Any) -> PictureList:
        bad_rows = bad_rows or self.settings_.bad_rows
        return open_pictures(
            data,
            role="test",
            size=self.size,
            texts=self.texts,
            bad_rows=bad_rows,
            learnt=self.recipe_.trained_on,
            **fields,
        )

    def _augmentation(self) -> Augmentation:
        s = self.settings_
        return Augmentation(s.augment, s.mirror, s.seed)

    def _reopen(self, run: RunFolder, recipe: Recipe) -> tuple[PictureList, PictureList]:
        return PICTURE_READER.reopen(recipe.data, run.path / "data")

    def _dev(self, run: RunFolder, recipe: Recipe) -> PictureList:
        return PICTURE_READER.reopen_dev(recipe.data, run.path / "data")

    def _inputs(self) -> Literal["text", "numbers", "series", "file"]:
        return "file"
