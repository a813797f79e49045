"""fleet.toml: every mistake has its line and column; what is right is read as it stands."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfwise.core.errors import InputError
from halfwise.fleet.check import check_file
from halfwise.fleet.settings import mistakes_in, read_settings, read_text
from halfwise.fleet.settings import tomllib as toml
from halfwise.fleet.template import template
from halfwise.fleet.toml_places import places
from halfwise.fleet.values import size_in_bytes
from tests.support.bisections import chain
from tests.support.says import Says

GOOD = """\
[fleet]
results = "out"
memory = "2 GiB"
processes = 3

[defaults]
do = ["scan", "fix"]
tolerance = [["0.5%"], ["y:max_abs<=0.1", "boxes=1%"]]
targets = ["onnx", "trt-10.9@t4"]
inputs = "samples"

[[models]]
name = "one"
path = "a.onnx"
seconds = 1.5

[[models]]
path = "b/*.onnx"
function = "make:samples"
"""


def test_what_is_right_is_read(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(GOOD)
    settings = read_settings(file)
    assert (settings.results, settings.memory, settings.processes) == (tmp_path / "out", 2 << 30, 3)
    one, other = settings.models
    assert one.do == ("scan", "fix") and one.seconds == 1.5 and one.inputs == ("samples",)
    assert one.tolerances == (("0.5%",), ("y:max_abs<=0.1", "boxes=1%"))
    assert other.function == "make:samples" and other.inputs == ()  # its own takes the place of the default


@pytest.mark.parametrize(
    ("change", "line", "column"),
    [
        (("results", "result"), 2, 1),
        (('"2 GiB"', '"2 GiX"'), 3, 1),
        (("processes = 3", "processes = 0"), 4, 1),
        (('"fix"]', '"fixx"]'), 7, 15),
        (("max_abs<=0.1", "max_abs>=0.1"), 8, 24),
        (("trt-10.9@t4", "trx-10.9"), 9, 20),
        (('"a.onnx"', "3"), 14, 1),
        (("seconds = 1.5", "seconds = -1"), 15, 1),
        (('"one"', '"a/b"'), 13, 1),
        (('do = ["scan", "fix"]', 'do = ["gate"]'), 12, 1),
        (("[defaults]", "[default]"), 6, 1),
        (("make:samples", "make"), 19, 1),
        (("[[models]]\nname", "[models]\nname"), 17, 9),
        (('"b/*.onnx"\n', '"b/*.onnx"\ninputs = "x"\n'), 20, 1),
        (('"a.onnx"', '["a.onnx"]'), 14, 1),
        (('"out"', '["out"]'), 2, 1),
        (('"onnx", ', '"onnx", "onnx", '), 9, 20),
        (('"0.5%"', '"-1%"'), 8, 14),
        (('"0.5%"', '"0.5%", "2%"'), 12, 1),
        (("boxes=1%", "metric<=1"), 12, 1),
        (("seconds = 1.5", 'metric = "m:f"'), 12, 1),
        (("seconds = 1.5", 'memory = "3 GiB"'), 15, 1),
        (("seconds = 1.5", 'device = "gpu"'), 15, 1),
    ],
)
def test_a_mistake_has_its_place(change: tuple[str, str], line: int, column: int, says: Says) -> None:
    found = mistakes_in(GOOD.replace(*change, 1))
    assert found, "no mistake"
    assert (found[0].line, found[0].column) == (line, column), found
    says(found[0].what)


def test_a_number_of_too_many_digits_is_a_mistake() -> None:
    (found,) = mistakes_in(GOOD.replace("processes = 3", f"processes = {'9' * 5000}"))
    assert found.what.startswith("no valid TOML: ") and "\n" not in found.what


@pytest.mark.parametrize("change", [("seconds = 1.5", f"seconds = {'9' * 400}"), ('"2 GiB"', f'"{"9" * 400} GB"')])
def test_a_number_beyond_any_time_or_memory_is_a_mistake(change: tuple[str, str]) -> None:
    (found,) = mistakes_in(GOOD.replace(*change, 1))
    assert " is wanted, not " in found.what and "\n" not in found.what


def test_all_mistakes_are_found_and_the_first_is_told_with_their_number(tmp_path: Path, says: Says) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(GOOD.replace("seconds", "secs").replace("memory", "ram").replace('path = "b', 'paths = "b'))
    assert [each.line for each in mistakes_in(file.read_text())] == [3, 15, 17, 18]
    with says.raises(InputError):
        read_settings(file)


def test_no_file_and_no_models_are_told(tmp_path: Path, says: Says) -> None:
    with pytest.raises(InputError, match="halfwise fleet init"):
        read_settings(tmp_path / "fleet.toml")
    (tmp_path / "fleet.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8"):
        read_settings(tmp_path / "fleet.toml")
    (mistake,) = mistakes_in("")
    says(mistake.what)


def test_sizes() -> None:
    assert [size_in_bytes(text) for text in ("512 MiB", "1.5GB", "7 B")] == [512 << 20, 1_500_000_000, 7]


KEYS = st.sampled_from(["a", "b-1", '"x y"', "'z.w'", "a.b"])
LEAVES = st.sampled_from(["1", "true", '"t # [x]"', "'''m\n]'''", '"""q\\"""""', "1979-05-27 07:32:00", "-inf"])
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda each: "[ " + ", # c\n ".join(each) + " ]")
        | inner.map(lambda each: "{ k = " + each.replace("\n", " ").replace("# c", "") + " }")
    ),
    max_leaves=4,
)


@given(
    st.lists(st.tuples(KEYS, VALUES), max_size=4),
    st.sampled_from(["", "[t]\n", "[[u]]\nv = 1\n[[u]]\n", "[t.'q q']\n"]),
)
def test_every_key_and_element_that_the_parser_sees_has_a_place(pairs: list[tuple[str, str]], head: str) -> None:
    text = "# first\n" + head + "".join(f"  {key} = {value}\n" for key, value in pairs)
    try:
        data = toml.loads(text)
    except toml.TOMLDecodeError:
        return

    def paths(value: object, path: tuple[str | int, ...]) -> set[tuple[str | int, ...]]:
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        return {path, *(p for key, each in inner for p in paths(each, (*path, key)))}

    found = places(text)
    assert paths(data, ()) - {()} <= set(found)
    lines = text.split("\n")
    assert all(1 <= column <= len(lines[line - 1]) for line, column in found.values())


def test_a_new_file_names_each_model_and_the_samples_beside_it(tmp_path: Path) -> None:
    for name in ("a/model.onnx", "b/model.onnx", "c.onnx", "d.onnx", "d.fp16.onnx"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "a/0.npz").touch()
    (tmp_path / "d-inputs").mkdir()
    (tmp_path / "d-inputs/0.npy").touch()
    (tmp_path / "fleet.toml").write_text(template(tmp_path, tmp_path))
    found = {each.name: each.inputs for each in read_settings(tmp_path / "fleet.toml").models}
    assert found == {"a": ("a",), "b": (), "c": (), "d": ("d-inputs",)}


def test_what_tables_point_to_is_looked_at_beside_other_mistakes(tmp_path: Path) -> None:
    onnx.save(chain(1), tmp_path / "a.onnx")
    (tmp_path / "empty").mkdir()
    (tmp_path / "nothing.onnx").touch()
    (tmp_path / "made.py").write_text("raise SystemExit\ndef good(): ...\n")
    file = tmp_path / "fleet.toml"
    mistaken = {
        'function = "made:good"': "",
        'function = "made:bad"': "11:1: function",
        'metric = "none:f"\ntolerance = "metric<=1"': "15:1: metric",
        'inputs = "empty"': "20:1: inputs",
        'do = "fixx"': "24:1: do",
        'inputs = "made.py"': "28:1: inputs",
        'path = "**a.onnx"': "30:1: **a.onnx",
        'path = "nothing.onnx"': "32:1: path",
        'path = "a.onnx"\nname = "0"': "35:1: the name '0' is taken by an earlier model",
        'path = "a.onnx"\ndo = "scan"': "",
        'path = "./a.onnx"\ndo = "scan"': "40:1: two files bear the name 'a'",
        'path = "made.py"': "43:1: path",
        'path = "**"': "45:1: **",
    }
    text = '[fleet]\nresults = "made.py"\nmemory = "lots"\n'
    for number, table in enumerate(mistaken):
        text += "[[models]]\n" if "path" in table else f'[[models]]\npath = "a.onnx"\nname = "{number}"\n'
        text += f"{table}\n"
    file.write_text(text)
    _, told = check_file(file)
    lines = [":".join(line.removeprefix(f"{file}:").split(":")[:3]) for line in told]
    assert lines == ["2:1: results", "3:1: memory", *filter(None, mistaken.values())]


@pytest.mark.parametrize(
    "key",
    [".".join("a" * 500), " . ".join(['"a"'] * 500), f"x = {{{'.'.join('a' * 500)} = 1}}"],
    ids=["bare", "quoted", "inline"],
)
def test_a_key_of_very_many_parts_is_refused(key: str, tmp_path: Path) -> None:
    """20,000 of them took the parser 1.6 GB."""
    (tmp_path / "f.toml").write_text(f"{key} = 1\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"f\.toml:1:1: more than 100 points"):
        read_text(tmp_path / "f.toml")


def test_points_in_strings_are_not_counted(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text("x = [" + '".m.onnx",' * 500 + "]\n", encoding="utf-8")
    assert read_text(tmp_path / "f.toml").count(".") == 1000


def test_a_model_without_its_external_data_is_a_mistake(tmp_path: Path, says: Says) -> None:
    """A job would be refused for it in the middle of the night."""
    onnx.save(chain(2), tmp_path / "a.onnx", save_as_external_data=True, location="a.data", size_threshold=0)
    file = tmp_path / "fleet.toml"
    file.write_text('[[models]]\npath = "a.onnx"\n')
    assert check_file(file)[1] == []
    (tmp_path / "a.data").write_bytes(b"")
    says(*check_file(file)[1])
    (tmp_path / "a.data").unlink()
    says(*check_file(file)[1])
