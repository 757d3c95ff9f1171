"""GRAND: perturb, propagate, classify, agree."""
