"""What mypy makes of a program that calls the package: its lazy names are no `Any`. It is checked, and never run."""

from typing import assert_type

import halfwise

assert_type(halfwise.fix("m.onnx", tolerance=["rel_l2<=0.01"]).met, bool)
assert_type(halfwise.load("m.onnx"), halfwise.Model)
halfwise.trace(3)  # type: ignore[arg-type]
