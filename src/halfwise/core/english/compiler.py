"""Notes on what the compiler made of a decision."""

from __future__ import annotations

from halfwise.core.notes import NoteKind

__all__ = ["COMPILER"]

COMPILER = {
    NoteKind.NOT_COMPILED: (
        "Nothing was compiled: TensorRT-RTX, which shows the precision that really runs, is not installed. {install}"
    ),
    NoteKind.NOT_PROVEN: "The typed model was not proven on a compiler: {error}",
    NoteKind.NOT_CORRECTED: "What the compiler changed was not corrected: {error}",
    NoteKind.ATTENTION_IN_STEPS: (
        "The compiler does not build {nodes:list}: written in single operators. Without: {error}"
    ),
    NoteKind.BUILT_WITH_MORE: "With {nodes:list} in FP32, too, the model builds. Without: {error}",
    NoteKind.OPERATORS_REFUSED: (
        "No choice of precisions helps: replace {nodes:list} in the export, end the model before it, or add a plugin."
    ),
    NoteKind.PARSER_REFUSES: (
        "{subject} does not read {nodes:list} either, except with a plugin: replace such nodes in the export, or end "
        "the model before them."
    ),
    NoteKind.REFUSED_WHOLE: "No choice of precisions helps: the compiler refuses the model all in FP32, too.",
    NoteKind.PRODUCT_ALONE: (
        "The compiler reverts {subject!r}, which stands alone in FP32, to FP16, and no neighbour can join it."
    ),
    NoteKind.PRODUCT_FORCED: (
        "The compiler reverts {subject!r}, which stands alone in FP32, to FP16. {nodes:list} would have to "
        "join it, but you forced this into FP16."
    ),
    NoteKind.JOINING_MISSES: (
        "{nodes:list} in FP32 would keep isolated FP32 products, but the tolerance would be missed."
    ),
    NoteKind.JOINING_IN_VAIN: (
        "{nodes:list} in FP32, too, did not keep isolated FP32 products: the compiler reverted these all the same."
    ),
    NoteKind.PRODUCTS_JOINED: (
        "{compiler} reverted {products:list}, alone between casts, to FP16. With {nodes:list} in FP32, "
        "{after} of {before} violations remain (compiled before and after)."
    ),
    NoteKind.ATTENTION_UNKNOWN: "{kernels:plain} computes attention of an unknown form, which was left as it is.",
    NoteKind.REGION_NOT_FOUND: (
        "No FP32 region was found that keeps {subject} out of the model's {attentions:many attention}."
    ),
    NoteKind.REGION_FOUND: (
        "With {region} in FP32, {subject} stays out of {freed} of {attentions:many attention} (compiled both ways "
        "with {compiler}). Kernels {kernels:change}, bytes moved {bytes:change}, casts {casts:change}."
    ),
    NoteKind.REGION_TRIED: "Not enough in FP32 to keep {subject} out: {regions:plain}.",
    NoteKind.REGION_FORCED: "The FP32 region was not used: you forced {nodes:list} into FP16.",
    NoteKind.REGION_MISSES: "The FP32 region was not used: the tolerance would be missed.",
    NoteKind.FUSION: (
        "Fusion: {before:many kernel} with {casts_before:many cast} in plain FP16 before the repairs, "
        "{after:many kernel} with {casts_after:many cast} after."
    ),
    NoteKind.FUSION_UNKNOWN: (
        "Fusion before the repairs is not known: the model without them was not compiled: {error}"
    ),
    NoteKind.NORMS_FUSED: (
        "Fusion: {fused} of {norms} {subject} in one kernel each, {wide} of them with FP32 statistics."
    ),
    NoteKind.ATTENTION_STAYS_FUSED: "Fusion: attention stays fused ({kernels:plain}).",
    NoteKind.ATTENTION_UNFUSED: "Fusion: the fused attention kernel {kernels:plain} is gone.",
    NoteKind.NO_ENGINE: (
        "The TensorRT profile was inferred from the kernel names of other models: nothing was compiled for this one."
    ),
    NoteKind.NO_KERNEL_TIED: (
        "The TensorRT profile was inferred from the kernel names of other models: this engine's list ties no "
        "kernel to a node."
    ),
    NoteKind.ENGINE_JUDGES: (
        "The profile {profile!r} follows the kernels of {compiler}, which hold {held} of {computing} "
        "computing nodes (inferred from kernel names; other nodes as in 'strict')."
    ),
    NoteKind.ENGINE_REVERTS: (
        "The profile {profile!r} runs {nodes:list} in FP16, as the engine does, not in FP32 as planned."
    ),
    NoteKind.SUMS_IN_FP16: (
        "{count:many kernel of this engine accumulates/kernels of this engine accumulate} in FP16, judged by tactic "
        "names: {kernels:names}."
    ),
    NoteKind.SUMS_IN_FP32: (
        "This engine has {matrix:many matrix kernel}; none is seen to accumulate in FP16. "
        "{named:many tactic name states/tactic names state} the accumulator."
    ),
    NoteKind.SUMS_UNKNOWN: "The engine's layer list does not state in which precision its matrix kernels accumulate.",
    NoteKind.NORMS_WHOLE: (
        "{norms:many norm} kept in one ONNX Runtime kernel each, with {nodes:many more node/more nodes} in FP32."
    ),
    NoteKind.NORMS_LOADABLE: (
        "{norms:many norm} given other formats, because ONNX Runtime refuses to load the model otherwise."
    ),
    NoteKind.ORT_REFUSES_NORM: (
        "ONNX Runtime will refuse to load the typed model: the norm that ends in {subject!r} reads one format"
        " and is scaled in another. Give scale and bias the format of the input, or disable graph "
        "optimisations."
    ),
    NoteKind.ORT_MAY_CRASH: (
        "ONNX Runtime may crash on the typed model. Give {subject!r} the format of {product!r}, which reads "
        "it, or disable graph optimisations."
    ),
    NoteKind.ORT_CPU_REFUSES: (
        "Node {subject!r}: ONNX Runtime's CPU provider loads {op} with this reduction in FP16 and refuses to run it."
    ),
    NoteKind.ORT_CPU_MAY_CRASH: (
        "ONNX Runtime's CPU provider may crash on the typed model at {subject!r} and {product!r}, which it "
        "computes in FP32. On a CPU, load it with disabled_optimizers=['MatmulTransposeFusion']."
    ),
}
