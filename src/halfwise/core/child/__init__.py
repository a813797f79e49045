"""Child processes that cannot hurt their parent: commands, and functions that answer requests."""
