"""How long kernels take: operations as data, what is timed of every machine, and the law that predicts the others."""
