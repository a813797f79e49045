"""Imported by the process that jobs are forked from, so that no job pays for its imports."""

from halfwise.fleet.work import prepare

prepare()
