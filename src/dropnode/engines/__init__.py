"""Engines: run a plain function over many items, in processes on this machine or on Ray."""
