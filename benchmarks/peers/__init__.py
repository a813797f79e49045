"""The tools that the benchmarks compare, each as a program of its own, so that any interpreter can run it."""
