"""Compilers in child processes, readers of build logs and layer lists, and the audit."""
