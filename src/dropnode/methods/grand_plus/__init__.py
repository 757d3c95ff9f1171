"""GRAND+: GRAND on mini-batches, with rows of the propagation matrix that push precomputes."""
