"""Public functions in processes of their own; what starts these is loaded before anything heavy."""
