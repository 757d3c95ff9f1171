"""The benchmark: GRAND's paths side by side with a naive one and with PyTorch Geometric."""
