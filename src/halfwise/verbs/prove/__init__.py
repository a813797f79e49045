"""`prove`: how the kernels of a machine round, learned from probes that run on it."""

from halfwise.verbs.prove.prove import JOURNAL, Proof, prove

__all__ = ["JOURNAL", "Proof", "prove"]
