"""Which nodes stay in FP32 and which repairs are applied."""
