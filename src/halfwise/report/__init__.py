"""Shows results to people; nothing reads this package but the command line."""
