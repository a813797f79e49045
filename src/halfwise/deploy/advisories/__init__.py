"""Known precision defects of TensorRT by version, and which of them a target and a model can meet."""

from halfwise.deploy.advisories.document import AdviseDocument
from halfwise.deploy.advisories.entries import Entry, load_entries
from halfwise.deploy.advisories.matcher import Advisory, match
from halfwise.deploy.advisories.model_facts import (
    ModelFacts,
    facts_of_engine,
    facts_of_file,
    facts_of_model,
    facts_of_nodes,
)
from halfwise.deploy.advisories.of_audit import advisories_of_engine, summary, target_of_log

__all__ = [
    "AdviseDocument",
    "Advisory",
    "Entry",
    "ModelFacts",
    "advisories_of_engine",
    "facts_of_engine",
    "facts_of_file",
    "facts_of_model",
    "facts_of_nodes",
    "load_entries",
    "match",
    "summary",
    "target_of_log",
]
