"""Datasets without files: embedded or generated."""
