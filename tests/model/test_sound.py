"""Sound as inputs: one channel, the wanted rate, the model's windows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from halfwise.core.errors import InputError
from halfwise.core.notes import NoteKind
from halfwise.model.input_spec import InputSpec
from halfwise.model.inputs.audio import Audio
from halfwise.model.inputs.samples import load_samples
from tests.support.media import sound
from tests.support.messages import only
from tests.support.says import Says

pytest.importorskip("soundfile")

F32 = np.dtype(np.float32)
TIMES = np.arange(1600) / 16_000
TONE = 0.5 * np.sin(2 * np.pi * 440 * TIMES)


def test_a_whole_file_where_the_length_is_open(tmp_path: Path) -> None:
    sound(tmp_path / "a.wav", TONE, 16_000)
    feed = load_samples([InputSpec("wave", F32, (1, "time"))], Audio(tmp_path)).search[0]
    assert feed["wave"].shape == (1, 1600) and np.abs(feed["wave"][0] - TONE).max() < 1e-4


def test_windows_in_order_the_last_filled_with_silence(tmp_path: Path) -> None:
    sound(tmp_path / "a.wav", TONE, 16_000)
    samples = load_samples([InputSpec("wave", F32, (512,))], [Audio(tmp_path)], states=())
    feeds = sorted(samples.all, key=lambda feed: abs(feed["wave"][0] - TONE[0]) > 1e-4)
    assert len(feeds) == 4 and np.abs(feeds[0]["wave"] - TONE[:512]).max() < 1e-4
    assert any((feed["wave"][64:] == 0).all() and feed["wave"][:64].any() for feed in samples.all)


def test_channels_are_mixed_and_the_rate_is_changed(tmp_path: Path) -> None:
    times = np.arange(4410) / 44_100
    tone = 0.5 * np.sin(2 * np.pi * 440 * times)
    sound(tmp_path / "a.wav", np.stack([tone, 0 * tone], 1), 44_100)
    samples = load_samples([InputSpec("wave", F32, (1, None))], [Audio(tmp_path, 16_000)])
    got = samples.search[0]["wave"][0]
    assert got.size == 1600 and np.abs(got[100:-100] - TONE[100:-100] / 2).max() < 1e-3
    told = only(samples.notes, NoteKind.AUDIO_READ)
    assert told.values["rate"] == 16_000 and told.values["resampled"].values["rates"] == [44_100]


@pytest.mark.parametrize(
    ("spec", "rate"),
    [
        (InputSpec("x", F32, (1, 80, 100)), 16_000),
        (InputSpec("x", np.dtype(np.int64), (1, 80)), 16_000),
        (InputSpec("x", F32, (1, None)), 0),
    ],
)
def test_what_does_not_fit_is_one_line(spec: InputSpec, rate: int, says: Says, tmp_path: Path) -> None:
    sound(tmp_path / "a.wav", TONE, 16_000)
    with pytest.raises(InputError) as caught:
        load_samples([spec], [Audio(tmp_path, rate)])
    says(caught.value)
    assert "\n" not in str(caught.value)


def test_folders_without_sound_are_told(tmp_path: Path, says: Says) -> None:
    spec = InputSpec("x", F32, (1, None))
    with says.raises(InputError):
        load_samples([spec], [Audio(tmp_path)])
    with pytest.raises(InputError, match="there is no such folder"):
        load_samples([spec], [Audio(tmp_path / "none")])
    (tmp_path / "a.wav").write_bytes(b"no sound")
    with says.raises(InputError):
        load_samples([spec], [Audio(tmp_path)])
