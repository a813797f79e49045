"""Samples: read from files, generated, split between search and validation."""
