"""A thousand models that nobody here wrote: made from code and from packages, fixed, run and judged."""
