"""What ONNX Runtime says of an error, in few words: which node, and why, without prefixes, paths and signatures."""

from __future__ import annotations

import re

from halfwise.model.known_operators import CUT

__all__ = ["NO_THREAD", "runtime_reason"]

NO_THREAD = "pthread_create failed"

# How ONNX Runtime says that it lacks an operator: by the node, with all its types, or by the operator alone.
_UNKNOWN_OPERATORS = (
    re.compile(r'In Node, \("(?P<node>.*?)", (?P<op>.*?), "(?P<domain>.*?)", .* Error No (Op|opset) '),
    re.compile(r"Fatal error: (?P<node>)(?P<domain>.*?):(?P<op>\w+)\(-?\d+\) is not a registered function/op"),
)
_NO_KERNEL = re.compile(
    r"Could not find an implementation for (?P<op>\w+)\((?P<opset>\d+)\) node with name '(?P<node>.*?)'"
)
# While a node runs, of several the innermost. A file and its line may come first, then a condition behind a signature,
# or a method's name.
_RUNNING = re.compile(r".*while running (?P<op>\S+) node\. Name:'(?P<node>.*?)' Status Message: (?P<why>.*)")
_PLACE = re.compile(r"\S+\.(?:h|cc|cpp|cu):\d+ (?:.* was false\. (?=.)|\w+ )?")


def runtime_reason(error: Exception) -> str:
    """ONNX Runtime's own words without its prefixes and paths."""
    text = " ".join(str(error).split())
    if (found := _RUNNING.match(text)) and NO_THREAD not in text:
        place = f"node {found['node']!r} ({found['op']})" if found["node"] else f"a node without a name ({found['op']})"
        return f"{place}: {_PLACE.sub('', found['why'], count=1)[:400].rstrip('.')}"
    for mark in ("Status Message: ", "Unsupported model", "This is an invalid model. "):
        if mark in text:
            text = text[text.index(mark) + (len(mark) if mark.endswith(" ") else 0) :]
    if NO_THREAD in text:
        why = text.rpartition("error msg: ")[2].rstrip(".")
        return f"the system starts no more threads ({why}); end other processes, or raise the limit (ulimit -u)"
    if text.startswith("[ONNXRuntimeError] : "):
        text = text.split(" : ", 3)[-1]
    for pattern in _UNKNOWN_OPERATORS:
        if found := pattern.match(text):
            operator = found["op"] + (f" of {found['domain']}" if found["domain"] else "")
            place = f" of node {found['node']!r}" if found["node"] else ""
            return f"it has no operator {operator}{place}; {CUT}"
    if found := _NO_KERNEL.match(text):
        place = f" of node {found['node']!r}" if found["node"] else ""
        return f"it has no kernel of operator {found['op']} (opset {found['opset']}){place} for these types; {CUT}"
    return text[:400].rstrip(".")
