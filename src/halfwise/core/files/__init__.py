"""What a file is, by its content: one table for every verb that may be given the wrong one."""
