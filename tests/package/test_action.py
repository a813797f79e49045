"""The GitHub Action and the container: read as their runners read them, and the steps run with stand-ins."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from halfwise.cli.main import app
from tests.support.paths import ROOT
from tools.versions import LOCK

EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}")
NAMED = re.compile(r"\b(inputs|steps|github|env)((?:\.[\w-]+)+)")
KNOWN = {"github.token", "github.event_name", "github.action_path"}  # of GitHub's own
HOSTILE = "  ::add-mask::a"  # a name of a node, where a line begins with it
INSTRUCTIONS = "FROM WORKDIR COPY RUN USER ENV ENTRYPOINT CMD".split()


def action() -> dict[str, Any]:
    read = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    assert isinstance(read, dict)
    return read


def step(which: str) -> dict[str, Any]:
    """By its id, or by what its script begins with."""
    steps = action()["runs"]["steps"]
    return next(each for each in steps if each.get("id") == which or each.get("run", "").startswith(which))


def test_the_action_is_what_github_reads() -> None:
    read = action()
    assert set(read) == {"name", "description", "inputs", "runs"} and set(read["runs"]) == {"using", "steps"}
    assert read["runs"]["using"] == "composite"
    assert all(set(each) <= {"description", "default", "required"} for each in read["inputs"].values())
    assert all(isinstance(each.get("default", ""), str) for each in read["inputs"].values())
    steps = read["runs"]["steps"]
    for each in steps:
        assert set(each) <= {"id", "if", "uses", "with", "shell", "env", "run"}
        assert ("uses" in each) != ("run" in each) and ("run" in each) == ("shell" in each)
        assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", each.get("uses", "a/b@v1"))
        assert "${{" not in each.get("run", "")  # values reach the shell by the environment only
        subprocess.run(["bash", "-n", "-c", each.get("run", ":")], check=True)
    ids = {each["id"] for each in steps if "id" in each}
    text = json.dumps(read)
    used = {part for found in EXPRESSION.findall(text) for part in NAMED.findall(found)}
    used |= {part for each in steps for part in NAMED.findall(each.get("if", ""))}
    for room, path in used:
        first = path.split(".")[1]
        known = {"inputs": read["inputs"], "steps": ids}.get(room)
        assert first in known if known is not None else f"{room}.{first}" in KNOWN | {"github.event"}, f"{room}{path}"
    assert {f"inputs.{name}" for name in read["inputs"]} == {"".join(each) for each in used if each[0] == "inputs"}


def ran(script: str, folder: Path, environment: dict[str, str], **stands_in: str) -> int:
    """A step's script as a runner starts it, beside programs of these scripts."""
    for name, text in stands_in.items():
        (folder / name).write_text(f"#!/bin/bash\nprintf '%s\\n' {name} \"$@\" >> asked\n{text}\n")
        (folder / name).chmod(0o755)
    files = {name: str(folder / name.lower()) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    given = {"PATH": f"{folder}:{os.environ['PATH']}", **files, **environment}
    shell = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]
    return subprocess.run(shell, cwd=folder, env=given, check=False).returncode


@pytest.mark.skipif(sys.platform == "win32", reason="stand-ins are shell scripts")
@pytest.mark.parametrize("code", [0, 1, 2])
@pytest.mark.parametrize("kind", ["fleet", "model"])
def test_the_steps_hand_on_what_halfwise_says(kind: str, code: int, tmp_path: Path) -> None:
    given = {"fleet": {"FLEET": "a fleet.toml"}, "model": {"MODEL": "m.onnx", "PLAN": "p.json", "SAMPLES": "s dir"}}
    environment = {"FLEET": "", "MODEL": "", "PLAN": "", "SAMPLES": "", **given[kind]}
    told = "" if code == 2 else "echo '# told' > halfwise.md;"  # bad input leaves no Markdown
    assert not ran(step("check")["run"], tmp_path, environment, halfwise=f"{told} exit {code}")
    asked = (tmp_path / "asked").read_text().splitlines()[1:]
    assert asked[:3] == (["fleet", "run", "a fleet.toml"] if kind == "fleet" else ["gate", "m.onnx", "--plan"])
    command: Any = get_command(app)
    while asked[0] in getattr(command, "commands", {}):
        command = command.get_command(None, asked.pop(0))
    command.make_context("halfwise", asked)  # raises where an option is no option
    assert (tmp_path / "github_output").read_text() == f"code={code}\n"
    assert (tmp_path / "github_step_summary").exists() == (code != 2)
    (tmp_path / "asked").unlink()
    comment = step("gh pr comment")
    assert not ran(comment["run"], tmp_path, {"NUMBER": "7", "GITHUB_REPOSITORY": "a/b"}, gh="")
    assert (tmp_path / "asked").read_text().split()[:6] == ["gh", "pr", "comment", "7", "--repo", "a/b"]
    assert ran(step("exit")["run"], tmp_path, {"CODE": str(code)}) == code


