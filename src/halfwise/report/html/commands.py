"""What to do next: exact commands, safe to copy into a shell whatever a path holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from halfwise.core.targets import DEFAULT_TARGET
from halfwise.report.answer import Step, engine_loop, verify_words, way_out
from halfwise.report.shell import input_words, measuring_words, shell
from halfwise.report.text import safe
from halfwise.verbs.fix.result import FixResult

__all__ = ["next_steps"]


def next_steps(result: FixResult, command: str) -> tuple[Step, ...]:
    model = str(result.model.path) if result.model.path else ""
    inputs = input_words(command)
    rolled = [*inputs, *result.rollout_words] if inputs else []
    if result.typed is None or result.plan_path is None:
        return (
            (Step("Write the files", _NOT_WRITTEN, shell(["halfwise", "fix", model, *inputs, "--out", "fixed"])),)
            if model
            else ()
        )
    if not result.good:  # nothing to build, to commit or to ship
        step = way_out(result, command).step
        return (step,) if step is not None else ()
    return (
        *(_checked(result, model, rolled, command) if model else ()),
        *_build(result, command),
        *(_for_tensorrt(result, model, rolled, command) if model else ()),
        *_committed(result, model, inputs, command),
    )


def _checked(result: FixResult, model: str, rolled: Sequence[str], command: str) -> Iterator[Step]:
    if result.typed is not None:
        words = verify_words(result, result.typed.path, command)
        yield Step(
            "Check the model on your own inputs",
            "Runs both models and compares every output.",
            shell([*words, *(rolled or ["--inputs", "YOUR-INPUTS"])]),
        )


def _for_tensorrt(result: FixResult, model: str, rolled: Sequence[str], command: str) -> Iterator[Step]:
    if result.plan.target == str(DEFAULT_TARGET):
        applied = ["halfwise", "fix", model, "--plan", str(result.plan_path), *rolled, *measuring_words(command)]
        yield Step(
            "Building for TensorRT? Name the version",
            "Applies this plan without a search, and adds the build command and script for that version.",
            shell([*applied, "--target", "trt-10.9", "--out", "for-trt"]),
        )


def _committed(result: FixResult, model: str, inputs: Sequence[str], command: str) -> Iterator[Step]:
    plan = str(result.plan_path)
    yield Step(
        "Keep the plan with your code",
        "A small file that people can read, edit and apply again.",
        shell(["git", "add", plan]),
    )
    if model:
        yield Step(
            "In CI, check that the plan still holds",
            "For the model after retraining or another export.",
            shell(["halfwise", "gate", model, "--plan", plan, *inputs, *measuring_words(command)]),
        )


_NOT_WRITTEN = "This run wrote nothing; with --out the typed model and its plan are written."


def _build(result: FixResult, command: str) -> list[Step]:
    deploy_files = result.deploy_files
    steps = []
    if deploy_files.command is not None:
        steps.append(
            Step(
                "Build the engine",
                "The trtexec command with all its options.",
                shell(["sh", str(deploy_files.command)]),
            )
        )
    if deploy_files.script is not None:
        steps.append(
            Step(
                "Or build the engine from Python",
                "The same build as a script.",
                shell(["python", str(deploy_files.script)]),
            )
        )
    if deploy_files.audit_command:
        steps.append(
            Step(
                "Then audit the engine",
                "The precision of every node in the engine.",
                _in_folder(result.plan_path, deploy_files.audit_command),
            )
        )
    if (loop := engine_loop(result, command)) is not None:
        ran, judged = loop
        steps.append(Step("Run the engine on your samples", "Writes what it answers to .npz files.", shell(ran)))
        steps.append(Step("Is the engine right?", "Judges its answers by the FP32 model.", shell(judged)))
    return steps


def _in_folder(file: Path | None, command: str) -> str:
    """A command whose files are told by their names alone, made to work from anywhere."""
    return safe(command) if file is None else f"{shell(['cd', str(file.parent)])} && {safe(command)}"
