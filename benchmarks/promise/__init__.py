"""Is "met" also met on inputs that nobody gave? `python -m benchmarks.promise`."""
