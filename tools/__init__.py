"""What makes the project's own pages and pictures."""
