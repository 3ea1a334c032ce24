"""I4: Sound files: every kind of sample as its value, and one sentence for every file that is not what it says."""

from __future__ import annotations

import io
import resource
import struct
import sys
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anaphora.data.audio import files
from anaphora.data.audio.files import as_wave, audio_length, read_audio, sound_files
from anaphora.data.corpora.sound_corpus import write_wav
from anaphora.errors import DataError

soundfile = pytest.importorskip("soundfile")
RAMP = np.linspace(-0.9, 0.9, 1000).astype(np.float32)


def wav(form=1, channels=1, rate=8000, bits=16, data=bytes(2000), claim=None, more=b""):
    """The bytes of a WAV file, true or not."""
    frame = channels * bits // 8
    head = struct.pack("<HHIIHH", form, channels, rate, rate * frame & 0xFFFFFFFF, frame & 0xFFFF, bits)
    size = len(data) if claim is None else claim
    body = b"WAVE" + more + b"fmt " + struct.pack("<I", 16) + head + b"data" + struct.pack("<I", size) + data
    return b"RIFF" + struct.pack("<I", min(len(body) - len(data) + size, 0xFFFFFFFF)) + body


def kept(folder, data, name="a.wav"):
    path = folder / name
    path.write_bytes(data)
    return path


def mu_law(byte):
    """G.711: the sample that a byte stands for, written as the standard has it."""
    byte = ~byte & 0xFF
    size = ((((byte & 15) << 3) + 132) << (byte >> 4 & 7)) - 132
    return (-size if byte & 128 else size) / 32_768


def test_every_kind_of_sample_by_hand(tmp_path):
    whole = np.array([-32_768, -1, 0, 1, 32_767], dtype="<i2")
    cases = {
        "16 bits": (wav(data=whole.tobytes()), whole / 32_768),
        "8 bits": (wav(bits=8, data=bytes([0, 128, 255])), np.array([-1, 0, 127 / 128])),
        "24 bits": (
            wav(bits=24, data=b"\x00\x00\x80\x00\x00\x00\x01\x00\x00"),
            np.array([-1, 0, 1 / 2**23]),
        ),
        "float": (wav(form=3, bits=32, data=RAMP.astype("<f4").tobytes()), RAMP),
        "double": (wav(form=3, bits=64, data=RAMP.astype("<f8").tobytes()), RAMP),
        "µ-law": (wav(form=7, bits=8, data=bytes(range(256))), np.array([mu_law(b) for b in range(256)])),
        "other chunks before": (wav(data=whole.tobytes(), more=b"LIST\x03\0\0\0abc\0"), whole / 32_768),
    }
    for name, (data, expected) in cases.items():
        path = kept(tmp_path, data)
        found, rate = read_audio(path)
        assert (found.dtype, rate) == (np.float32, 8000), name
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7, err_msg=name)
        assert audio_length(path) == (len(expected), 8000), name


def test_channels_are_averaged(tmp_path):
    both = np.stack([RAMP, 0.5 * RAMP], 1)
    for ending in ("wav", "flac"):
        soundfile.write(tmp_path / f"a.{ending}", both, 8000)
        found, _ = read_audio(tmp_path / f"a.{ending}")
        np.testing.assert_allclose(found, 0.75 * RAMP, rtol=0, atol=1e-4)


@pytest.mark.parametrize("ending", ["wav", "flac", "ogg"])
def test_a_tone_comes_back_at_another_rate(tmp_path, ending):
    tone = 0.5 * np.sin(2 * np.pi * 440 / 44_100 * np.arange(44_100))
    path = tmp_path / f"tone.{ending}"
    soundfile.write(path, tone, 44_100)
    assert audio_length(path) == (44_100, 44_100)
    found, rate = read_audio(path, rate=16_000)
    assert (len(found), rate) == (16_000, 16_000)
    expected = 0.5 * np.sin(2 * np.pi * 440 / 16_000 * np.arange(16_000))
    np.testing.assert_allclose(
        found[1000:-1000], expected[1000:-1000], atol=0.02 if ending == "ogg" else 1e-3
    )


def test_blocks_make_the_whole(tmp_path, monkeypatch):
    path = tmp_path / "a.flac"
    soundfile.write(path, np.stack([RAMP] * 3, 1), 8000)
    whole, _ = read_audio(path)
    monkeypatch.setattr(files, "_BLOCK", 7)
    np.testing.assert_array_equal(read_audio(path)[0], whole)


def test_a_file_that_was_written_to_a_pipe_is_read_to_its_end(tmp_path):
    path = kept(tmp_path, wav(data=RAMP.astype("<f4").tobytes(), form=3, bits=32, claim=0xFFFFFFFF))
    np.testing.assert_array_equal(read_audio(path)[0], RAMP)


BAD = {
    "is empty": b"",
    "is not a sound file; give": b"these are words, no sound\n" * 20,
    "has no channels": wav(channels=0),
    "0 samples a second": wav(rate=0),
    "16719871 samples a second": wav(rate=16_719_871),
    "Too many channels": wav(channels=65_535),
    "holds no sound; record": wav(data=b"", claim=0xFFFFFFFF),  # four gigabytes, in 44 bytes
    "holds no sound; record it": wav(data=b"", claim=0),
    "was cut off": wav(claim=20_000),
    "'data' chunk": b"RIFF\x24\0\0\0WAVE",
    "unimplemented format": wav(bits=0),
    "holds NaN or infinity": wav(form=3, bits=32, data=np.full(9, np.nan, "<f4").tobytes()),
}


