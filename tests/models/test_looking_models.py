"""Models of pictures: squares cut in order, and beliefs that end in the answer."""

from __future__ import annotations

import pytest
import torch

from anaphora.models.looking import GridEncoder, LookingClassifier, LookingEncoder
from anaphora.models.pooling import LastState
from anaphora.nn.glimpse import DrawReader, GaussianRead, Glimpses, Retina
from anaphora.nn.grid_lstm import GridLSTM


def test_squares_come_row_by_row_and_are_filled_up() -> None:
    encoder = GridEncoder(2, 1, 3, [GridLSTM(3, 4)])
    picture = torch.arange(15.0).view(1, 3, 5, 1)
    squares = encoder.squares(picture)
    assert squares.shape == (1, 2, 3, 4)
    assert squares[0, 0, 1].tolist() == [2, 3, 7, 8]
    assert squares[0, 1, 2].tolist() == [14, 0, 0, 0]
    colours = GridEncoder(2, 2, 3, [GridLSTM(3, 4)]).squares(torch.arange(16.0).view(1, 2, 4, 2))
    assert colours[0, 0, 0].tolist() == [0, 1, 2, 3, 8, 9, 10, 11]


def test_the_last_state_of_a_grid_is_that_of_every_corner() -> None:
    encoder = GridEncoder(2, 1, 3, [GridLSTM(3, 4), GridLSTM(16, 5, directions=2)])
    memory = encoder(torch.randn(2, 6, 4, 1), torch.tensor([6, 6]))
    assert memory.annotations.shape == (2, 6, 10)
    assert memory.mask.all()
    ends = LastState()(memory)
    grid = memory.annotations.view(2, 3, 2, 10)
    torch.testing.assert_close(ends, torch.cat((grid[:, -1, -1, :5], grid[:, 0, 0, 5:]), -1))


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize(
    "eye",
    [Glimpses(Retina(3, 1, 1), 8, looks=4, wander=0.1), DrawReader(GaussianRead(8, 3), 1, 8, looks=4)],
)
def test_the_last_belief_is_the_answer(eye, outputs) -> None:
    model = LookingClassifier(
        LookingEncoder(eye), LastState(), width=8, outputs=outputs, binary=outputs == 1, dropout=0.5
    ).eval()
    picture = torch.randn(5, 6, 7, 1)
    scores, looks = model.look(picture)
    assert torch.equal(scores, model(picture, torch.full((5,), 6)))
    beliefs = model.beliefs(looks)
    assert beliefs.shape == (5, 4, max(outputs, 2))
    torch.testing.assert_close(beliefs[:, -1], scores)
