"""Notes on the search and on what a verdict rests on."""

from __future__ import annotations

from halfwise.core.notes import NoteKind

__all__ = ["VERDICTS"]

VERDICTS = {
    NoteKind.VALIDATION_MOVED: (
        "A validation input was borderline and is now used for the search; the others validate."
    ),
    NoteKind.VALIDATION_REPLACED: (
        "The only validation input was borderline and is now used for the search; perturbed inputs validate "
        "instead. Give more inputs."
    ),
    NoteKind.VARIANT_MOVED: "A perturbed input missed or was borderline, and is now used for the search.",
    NoteKind.UNSEEN_MAY_MISS: (
        "About 5% of similar inputs may miss the tolerance (error up to {bound:number} times the allowed one). "
        "About {wanted} inputs would show it."
    ),
    NoteKind.UNSEEN_TRAJECTORIES: (
        "About 5% of similar trajectories may miss the tolerance (error up to {bound:number} times the allowed one). "
        "About {wanted} trajectories of {steps} steps would show it."
    ),
    NoteKind.UNSEEN_SCATTERS: (
        "About 5% of similar inputs may miss the tolerance (error up to {bound:number} times the allowed one). "
        "More inputs would not change that; `halfwise fix --margin 1` aims at half the tolerance."
    ),
    NoteKind.UNSEEN_CHOICES: (
        "Of {inputs} inputs near those given, {count:many misses/miss} the tolerance (error up to {bound:number} times "
        "the allowed one): {op} {subject!r} chooses between near equals."
    ),
    NoteKind.UNSEEN_STREAMS: (
        "Of {inputs} other streams of {steps} steps, {count:many misses/miss} the tolerance (error up to "
        "{bound:number} times the allowed one): {op} {subject!r} chooses between near equals."
    ),
    NoteKind.UNSEEN_LUCK: (
        "Other inputs may miss the tolerance: the estimate of rounding expects errors up to {bound:number} times the "
        "allowed one. These inputs chose the FP32 nodes. Give more, or take `halfwise fix --margin 1`."
    ),
    NoteKind.UNSEEN_SIZE: (
        "The loudest input made louder, or the quietest quieter, misses the tolerance (error {bound:number} times the "
        "allowed one). Give the loudest and the quietest inputs that you expect."
    ),
    NoteKind.BEST_SO_FAR: (
        "Best so far: --max-runs {asked:g} is spent. Left untried: {untried:commas}. With more runs the same command "
        "goes on."
    ),
    NoteKind.RUNS_RAISED: (
        "--max-runs {asked:g} is less than an answer takes here: the FP32 answers, the smallest search and the verdict "
        "took {runs:.1f} model runs."
    ),
    NoteKind.RUNS_SPENT: (
        "The budget of {runs:many model run} for saving FP32 nodes was spent: this is the best answer so far. With "
        "--max-runs {more} the same command goes on."
    ),
    NoteKind.FORCED_REPAIRED: (
        "{option}: a repair replaced {nodes:list}, and the search decided on the new nodes. --repairs none "
        "leaves the model as it is."
    ),
    NoteKind.FORCED_MISSES: (
        "The tolerance is missed because of {option}: with its {count:many node} in FP32 it would be met."
    ),
    NoteKind.FORCED_NOT_ALONE: (
        "The tolerance is missed with or without {option} ({count:many node} forced into FP16)."
    ),
    NoteKind.LOSSY_NOTHING: "{subject} finds nothing to change in this model.",
    NoteKind.LOSSY_COST: (
        "{subject}, applied to {weights:many weight}, changes the FP32 outputs by {fp32:.3g}. All in FP16, "
        "the error is {fp16:.3g} with it and {plain:.3g} without."
    ),
    NoteKind.LOSSY_COST_BESIDE: (
        "The exact {subject} changes the FP32 outputs by {fp32:.3g}; all in FP16, the error with it is {fp16:.3g}."
    ),
    NoteKind.WORST_OF_PROFILES: (
        "Judged under {profiles:plain}; the worst result counts. Safety margin: {margin:.0%} ({source})."
    ),
    NoteKind.LOOSELY_MODELLED: (
        "Node {subject!r} ({op}) runs in a kernel that no profile models closely. On the GPU its errors may "
        "differ more from the emulated ones than those of other nodes."
    ),
    NoteKind.PROFILE_UNPROVEN: (
        "Profile {subject!r} was inferred from kernel names and never run. `halfwise prove` learns what your GPU does."
    ),
    NoteKind.PROFILE_TWO_ENDED: (
        "Profile {subject!r} has two ends: the machine rounds {ops:plain} differently by size, or in no known way. The "
        "worse end counts."
    ),
    NoteKind.RANDOM_NODE: (
        "Node {subject!r} is random. Every run here draws the same numbers; in use it draws others. "
        "Export a dropout away: model.eval()."
    ),
    NoteKind.SLOWER_THAN_FP32: (
        "The result is predicted to be slower than FP32: {fixed:.3g} ms against {wide:.3g} ms. "
        "`--cost roofline` keeps the fastest set of FP32 nodes instead of the smallest."
    ),
    NoteKind.SLOWER_BY_CASTS: (
        "FP16 is predicted to be slower than FP32, by the casts at inputs and outputs: {fixed:.3g} ms against "
        "{wide:.3g} ms. `--io-types fp16` saves them."
    ),
    NoteKind.NOT_CUT: (
        "No node name tells its module, and no place to cut is found: the model is one stage. State places with --cut."
    ),
    NoteKind.CUT_EVENLY: (
        "No node name tells its module, so the model is cut into {stages:many stage} of about equal size. "
        "State other places with --cut."
    ),
    NoteKind.RUNTIME_OVERWRITES: (
        "ONNX Runtime {version} can clear the input of node {subject!r} ({op}) before it reads it: results may be "
        "wrong. Install 1.32 or later."
    ),
    NoteKind.QUANTISERS_MOVE: (
        "FP32 itself misses the tolerance ({ratio:.2g} times the allowed error) once the inputs of quantisers move by "
        "{moved:.1g}. FP32 nodes help on these inputs alone, if at all: state a wider tolerance (--tol)."
    ),
    NoteKind.QUANTISERS_NEAR: (
        "FP32 itself comes to {ratio:.2g} times the allowed error once the inputs of quantisers move by {moved:.1g}. "
        "More FP32 nodes do not bring other inputs within it: state a wider tolerance (--tol)."
    ),
    NoteKind.QUANTISERS_STEP: (
        "Quantisers in {names:list} make whole steps of TF32's rounding, too. FP32 nodes that only avoid such steps "
        "are not listed there."
    ),
    NoteKind.QUANTISERS_ALLOW: (
        "The tolerance is {factor:.2g} times the default: quantisers make whole steps of TF32's rounding, too. State "
        "another with --tol."
    ),
    NoteKind.INPUT_FINDING: "Input {subject!r}: {message}. To fix: {remedy}.",
    NoteKind.INPUT_NEAR_LIMIT: (
        "Input {subject!r} reaches {top:number}: one {factor:.2g} times as loud overflows in {format}. "
        "Give the loudest inputs that are to be expected."
    ),
    NoteKind.CLAMPED_WEIGHTS: (
        "{count:many weight} with finite values beyond 65,504 clamped to it, as TensorRT does: {names:list}."
    ),
    NoteKind.SEARCHED_TWICE: (
        "The first decision misses the tolerance under {profiles:plain}. This one comes from a second search under "
        "them."
    ),
    NoteKind.SEARCHED_TWICE_IN_VAIN: (
        "The decision misses the tolerance under {profiles:plain}, and a second search found none that meets it."
    ),
    NoteKind.OVERFLOW_HEALED: (
        "The first decision kept the tolerance although values overflow, or may with other inputs, at "
        "{nodes:list}. This one keeps them finite."
    ),
    NoteKind.OVERFLOW_LEFT: (
        "Left inside: values that are finite in FP32 overflow, or may with other inputs, at {nodes:list}. That the "
        "outputs hold is known of these samples only."
    ),
    NoteKind.GUARD_VANISHES: (
        "The epsilon {epsilon:number} guards {count:many {guards}} and is 0 in FP16 at {nodes:list}: an input that "
        "needs the guard gives infinity or NaN."
    ),
    NoteKind.LOOP_MAY_NOT_END: (
        "Numbers that FP16 rounds decide when loop {subject!r} ends, at {nodes:list}. With other inputs it may take "
        "more passes, or never end: --keep states FP32."
    ),
    NoteKind.EMULATOR_AGREES: (
        "The emulator finds the model within the tolerance. The backend computes something that the profile "
        "{profile!r} does not model."
    ),
    NoteKind.NOT_RANKED: "The nodes cannot be ranked and are tried in the model's order: {error}.",
    NoteKind.TRIAL_NOT_RUN: "Some trials cannot be run and count as an infinite error. The first: {error}.",
    NoteKind.NOT_STEPPED: (
        "The model cannot be run node by node, so more nodes than needed may stay in FP32. The reason: {error}."
    ),
    NoteKind.RULE_FAILED: "The repair {subject} failed and was left out ({error}). Please report it.",
    NoteKind.REPAIR_NOT_RUN: "The repair {subject} was not taken: with it, {error}.",
    NoteKind.REPAIR_UNFAITHFUL: (
        "The repair {subject} was not taken: it changes the FP32 outputs by {departure:.3g}, more than it may."
    ),
    NoteKind.WEIGHTS_TOO_LARGE: "its weights take more than {megabytes:,} MB",
    NoteKind.NO_CPU_KERNEL: "its CPU provider has no kernel of {subject} in this form",
    NoteKind.DELIVERED_NOT_RUN: "The written model was not run with ONNX Runtime: {why}.",
    NoteKind.DELIVERED_FAILS: "ONNX Runtime's CPU provider cannot run the written model: {why}.",
    NoteKind.DELIVERED_FAILS_IN_FP32: "ONNX Runtime's CPU provider cannot run the FP32 model either: {why}.",
    NoteKind.DELIVERED_MISSES: "ONNX Runtime's CPU provider misses the tolerance with the written model: {error}.",
    NoteKind.DELIVERED_MISSES_IN_FP32: (
        "ONNX Runtime's CPU provider misses the tolerance with the FP32 model, too: {error}. {why}."
    ),
    NoteKind.KERNELS_DECIDE: "Its kernels decide, not FP16",
    NoteKind.UNWRITTEN_ROWS: "It leaves rows of a sliding cache as memory holds them",
    NoteKind.INT8_PRODUCTS: "There MatMulNBits with accuracy_level 4 multiplies in INT8",
    NoteKind.INT8_FUSED: "There a product with a weight behind DequantizeLinear runs in INT8",
}
