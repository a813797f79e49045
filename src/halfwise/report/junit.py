"""JUnit XML for the gate: one test case a check, for CI systems that show test results."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from halfwise.core.english import say, say_all
from halfwise.core.wording import and_more
from halfwise.report.text import safe
from halfwise.verbs.gate import Check, Gate

__all__ = ["junit_xml", "xml_text"]

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LONGEST = 2_000  # characters of one line; names of 10,000 characters are of no use in a test report
_MOST = 200  # details told of one check


def junit_xml(result: Gate) -> str:
    """A failing check is a failure, one that was left out is skipped; violations and findings stand in its text."""
    failures = sum(check.status == "fail" for check in result.checks)
    skipped = sum(check.status == "skip" for check in result.checks)
    counts = {"tests": str(len(result.checks)), "failures": str(failures), "errors": "0", "skipped": str(skipped)}
    root = ET.Element("testsuites", {"name": "halfwise", **counts})
    model = result.model.path.name if result.model.path else "the model"
    suite = ET.SubElement(root, "testsuite", {"name": xml_text(f"halfwise gate {model}"), **counts})
    for check in result.checks:
        caution = result.caution if check.id == "tolerance" else None
        _case(suite, check, model, "" if caution is None else say(caution))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _case(suite: ET.Element, check: Check, model: str, caution: str) -> None:
    case = ET.SubElement(suite, "testcase", {"classname": xml_text(f"halfwise.gate.{model}"), "name": check.id})
    if check.status == "fail":
        failure = ET.SubElement(case, "failure", {"message": xml_text(check.message), "type": check.id})
        told = say_all(check.details[:_MOST])
        if len(check.details) > _MOST:
            told.append(f"...{and_more(len(check.details), _MOST)}")
        failure.text = "\n".join(map(xml_text, told or [check.message]))
    elif check.status == "skip":
        ET.SubElement(case, "skipped", {"message": xml_text(check.message)})
    else:
        told = [check.message, *([f"caution: {caution}"] if caution else [])]
        ET.SubElement(case, "system-out").text = "\n".join(map(xml_text, told))


def xml_text(text: str) -> str:
    """What XML 1.0 can hold: what moves, hides or turns text is spelled out, and so is what it has no place for."""
    return _NOT_XML.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), safe(text, _LONGEST))
