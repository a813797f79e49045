"""Policies: what a user, or another tool's list, says must stay in FP32 or must not."""

from __future__ import annotations

from halfwise.policy.choices import Choices
from halfwise.policy.lists import POLICIES, Policy, policy_named

__all__ = ["POLICIES", "Choices", "Policy", "policy_named"]
