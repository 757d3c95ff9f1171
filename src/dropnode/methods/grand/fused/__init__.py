"""The training step of GRAND in kernels: losses and gradients without autograd."""
