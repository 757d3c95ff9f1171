"""Compiled kernels for the CPU: random bits and sparse products.

Kernels read and write NumPy arrays, and know neither torch's autograd nor a configuration. Every
kernel is a serial function that releases the interpreter lock; ``threads.in_parallel`` runs several
at the same time. Each has a counterpart in plain torch, which is used on other devices and which
tests compare it with.
"""
