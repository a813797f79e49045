"""A format for every node and tensor; the plan; the typed model."""
