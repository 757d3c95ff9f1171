"""Mathematics on arrays: randomness, scaling, perturbation, propagation, and their kernels."""
