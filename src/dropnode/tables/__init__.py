"""Tables: files of nodes and edges as graphs, and the encoders of their columns."""

from dropnode.tables.encoders import Encoders
from dropnode.tables.read import Tables, read_tables

__all__ = ["Encoders", "Tables", "read_tables"]
