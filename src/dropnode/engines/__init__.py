"""Engines: a plain function run over many items, in processes here or on a Ray cluster."""
