"""Long recordings in windows: every frame is read once, and convolutions find what they find in the whole."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transcribe_tiny import FEATURES, settings

from anaphora.data.audio.frames import Ear
from anaphora.tasks.registry import TASKS, resolve
from anaphora.tasks.transcribe.build import build_transcriber
from anaphora.tasks.transcribe.inference.decoding import frame_log_probs
from anaphora.tasks.transcribe.inference.windows import Window, cut, join_log_probs


def test_windows_by_hand():
    assert cut(10, 20, 4, 1) == [Window(0, 10, 0, 10)]
    assert cut(20, 10, 4, 1) == [Window(0, 10, 0, 8), Window(6, 16, 8, 14), Window(12, 20, 14, 20)]


@given(st.integers(1, 300), st.integers(1, 60), st.integers(0, 59), st.sampled_from([1, 2, 3, 4]))
def test_the_windows_own_parts_follow_each_other_over_all_frames(frames, window, overlap, factor):
    windows = cut(frames, window, min(overlap, window - 1), factor)
    assert windows[0].first == 0
    assert windows[-1].last == frames
    for before, after in itertools.pairwise(windows):
        assert before.last == after.first
        assert after.start % factor == before.last % factor == 0
    for w in windows:
        assert w.start <= w.first <= w.last <= w.end
        assert w.first < w.last


def model_of(preset, **more):
    torch.manual_seed(0)
    s = resolve(TASKS["transcribe"], settings(preset, **more))
    return build_transcriber(s, ear=Ear(s, "features", 0, FEATURES), symbols=9).eval(), s.subsample


def in_windows(model, x, factor, window, overlap):
    windows = cut(len(x), window, overlap, factor)
    assert len(windows) > 1
    parts = frame_log_probs(model, [x[w.start : w.end] for w in windows])
    return join_log_probs(windows, parts, factor)


@pytest.mark.parametrize("subsample", [1, 2, 4])
def test_convolutions_say_the_same_as_of_the_whole(subsample):
    model, factor = model_of("conv-ctc", subsample=subsample, layers=3)
    x = np.random.RandomState(0).standard_normal((400, FEATURES)).astype(np.float32)
    (whole,) = frame_log_probs(model, [x])
    reach = factor * (model.encoder.body.reach + 2)  # the front sees a little further than its own frames
    found = in_windows(model, x, factor, 100, 2 * reach)
    torch.testing.assert_close(found, whole, atol=1e-5, rtol=0)


def test_recurrent_layers_say_nearly_the_same_and_more_overlap_is_nearer():
    model, factor = model_of("bilstm-ctc")
    x = np.random.RandomState(0).standard_normal((400, FEATURES)).astype(np.float32)
    (whole,) = frame_log_probs(model, [x])
    gaps = [(in_windows(model, x, factor, 200, o) - whole).abs().max().item() for o in (0, 40, 160)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-3  # a fresh LSTM forgets about a quarter at each of the 40 steps that are context


@pytest.mark.parametrize("overlap", [0, 8, 40])
def test_what_a_model_leaves_out_at_the_ends_is_heard_in_the_window_beside(overlap):
    """`edges` puts quiet around a recording, and as many frames at the ends of every window are left out of what is said."""
    model, factor = model_of("conv-ctc", layers=1, edges=0.16)
    x = np.random.RandomState(0).standard_normal((400, FEATURES)).astype(np.float32)
    (whole,) = frame_log_probs(model, [x])
    windows = cut(len(x), 150, overlap, factor, factor * model.encoder.margin)
    assert len(windows) > 2
    found = join_log_probs(windows, frame_log_probs(model, [x[w.start : w.end] for w in windows]), factor)
    assert found.shape == whole.shape
    torch.testing.assert_close(found, whole, atol=1e-5, rtol=0)
