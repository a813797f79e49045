"""PyTorch's checkpoints, and which of what was saved is the network."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from halfwise.core.errors import InputError, MissingBackend
from halfwise.core.notes import Note, NoteKind
from halfwise.model.checkpoints import read_checkpoint
from halfwise.model.checkpoints.state import find_state
from halfwise.verbs.scan import scan
from tests.support.checkpoints import values_of
from tests.support.says import Says


def chosen(key: str) -> Note:
    return Note.of(NoteKind.STATE_CHOSEN, key)


# -- PyTorch ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


def state_of(torch: Any) -> dict[str, Any]:
    weight = torch.tensor([[1.0, 1e-6, 0.0], [1e-9, 7e4, -2.0]])
    return {
        "weight": weight,
        "tied": weight,
        "turned": weight.t(),
        "every_other": torch.arange(6.0)[::2],
        "brain": torch.tensor([1e-6, 3.0], dtype=torch.bfloat16),
        "ids": torch.arange(3),
        "empty": torch.zeros(0, 4),
    }


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_what_torch_saved(tmp_path: Path, torch: Any, legacy: bool, nested: bool) -> None:
    state = state_of(torch)
    document = {"epoch": 3, "model": state, "optimizer": {"state": {0: {"avg": torch.ones(5)}}}} if nested else state
    torch.save(document, tmp_path / "x.pth", _use_new_zipfile_serialization=not legacy)
    checkpoint = read_checkpoint(tmp_path / "x.pth")
    found = values_of(checkpoint)
    assert set(found) == {"weight", "every_other", "brain", "empty"}
    assert found["weight"] == state["weight"].tolist()
    assert found["every_other"] == [0.0, 2.0, 4.0]
    assert {t.name: t.aliases for t in checkpoint.tensors}["weight"] == ("tied", "turned")
    assert checkpoint.other_names == ("ids",)
    assert checkpoint.notes == ((chosen("model"),) if nested else ())
    in_file = checkpoint.tensors[0].elements._file is not None
    assert in_file is not legacy
    totals = scan(tmp_path / "x.pth").totals
    assert (totals.count, totals.subnormal, totals.underflow, totals.overflow) == (11, 2, 1, 1)


@pytest.mark.parametrize("legacy", [False, True])
def test_repeated_elements_count_once(tmp_path: Path, torch: Any, legacy: bool, says: Says) -> None:
    state = {"wide": torch.tensor([[1e-6], [2.0]]).expand(2, 1 << 40)}
    torch.save(state, tmp_path / "x.pt", _use_new_zipfile_serialization=not legacy)
    assert values_of(read_checkpoint(tmp_path / "x.pt")) == {"wide": state["wide"][:, 0].tolist()}
    torch.save(
        {"diagonals": torch.arange(8.0).as_strided((5, 4), (1, 1))},
        tmp_path / "y.pt",
        _use_new_zipfile_serialization=not legacy,
    )
    with says.raises(InputError):
        read_checkpoint(tmp_path / "y.pt")


def test_code_is_refused_and_never_run(tmp_path: Path, torch: Any, says: Says) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"model": {"a": torch.ones(2)}, "evil": Evil()}, tmp_path / "evil.pth")
    with says.raises(InputError):
        read_checkpoint(tmp_path / "evil.pth")
    assert not (tmp_path / "ran").exists()
    torch.save(torch.nn.Linear(2, 2), tmp_path / "whole.pt")
    with pytest.raises(InputError, match=r"holds more than tensors \(torch\.nn\.modules\.linear\.Linear\)"):
        read_checkpoint(tmp_path / "whole.pt")


@pytest.mark.parametrize("content", [b"", b"hello world" * 50, b"PK\x03\x04 cut short", b"\x80\x02}q\x00."])
def test_files_that_torch_cannot_read(tmp_path: Path, torch: Any, content: bytes, says: Says) -> None:
    (tmp_path / "x.pt").write_bytes(content)
    with says.raises(InputError):
        read_checkpoint(tmp_path / "x.pt")


@pytest.mark.filterwarnings("ignore")
def test_quantised_tensors_are_left_out(tmp_path: Path, torch: Any) -> None:
    """PyTorch cannot read them without their values; the file is whole all the same."""
    if not hasattr(torch, "quantize_per_tensor"):
        pytest.skip("this torch has no quantised tensors")
    weight = torch.ones(4, 4)
    torch.save({"q": torch.quantize_per_tensor(weight, 0.1, 0, torch.qint8), "a.weight": weight}, tmp_path / "x.pth")
    checkpoint = read_checkpoint(tmp_path / "x.pth")
    assert [tensor.name for tensor in checkpoint.tensors] == ["a.weight"] and checkpoint.other_names == ("q",)


def test_an_archive_that_is_cut_or_packed(tmp_path: Path, torch: Any, says: Says) -> None:
    torch.save(state_of(torch), tmp_path / "x.pth")
    content = (tmp_path / "x.pth").read_bytes()
    (tmp_path / "cut.pth").write_bytes(content[: len(content) // 2])
    with says.raises(InputError):
        read_checkpoint(tmp_path / "cut.pth")
    with (
        zipfile.ZipFile(tmp_path / "x.pth") as source,
        zipfile.ZipFile(tmp_path / "packed.pth", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for record in source.infolist():
            packed.writestr(record.filename, source.read(record))
    expected = values_of(read_checkpoint(tmp_path / "x.pth"))
    try:
        assert values_of(read_checkpoint(tmp_path / "packed.pth")) == expected
    except InputError as told:  # where torch itself refuses it
        assert "is no whole PyTorch checkpoint" in str(told)


def test_pytorch_shards(tmp_path: Path, torch: Any) -> None:
    torch.save({"a": torch.ones(2)}, tmp_path / "pytorch_model-1.bin")
    torch.save({"b": torch.ones(3)}, tmp_path / "pytorch_model-2.bin")
    places = {"a": "pytorch_model-1.bin", "b": "pytorch_model-2.bin"}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))
    assert values_of(read_checkpoint(tmp_path)) == {"a": [1.0, 1.0], "b": [1.0, 1.0, 1.0]}


# -- which of what was saved is the network ---------------------------------------------------------------------------


class Tensor:
    pass


T = Tensor()


def among(key: str, other: str) -> Note:
    return Note.of(NoteKind.STATE_CHOSEN_AMONG, key, others=[other])


@pytest.mark.parametrize(
    ("document", "names", "notes"),
    [
        (T, ["tensor"], ()),
        ({"a.weight": T, "b": T}, ["a.weight", "b"], ()),
        ({"a": T, "optimizer": {"x": T}}, ["a"], ()),
        ({"state_dict": {"a": T}, "epoch": 1}, ["a"], (chosen("state_dict"),)),
        ({"model": {"state_dict": {"a": T}}}, ["a"], (chosen("model"), chosen("state_dict"))),
        ({"ema": {"a": T, "b": T}, "model": {"a": T}}, ["a"], (among("model", "ema"),)),
        ({"one": {"a": T}, "two": {"a": T, "b": T}}, ["a", "b"], (among("two", "one"),)),
        ([T, {"a": T}], ["0", "1.a"], ()),
        ({"optimizer": {"x": T}}, [], ()),
        ({"epoch": 1}, [], ()),
        (7, [], ()),
    ],
)  # fmt: skip
def test_the_network_is_found(document: Any, names: list[str], notes: tuple[Note, ...]) -> None:
    state = find_state(document, lambda value: isinstance(value, Tensor))
    assert list(state.tensors) == names
    assert state.notes == notes


def test_without_torch_the_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    (tmp_path / "x.pth").write_bytes(b"anything")
    monkeypatch.setitem(sys.modules, "torch", None)
    with says.raises(MissingBackend):
        read_checkpoint(tmp_path / "x.pth")
