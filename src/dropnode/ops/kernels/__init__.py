"""What runs on a CPU in machine code of our own: random bits and sparse products.

NumPy arrays in, NumPy arrays out; nothing here knows torch's autograd or a configuration. Every
kernel is a serial function that releases the interpreter lock; ``threads.spread`` runs several of
them side by side. Each has a counterpart in plain torch, which other devices use and tests compare.
"""
