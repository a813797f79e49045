"""The sessions that were used last: a decision is often asked about other samples soon after."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from halfwise.emulation.ort import AnySession
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

__all__ = ["KeptSessions"]

_MOST = 4
_MOST_BYTES = 1 << 24  # of weights, of which each session has its own, and of what it holds of its nodes
_NODE_BYTES = 1 << 12  # that it holds of each
_WEIGHT_BYTES = 1 << 13  # that are read in the time that it takes to begin a node of a session


class KeptSessions:
    """Of one emulator."""

    def __init__(self) -> None:
        self._sessions: dict[Hashable, AnySession] = {}  # the last used one last

    def session(self, assignment: Assignment, begin: Callable[[], AnySession]) -> AnySession:
        sites = assignment.sites
        most = self._few(sites) or int(sites.model.weight_bytes <= _WEIGHT_BYTES * len(sites.all))
        if not most:
            return begin()
        key = (sites.model, sites.fmt, frozenset(assignment.formats.items()), assignment.io)
        session = self._sessions.pop(key, None)
        if session is None:
            while len(self._sessions) >= most:
                del self._sessions[next(iter(self._sessions))]
            session = begin()
        self._sessions[key] = session
        return session

    def make_room(self, sites: Sites) -> None:
        """For a walk, beside which none of many nodes is kept."""
        if not self._few(sites):
            self._sessions.clear()

    def _few(self, sites: Sites) -> int:
        return min(_MOST, _MOST_BYTES // max(sites.model.weight_bytes + _NODE_BYTES * len(sites.all), 1))
