"""Things that run or compile a model, and readers of what they say."""
