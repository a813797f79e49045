"""One module or package for each thing that a user asks."""
