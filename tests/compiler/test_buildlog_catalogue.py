"""Every message of the catalogue is found in a build log."""

from __future__ import annotations

import pytest

from halfwise.compiler.buildlog import (
    read_lines,
)
from halfwise.compiler.buildlog.catalogue import MESSAGES
from tests.support.build_logs import V, one

# The rest of the catalogue: id, line, where, words in the message

CASES = [
    ("NONCONF", "For layer {ForeignNode[a...b]} a non-conforming implementation was chosen than was requested i.e. x",
     "{ForeignNode[a...b]}", "ignored"),
    ("NOIMPL", "No implementation of layer Conv_1[Conv] + Add_2[E] obeys the requested constraints in strict mode. x",
     "Conv_1[Conv] + Add_2[E]", "the fastest one runs"),
    ("NOIMPL_OLD", "Warning: no implementation of c obeys the requested constraints, using a higher precision type",
     "c", "higher one"),
    ("REFORMAT_FREE", "No implementation obeys reformatting-free rules, at least 3 reformatting nodes are needed",
     "", "3 reformatting"),
    ("NOIMPL_ERR", "10: Could not find any implementation for node {ForeignNode[a...b]}.", "{ForeignNode[a...b]}",
     "no implementation"),
    ("SKIP_TACTIC", "Skipping tactic 0x0000000000000001 due to exception out of memory", "0x0000000000000001",
     "out of memory"),
    ("TYPE_DIFF_INFER", "Input 0's element type (half) differs from input 1's element type (float).", "",
     "half and float"),
    ("SHAPE_INT32", "A shape layer can only run in INT32 precision", "", "INT32"),
    ("EW_WARN", "IElementWiseLayer with inputs a and b: first input has type Half but second input has type Float.",
     "b", "Half (a) and Float"),
    ("SKIPPED_ALL", "Skipped setting precisions for some layers. Check verbose logs for more details.", "", "wildcard"),
    ("SKIPPED_LAYER", "Skipped setting precision for layer s because this layer operates on a shape tensor.", "s",
     "shape tensor"),
    ("NO_EFFECT",
     '--layerPrecision/--layerOutputTypes flags have no effect when --precisionConstraints flag is set to "none".',
     "", "no effect"),
    ("WEAK_DEPRECATED", "Weakly-typed networks have been deprecated in TensorRT.", "", "deprecated"),
    ("STRONG_FLAG", "Invalid usage, setting fp16 mode is not allowed if graph is strongly typed. Disabling it.",
     "", "--fp16 was ignored"),
    ("TF32_HINT", "TF32 is enabled by default. Add --noTF32 flag to further improve accuracy.", "", "TF32"),
    ("UNKNOWN_OPTION", "Unknown option: --fp16", "--fp16", "does not know --fp16"),
    ("EW_TYPES", "x: Error Code 4: API Usage Error (/b (1)/Sub: ElementWiseOperation SUB must have same input types. "
     "But they are of types Half and Float.)", "/b (1)/Sub", "SUB reads Half and Float"),
    ("FLAG_AND_STRONG", "Parameter check failed, condition: !config.getFlag(BuilderFlag::kFP16)", "", "FP16"),
    ("SET_TYPE_STRONG", "INetworkLayer::setOutputType cannot be called for a strongly typed network", "",
     "INetworkLayer::setOutputType"),
    ("IO_TYPE", 'Input tensor "x": Requested input type FP16 via --inputIOFormats does not match the inferred type '
     "FP32 for a strongly typed network. Failing build.", "x", "FP16"),
    ("RTX_STRONG", "In JIT build, strongly typed is enabled by default.", "", "ONNX model"),
]  # fmt: skip


@pytest.mark.parametrize(("identity", "line", "where", "words"), CASES, ids=[case[0] for case in CASES])
@pytest.mark.parametrize("prefix", [V, "[03/28/2024-08:27:29] [TRT] [W] ", "[2022-11-08 06:01:47 ERROR] ", ""])
def test_catalogue(identity: str, line: str, where: str, words: str, prefix: str) -> None:
    (message,) = [message for message in MESSAGES if message.id == identity]
    finding = one(read_lines([prefix + line]), message.rule.id)
    assert finding.where.name == where
    assert words in finding.message
    assert finding.remedy


def test_every_message_of_the_catalogue_is_tested() -> None:
    assert {case[0] for case in CASES} == {message.id for message in MESSAGES}
    assert len({message.rule.id for message in MESSAGES}) == len(MESSAGES)


def test_a_message_that_repeats_is_one_finding() -> None:
    finding = one(read_lines(["[E] Unknown option: --fp16"] * 3), "HW737")
    assert finding.numbers == {"times": 3}


def test_ignored_constraints_weigh_more_where_constraints_were_set() -> None:
    line = V + "For layer a a non-conforming implementation was chosen than was requested i.e. x"
    assert one(read_lines([line]), "HW721").severity == "info"
    assert (
        one(read_lines(["[I] Precision: FP32+FP16 (prefer precision constraints)", line]), "HW721").severity
        == "warning"
    )
