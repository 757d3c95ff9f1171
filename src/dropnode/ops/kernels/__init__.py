"""Compiled kernels for the CPU: random bits, sparse products, attention and push.

Kernels read and write NumPy arrays, and know neither torch's autograd nor a configuration. Every
kernel is a serial function that releases the interpreter lock; ``threads.in_parallel`` runs several
at the same time. Each has a plain counterpart, in torch, NumPy or SciPy, which is used where
kernels are not, and which tests compare it with.
"""
