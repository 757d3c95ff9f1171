"""Files of published datasets, one reader per format."""
