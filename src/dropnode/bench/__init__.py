"""The benchmark: every path of GRAND side by side with a naive one and with PyTorch Geometric."""
