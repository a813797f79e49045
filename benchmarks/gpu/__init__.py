"""What a real GPU does, and how near the emulation comes: operators, whole models, speed. Only this needs a GPU."""
