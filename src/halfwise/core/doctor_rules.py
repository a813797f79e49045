"""The rules HW6xx: what the files of a build tell together."""

from __future__ import annotations

from halfwise.core.scan_rule import ScanRule

__all__ = ["DOCTOR_RULES"]

DOCTOR_RULES = (
    ScanRule(
        "HW601",
        "names in precision flags that no layer bears",
        "error",
        "write the exact names: `halfwise fix MODEL --target ...` writes the command with the names of this model",
    ),
    ScanRule(
        "HW602",
        "wildcards that this version does not read",
        "error",
        "write out every name, or build with TensorRT 9.1 or later; `halfwise fix MODEL --target ...` writes them",
    ),
    ScanRule(
        "HW603",
        "an option that this version refuses or reads otherwise",
        "error",
        "correct the option; `halfwise fix MODEL --target ...` writes the whole command for a version",
    ),
    ScanRule("HW604", "precisions without a constraint", "error", "add --precisionConstraints=obey"),
    ScanRule(
        "HW605",
        "nodes that were asked for in FP32 and did not run so",
        "error",
        "replace a norm in steps by its operator, or build a typed model with strong typing: "
        "`halfwise fix MODEL --target ...` does both",
    ),
    ScanRule(
        "HW606",
        "a known defect of this version",
        "warning",
        "upgrade, or keep the kernel out: `halfwise fix MODEL --target ...` plans it",
    ),
    ScanRule(
        "HW607",
        "the weights that a build warned about",
        "warning",
        "keep the nodes of these weights in FP32; the other warnings need nothing",
    ),
    ScanRule(
        "HW611",
        "an output that is not finite in plain FP16",
        "error",
        "scale the values in front of these nodes, or keep the nodes in FP32: `halfwise fix` finds the fewest",
    ),
    ScanRule(
        "HW612",
        "an output that plain FP16 does not keep",
        "error",
        "keep these nodes in FP32, or repair them: `halfwise fix` finds the fewest",
    ),
    ScanRule(
        "HW613",
        "an output whose unit FP16 cannot hold",
        "error",
        "state the tolerance in the unit of the output, such as --tol 'boxes:max_abs<=0.5'. Or export coordinates "
        "from 0 to 1 and scale them outside the model",
    ),
    ScanRule(
        "HW614",
        "a model that plain FP16 keeps",
        "info",
        "look at the build: its flags, its version and its engine's layers",
    ),
    ScanRule(
        "HW615",
        "saved outputs that miss the FP32 answer",
        "error",
        "add the build log and the engine's layers: `halfwise doctor` compares them with the model",
    ),
    ScanRule(
        "HW616",
        "saved outputs that keep the FP32 answer",
        "info",
        "look at what is done before and after the engine",
    ),
    ScanRule(
        "HW617",
        "tensors inside the engine that are not finite",
        "error",
        "scale the values in front of this tensor, or keep its node in FP32: `halfwise fix` finds the fewest nodes",
    ),
    ScanRule(
        "HW618",
        "tensors inside the engine that FP16 does not explain",
        "error",
        "look at the kernel that writes this tensor: `halfwise audit` and `halfwise advise` name it and known defects",
    ),
    ScanRule(
        "HW619",
        "tensors inside the engine that are as FP16 predicts",
        "info",
        "the engine computes what plain FP16 gives: `halfwise fix` finds the nodes that need FP32",
    ),
    ScanRule(
        "HW620",
        "steps of quantisers that miss the tolerance",
        "warning",
        "compare with the model before quantisation, too; `halfwise fix` tells a tolerance that FP32 keeps",
    ),
    ScanRule(
        "HW621",
        "a fixed model that keeps its tolerance",
        "info",
        "build it; where its engine is wrong, look at the engine's layers: `halfwise audit`",
    ),
    ScanRule(
        "HW622",
        "a fixed model that misses its tolerance",
        "error",
        "run `halfwise fix` with these inputs beside those that it was made with",
    ),
)
