"""The main job: the fewest FP32 nodes that keep the tolerance, written and verified."""
