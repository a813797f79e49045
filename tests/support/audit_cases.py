"""Build logs to audit, and what an audit said of a node."""

from __future__ import annotations

from halfwise.compiler.audit import Audit, NodeAudit, audit
from halfwise.compiler.buildlog import LogReport
from halfwise.compiler.layers import layers_from_log
from halfwise.core.formats import Format
from tests.support.paths import DATA

REGION_LOG = DATA / "logs" / "layernorm_8.6_region.log"


def fp32(*names: str) -> dict[str, Format]:
    return dict.fromkeys(names, Format.FP32)


def of_log(log: LogReport, *wanted: str) -> Audit:
    return audit(layers_from_log(log), log, None, fp32(*wanted))


def nodes(result: Audit) -> dict[str, NodeAudit]:
    return {node.node: node for node in result.nodes}


def verdict(result: Audit, name: str) -> tuple[str, str]:
    node = nodes(result)[name]
    return node.precision, node.coverage
