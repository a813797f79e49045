"""The table of finding rules: the id, what it is called, how severe it is unless a finding says otherwise, the remedy.

HW1xx: weights and constants; HW2xx: patterns; HW3xx: types and operators; HW5xx: a real backend against the
prediction; HW8xx: audits; HW9xx: the gate. Those on the files of a build (HW6xx) are in `doctor_rules`. Repairs (HW4xx)
have their ids in `halfwise.repair`, and the rules of build logs (HW7xx) in `halfwise.compiler.buildlog.catalogue`,
beside the messages that they are made from.
"""

from __future__ import annotations

from collections.abc import Mapping

from halfwise.core.doctor_rules import DOCTOR_RULES
from halfwise.core.scan_rule import ScanRule

__all__ = ["RULES", "ScanRule"]


_KEEP = "or keep these nodes in FP32"

_RULES = (
    ScanRule(
        "HW101",
        "weights that TensorRT will warn about",
        "info",
        "nothing to do for tiny values beside large ones; the findings HW102 to HW106 name the weights that matter",
    ),
    ScanRule(
        "HW102",
        "a whole weight is too small for FP16",
        "error",
        "multiply the weight and divide the activation by the same power of two, "
        "or keep the node that reads the weight in FP32",
    ),
    ScanRule(
        "HW103",
        "output channels are too small for FP16",
        "warning",
        "multiply these channels by a power of two and divide behind them, "
        "or keep the node that reads the weight in FP32",
    ),
    ScanRule(
        "HW104",
        "weights over 65504",
        "error",
        "divide the weight and multiply the activation by the same power of two, "
        "or keep the node that reads the weight in FP32",
    ),
    ScanRule(
        "HW105",
        "weights that are NaN or infinite",
        "error",
        "export the model from a healthy checkpoint: these values are wrong in FP32, too",
    ),
    ScanRule(
        "HW106",
        "a divisor that FP16 rounds to zero",
        "error",
        "divide in FP32, or multiply by the reciprocal in two steps that FP16 can hold",
    ),
    ScanRule(
        "HW107",
        "dead weights",
        "info",
        "nothing to do: training left these weights without effect, and FP16 makes them zero",
    ),
    ScanRule(
        "HW108",
        "weights at the limit of FP16",
        "info",
        "compare with the FP32 model: `halfwise fix` with --reference takes its values where these are their rounding",
    ),
    ScanRule(
        "HW111",
        "an added mask that FP16 cannot hold",
        "warning",
        "use a mask of about -1e4, which stays finite when scores are added, or select with Where",
    ),
    ScanRule(
        "HW112",
        "masks that leave FP16 together",
        "warning",
        "combine the masks with And before they become numbers, or use about -1e4 in each mask",
    ),
    ScanRule(
        "HW113",
        "a selected stand-in for infinity",
        "info",
        "nothing to do: infinity itself would have the same effect",
    ),
    ScanRule(
        "HW114",
        "an epsilon that vanishes",
        "warning",
        f"raise the epsilon to 1e-7 or more if the model allows it, rescale the guarded values, {_KEEP}",
    ),
    ScanRule(
        "HW115",
        "infinite constants",
        "info",
        "nothing to do: FP16 has infinities, too; "
        "a product with 0 or a difference of two infinities is NaN in any format",
    ),
    ScanRule(
        "HW201",
        "a norm whose squares leave FP16",
        "warning",
        "export the norm as one operator, whose statistics TensorRT computes in FP32: "
        "LayerNormalization from opset 17, RMSNormalization from 23, InstanceNormalization or GroupNormalization. "
        "Or keep the squares and their mean in FP32",
    ),
    ScanRule(
        "HW202",
        "a variance as a difference of moments",
        "warning",
        "take the mean of (x - mean(x))^2 instead, or keep both moments and their difference in FP32",
    ),
    ScanRule(
        "HW203",
        "a length whose squares leave FP16",
        "warning",
        "use ReduceL2, which TensorRT computes in FP32, or divide by the largest component first, "
        "or keep the squares and their sum in FP32",
    ),
    ScanRule(
        "HW204",
        "exponentials without the maximum subtracted",
        "warning",
        f"use Softmax, LogSoftmax or ReduceLogSumExp, or subtract the maximum first, {_KEEP}",
    ),
    ScanRule(
        "HW205",
        "an inverse sigmoid that loses its guard",
        "warning",
        "keep the chain in FP32, clip to 0.9995, which FP16 distinguishes from 1, "
        "or pass the logit on instead of computing it from the sigmoid",
    ),
    ScanRule(
        "HW206",
        "a sum over many elements",
        "warning",
        f"take the mean instead, or scale before the sum and back after it, {_KEEP}",
    ),
    ScanRule(
        "HW207",
        "a running sum",
        "warning",
        f"sum over shorter ranges, or subtract the mean first, {_KEEP}",
    ),
    ScanRule(
        "HW208",
        "arithmetic on large coordinates",
        "warning",
        f"subtract a common origin first, or calculate in units of the image, {_KEEP}",
    ),
    ScanRule(
        "HW209",
        "sine and cosine of large phases",
        "info",
        "keep the positions, their products with the frequencies, and both waves in FP32, "
        "or fold them into a table if the positions are fixed",
    ),
    ScanRule(
        "HW210",
        "a selection by comparison",
        "info",
        "judge the model by the selected items, not by their positions in the list; "
        "keep the scores in FP32 if the order matters",
    ),
    ScanRule(
        "HW211",
        "ids in floating point",
        "warning",
        "feed ids as integers, or keep the nodes that pass the ids on in FP32",
    ),
    ScanRule(
        "HW301",
        "typed in 16 bits already",
        "info",
        "start from the FP32 model if there is one, or give it to `halfwise fix` with --reference; "
        "without it, the stored numbers are the reference, and what their rounding cost is not known",
    ),
    ScanRule("HW302", "double precision", "info", "nothing to do: halfwise leaves these tensors as they are"),
    ScanRule(
        "HW303",
        "operators that are not ONNX's",
        "info",
        "nothing to do where ONNX Runtime runs them: they stay in FP32. For TensorRT `halfwise fix` writes scalers and "
        "linear models in ONNX's operators, and names what it cannot write",
    ),
    ScanRule(
        "HW304",
        "quantised already",
        "info",
        "nothing to do: scales may be FP16 since opset 19; compare against the model before quantisation, too",
    ),
    ScanRule(
        "HW305",
        "an opset without the norm's operator",
        "info",
        "export with opset 17 or newer, so that the norm stays one operator",
    ),
    ScanRule(
        "HW501",
        "a real backend is less exact than predicted",
        "warning",
        "run `halfwise bisect` on that backend with this plan to find the nodes that must be FP32 there",
    ),
    ScanRule(
        "HW502",
        "a real backend is more exact than predicted",
        "info",
        "nothing to do for the result; a profile that follows this backend more closely may need fewer FP32 nodes",
    ),
    ScanRule(
        "HW503",
        "a real backend gives values that are not finite",
        "error",
        "run `halfwise bisect` on that backend with this plan to find the nodes that must be FP32 there",
    ),
    ScanRule(
        "HW504",
        "a real backend cannot run the fixed model",
        "error",
        "check whether the backend runs the FP32 model; "
        "`halfwise bisect` on that backend names the nodes that make it fail",
    ),
    ScanRule(
        "HW801",
        "a node did not run in the planned precision",
        "error",
        "run `halfwise fix MODEL --target ...` for the compiler that built the engine, build its typed model, and "
        "audit the new engine",
    ),
    ScanRule(
        "HW802",
        "a node cannot be shown to have run in the planned precision",
        "warning",
        "build with --profilingVerbosity=detailed and keep the verbose log, so that the audit can tell",
    ),
    ScanRule(
        "HW901",
        "the plan was made for another graph",
        "error",
        "run `halfwise fix` on this model and commit the new plan",
    ),
    ScanRule(
        "HW902",
        "the plan cannot be applied to this model",
        "error",
        "run `halfwise fix` on this model and commit the new plan",
    ),
    ScanRule(
        "HW903",
        "the plan no longer keeps the tolerance",
        "error",
        "run `halfwise fix` on this model and commit the new plan",
    ),
    ScanRule(
        "HW905",
        "a job of the fleet is not good",
        "error",
        "run the job's command by itself, or read its log in the folder of results",
    ),
)

_BORDER = (
    ScanRule(
        "HW311",
        "ids as an FP16 input",
        "error",
        "declare the input as int32 or int64 in the model, or leave the inputs in FP32",
    ),
    ScanRule(
        "HW312",
        "an input beyond FP16",
        "error",
        "scale the values or subtract an origin before the cast, or leave the inputs in FP32",
    ),
    ScanRule(
        "HW313",
        "an input that FP16 holds coarsely",
        "warning",
        "subtract the origin (the first timestamp, the corner of the image) and scale before the cast, "
        "or leave the inputs in FP32",
    ),
    ScanRule("HW314", "raw pixels as an FP16 input", "info", "normalise before the cast: (x / 255 - mean) / std"),
)

RULES: Mapping[str, ScanRule] = {rule.id: rule for rule in (*_RULES, *_BORDER, *DOCTOR_RULES)}
