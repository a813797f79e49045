"""Softmax and norms."""

from __future__ import annotations

from halfwise.emulation.probes.form import Draw, Form, normal, uniform

__all__ = ["norms", "softmaxes"]


def softmaxes() -> list[Form]:
    forms = [Form(f"softmax over {n}", "Softmax", (normal(max(2, 16384 // n), n, scale=3.0),), {"axis": -1}, n)
             for n in (2, 10, 64, 197, 1000, 1024, 1025, 4096, 16384)]  # fmt: skip
    forms += [
        Form("softmax along a middle axis", "Softmax", (normal(4, 21, 196, scale=3.0),), {"axis": 1}, 21),
        Form("log-softmax over 10", "LogSoftmax", (normal(512, 10, scale=3.0),), {"axis": -1}, 10),
        Form("log-softmax over 1000", "LogSoftmax", (normal(32, 1000, scale=3.0),), {"axis": -1}, 1000),
        Form("log-softmax over 4096", "LogSoftmax", (normal(8, 4096, scale=3.0),), {"axis": -1}, 4096),
    ]
    return forms


def norms() -> list[Form]:
    def scale_bias(n: int) -> tuple[Draw, Draw]:
        return normal(n, mean=1.0, scale=0.3, constant=True), normal(n, scale=0.3, constant=True)

    forms = [Form(f"layer norm over {n}", "LayerNormalization", (normal(32, n, mean=0.5, scale=2.0), *scale_bias(n)),
                  {"axis": -1, "epsilon": 1e-5}, n) for n in (64, 768, 1024, 4096)]  # fmt: skip
    forms += [
        Form("layer norm of large values", "LayerNormalization",
             (normal(32, 256, mean=300.0, scale=900.0), *scale_bias(256)), {"axis": -1}, 256),
        Form("layer norm of two axes", "LayerNormalization",
             (normal(16, 12, 48), normal(12, 48, mean=1.0, scale=0.3, constant=True),
              normal(12, 48, scale=0.3, constant=True)), {"axis": -2}, 576),
        Form("layer norm, no bias", "LayerNormalization",
             (normal(32, 768), normal(768, mean=1.0, scale=0.3, constant=True)), {"axis": -1}, 768),
        Form("RMS norm over 768", "RMSNormalization",
             (normal(32, 768, scale=2.0), normal(768, mean=1.0, scale=0.3, constant=True)), {"axis": -1}, 768, 1, 23),
        Form("RMS norm of large values", "RMSNormalization",
             (normal(32, 768, scale=900.0), normal(768, mean=1.0, scale=0.3, constant=True)), {"axis": -1}, 768, 1,
             23),
        Form("batch norm", "BatchNormalization",
             (normal(1, 64, 16, 16), *scale_bias(64), normal(64, scale=0.5, constant=True),
              uniform(64, low=0.3, high=3.0, constant=True))),
        Form("batch norm of two axes", "BatchNormalization",
             (normal(32, 64), *scale_bias(64), normal(64, scale=0.5, constant=True),
              uniform(64, low=0.3, high=3.0, constant=True))),
        Form("instance norm over 28x28", "InstanceNormalization",
             (normal(1, 32, 28, 28, mean=0.5, scale=2.0), *scale_bias(32)), {}, 784),
        Form("instance norm over 112x112", "InstanceNormalization",
             (normal(1, 4, 112, 112, mean=0.5, scale=2.0), *scale_bias(4)), {}, 12544),
        Form("instance norm, one dimension", "InstanceNormalization",
             (normal(2, 16, 300, mean=0.5, scale=2.0), *scale_bias(16)), {}, 300),
        Form("instance norm of 4 samples over 14x14", "InstanceNormalization",
             (normal(4, 16, 14, 14, mean=0.5, scale=2.0), *scale_bias(16)), {}, 196),
        Form("instance norm of 2 samples over 112x112", "InstanceNormalization",
             (normal(2, 8, 112, 112), *scale_bias(8)), {}, 12544),
        Form("instance norm of 3 samples of large values", "InstanceNormalization",
             (normal(3, 64, 56, scale=300.0), *scale_bias(64)), {}, 56),
        Form("group norm", "GroupNormalization", (normal(1, 64, 16, 16, mean=0.5, scale=2.0), *scale_bias(64)),
             {"num_groups": 8}, 2048, 1, 21),
        Form("L2 norm", "LpNormalization", (normal(64, 256),), {"axis": -1, "p": 2}, 256),
        Form("local response norm", "LRN", (normal(1, 32, 16, 16, scale=3.0),), {"size": 5}, 5),
    ]  # fmt: skip
    return forms