@pytest.mark.skipif(sys.platform == "win32", reason="stand-ins are shell scripts")
def test_a_name_is_no_command_of_the_runner(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    environment = {"FLEET": "fleet.toml", "MODEL": "", "PLAN": "", "SAMPLES": ""}
    for _ in range(2):
        assert not ran(step("check")["run"], tmp_path, environment, halfwise=f"printf '{HOSTILE}'; exit 1")
    told = capfd.readouterr().out.split("\n")
    tokens = [line.removeprefix("::stop-commands::") for line in told[::3]][:2]
    assert told == [each for token in tokens for each in (f"::stop-commands::{token}", HOSTILE, f"::{token}::")] + [""]
    assert len(set(tokens)) == 2


def test_the_container_is_what_docker_reads() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    parts = [line.split(maxsplit=1) for line in lines if line.strip() and not line.startswith("#")]
    assert all(word in INSTRUCTIONS for word, _ in parts)
    bases = [rest.split()[0] for word, rest in parts if word == "FROM"]
    assert all(re.fullmatch(r"python:\d+\.\d+-slim-\w+", base) for base in bases)  # slim, and of one release of Debian
    last = parts[max(i for i, (word, _) in enumerate(parts) if word == "FROM") :]
    words = [word for word, _ in last]
    user = dict(map(tuple, last))["USER"]
    assert user not in ("root", "0") and words.index("USER") < words.index("ENTRYPOINT") and words.count("USER") == 1
    assert json.loads(dict(map(tuple, last))["ENTRYPOINT"]) == ["halfwise"] and "COPY . " not in "\n".join(lines)
    copied = [rest.split()[:-1] for word, rest in parts if word == "COPY" and "--from" not in rest]
    assert all((ROOT / name).exists() for names in copied for name in names)


def test_every_version_in_the_container_is_locked() -> None:
    locked = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    needed = re.findall(
        r'^  "([\w-]+)>=', (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("[project.op")[0], re.M
    )
    assert len(needed) > 5
    assert {name.lower().replace("_", "-") for name in needed} <= locked
    assert "-c constraints.txt" in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_the_checks_are_scripts_that_are_there() -> None:
    read = yaml.safe_load((ROOT / ".github" / "workflows" / "checks.yml").read_text(encoding="utf-8"))
    scripts = [each["script"] for each in read["jobs"]["checks"]["strategy"]["matrix"]["include"]]
    assert {"run", "oldest", "newest", "audit"} == set(scripts) and read["permissions"] == {"contents": "read"}
    for script in scripts:
        path = ROOT / ".ci" / script
        assert os.access(path, os.X_OK)
        subprocess.run(["bash", "-n", str(path)], check=True)
    for job in read["jobs"].values():
        for each in job["steps"]:
            assert ("uses" in each) != ("run" in each)
            assert set(EXPRESSION.findall(each.get("run", ""))) <= {" matrix.script "}
    audit = (ROOT / ".ci" / "audit").read_text(encoding="utf-8")
    assert "pip-audit" in audit and f"--requirement {LOCK.name}" in audit


PYTHON = """#!/bin/sh
mkdir -p "$3/bin"
printf '#!/bin/sh\\n' > "$3/bin/pip"
printf '#!/bin/sh\\n%s\\nexit 1\\n' '{says}' > "$3/bin/pip-audit"
chmod +x "$3/bin/pip" "$3/bin/pip-audit"
"""


@pytest.mark.parametrize(
    ("says", "code", "told"),
    [
        ("echo Traceback; echo; echo nobody there", 2, "the advisory service does not answer: nobody there"),
        ("echo jinja2 3.1.0 GHSA-1; echo more", 1, "jinja2 3.1.0 GHSA-1\nmore\n"),
    ],
)
def test_what_an_audit_finds_and_a_service_that_does_not_answer(
    says: str, code: int, told: str, tmp_path: Path
) -> None:
    """`pip-audit` ends in a traceback where nobody answers."""
    (tmp_path / "python3").write_text(PYTHON.replace("{says}", says))
    (tmp_path / "python3").chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = [str(ROOT / ".ci" / "audit")]
    ran = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **path}, check=False)
    assert (ran.returncode, ran.stdout) == (code, "") and told in ran.stderr
    assert code == 1 or len(ran.stderr.splitlines()) == 1
