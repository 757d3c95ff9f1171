"""Everything that classifies nodes: GRAND with its variants, and the baselines."""
