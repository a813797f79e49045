"""Networks for pictures from timm, the smallest of each of its modules."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.thousand.export import EXPORTERS, export
from benchmarks.thousand.graph import Graph, Made

__all__ = ["graphs"]

# Name and side of the picture.
NETWORKS = (
    ("test_byobnet", 96), ("test_coatnet", 160), ("test_convnext", 96), ("test_convnext2", 96), ("test_convnext3", 96),
    ("test_efficientnet", 96), ("test_efficientnet_evos", 96), ("test_efficientnet_gn", 96),
    ("test_efficientnet_ln", 96),
    ("test_mambaout", 96), ("test_maxvit", 160), ("test_nfnet", 96), ("test_resnet", 96), ("test_vit", 160),
    ("test_vit2", 160), ("test_vit3", 160), ("test_vit4", 160), ("test_vit_relpos", 160), ("starnet_s050", 96),
    ("mobilevit_xxs", 128), ("mobilevitv2_050", 128), ("dla46_c", 96), ("edgenext_xx_small", 96),
    ("mobilenetv3_small_050", 96), ("lcnet_035", 96), ("mobilenetv2_035", 96), ("mobilenetv4_conv_small_035", 96),
    ("ese_vovnet19b_slim_dw", 96), ("tinynet_e", 96), ("repghostnet_050", 96), ("efficientvit_m0", 224),
    ("ghostnet_050", 96), ("regnetx_002", 96), ("regnety_002", 96), ("cspnext_tiny", 96), ("iformer_t", 96),
    ("xcit_nano_12_p16_224", 224), ("cs3darknet_focus_s", 96), ("efficientvit_b0", 96), ("swiftformer_xs", 224),
    ("efficientformerv2_s0", 224), ("pvt_v2_b0", 96), ("fasternet_t0", 96), ("fastvit_t8", 128), ("lcnetv2_small", 96),
    ("inception_next_atto", 96), ("rexnet_100", 96), ("mobileone_s0", 96), ("pit_ti_224", 224), ("hardcorenas_a", 96),
    ("repvit_m0_9", 96), ("coat_tiny", 224), ("convit_tiny", 224), ("deit_tiny_patch16_224", 224), ("hgnetv2_b0", 96),
    ("shvit_s1", 96), ("efficientvim_m1", 128), ("densenet121", 64), ("levit_128s", 224), ("resnet18", 64),
    ("resnest14d", 64), ("mixnet_s", 96), ("semnasnet_050", 96), ("spnasnet_100", 96), ("fbnetc_100", 96),
    ("botnet26t_256", 256), ("selecsls42", 64), ("gernet_s", 96), ("dpn48b", 64), ("poolformer_s12", 96),
)  # fmt: skip


def graphs() -> Iterator[Graph]:
    for index, (name, side) in enumerate(NETWORKS):
        for exporter in (index % 2, 2 + index // 2 % 2):
            full = f"timm-{name}-{EXPORTERS[exporter][0]}"
            yield Graph(full, "timm", partial(_make, full, name, side, exporter), ("torch", "timm"))


def _make(full: str, name: str, side: int, exporter: int) -> Made:
    import torch

    def sample() -> list[tuple[str, Any]]:
        return [("x", torch.randn(1, 3, side, side))]

    def build() -> Any:
        import timm

        return timm.create_model(name, num_classes=100)

    return export(build, sample, exporter, Graph(full, "", lambda: Made(None, ())).seed)  # type: ignore[arg-type]
