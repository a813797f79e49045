"""What a model's outputs hold, read off its graph and its FP32 answers, and so how they are judged."""