@pytest.mark.parametrize("told", BAD)
def test_files_that_are_not_what_they_say(tmp_path, told):
    path = kept(tmp_path, BAD[told])
    with pytest.raises(DataError) as caught:
        read_audio(path, rate=16_000)
    sentence = str(caught.value)
    assert told in sentence
    assert sentence.startswith(str(path))
    assert "\n" not in sentence
    assert sentence.endswith(".")


def test_floats_that_are_no_sound_are_found_before_training(tmp_path):
    """A list is opened by lengths alone, so that rows are left out there or never."""
    for data, told in ((np.nan, "NaN"), (1e30, "samples of 1e\\+30, where sound is from −1 to 1")):
        path = kept(tmp_path, wav(form=3, bits=32, data=np.full(9, data, "<f4").tobytes()))
        with pytest.raises(DataError, match=told):
            audio_length(path)
    path = kept(tmp_path, wav(form=3, bits=32, data=np.full(9, 0.5, "<f4").tobytes()))
    assert audio_length(path) == (9, 8000)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (np.array([0, 16384, -32768], np.int16), [0.0, 0.5, -1.0]),
        (np.array([0, 1 << 30, -(1 << 31)], np.int32), [0.0, 0.5, -1.0]),
        (np.array([128, 192, 0], np.uint8), [0.0, 0.5, -1.0]),
        (np.array([0.0, 2.5]), [0.0, 2.5]),
        ([0, 1, -1], [0.0, 1.0, -1.0]),  # a list says nothing of how its numbers were stored
    ],
)
def test_whole_numbers_are_scaled_as_files_are(given, wanted):
    assert as_wave(given, "it").tolist() == wanted


def test_floats_at_the_scale_of_whole_numbers_are_warned_of():
    with pytest.warns(UserWarning, match=r"^it holds samples up to 20000, where sound is from −1 to 1"):
        as_wave(np.array([0.0, -20000.0]), "it")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        as_wave(np.array([0.0, -3.0]), "it")


@pytest.mark.parametrize("ending", ["flac", "ogg"])
def test_compressed_files_that_were_cut_off(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    soundfile.write(path, np.random.RandomState(0).uniform(-0.5, 0.5, 40_000), 8000)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    for read in (read_audio, audio_length):
        with pytest.raises(DataError, match=r"was cut off|holds no sound"):
            read(path)


def test_a_flac_that_claims_to_be_endless(tmp_path):
    path = tmp_path / "a.flac"
    soundfile.write(path, RAMP, 8000)
    lie = bytearray(path.read_bytes())
    lie[21] |= 0x0F  # the number of samples, 36 bits of the stream's head
    lie[22:26] = b"\xff" * 4
    path.write_bytes(lie)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for read in (read_audio, audio_length):
        with pytest.raises(DataError, match="says that it holds 68719476735 samples"):
            read(path)
    if sys.platform == "linux":  # where it is counted in KiB
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def whole_files():
    """One small file of each kind, as bytes."""
    found = {"wav": wav(data=np.round(1000 * RAMP).astype("<i2").tobytes())}
    for ending in ("flac", "ogg"):
        held = io.BytesIO()
        soundfile.write(held, RAMP, 8000, format=ending.upper())
        found[ending] = held.getvalue()
    return found


@pytest.mark.parametrize("ending", ["wav", "flac", "ogg"])
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_bytes_give_sound_or_a_sentence(tmp_path, ending, data):
    damaged = bytearray(whole_files()[ending])
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, min(len(damaged) - 1, 120)))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    path = kept(tmp_path, bytes(damaged), f"a.{ending}")
    try:
        frames, _ = audio_length(path)
        samples, _ = read_audio(path, rate=16_000)
    except DataError as error:
        told = str(error)
    else:
        told = f"{path} is sound"
        assert np.isfinite(samples).all()
        assert 0 < frames <= 8 * len(damaged)
    assert "\n" not in told
    assert told.startswith(str(path))


def test_a_slow_clock_does_not_fill_memory(tmp_path):
    path = kept(tmp_path, wav(rate=1, data=bytes(200_000)))
    with pytest.raises(DataError, match=r"too long at 16000 Hz; cut it, or correct its rate of 1 Hz"):
        read_audio(path, rate=16_000)


def test_places_that_are_no_file(tmp_path):
    with pytest.raises(DataError, match=r"there is no such file; check the path"):
        read_audio(tmp_path / "none.wav")
    with pytest.raises(DataError, match="is not a file"):
        audio_length(tmp_path)


def test_without_the_library(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(DataError, match=r"pip install anaphora\[audio\]"):
        read_audio(kept(tmp_path, wav()))


def test_the_sounds_of_a_folder(tmp_path):
    (tmp_path / "deep").mkdir()
    for name in ("b.wav", "deep/a.FLAC", "notes.txt"):
        kept(tmp_path, b"", name)
    assert [path.name for path in sound_files(tmp_path)] == ["b.wav", "a.FLAC"]
    with pytest.raises(DataError, match="holds no sound"):
        sound_files(tmp_path / "none")


def test_what_is_written_is_read(tmp_path):
    x = np.array([-1, -0.5, 0, 1 / 32_768, 0.5, 1], dtype=np.float32)
    write_wav(tmp_path / "a.wav", x, 8000)
    found, rate = read_audio(tmp_path / "a.wav")
    assert rate == 8000
    np.testing.assert_allclose(found, x, rtol=0, atol=1 / 32_768)
    np.testing.assert_array_equal(found[:5], x[:5])
