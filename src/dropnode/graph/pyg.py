"""``Data`` objects of PyTorch Geometric, for :meth:`Graph.from_pyg` and :meth:`Graph.to_pyg`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from dropnode.errors import GraphError
from dropnode.graph.arrays import plain, to_array, to_float32
from dropnode.graph.split import PARTS

if TYPE_CHECKING:
    from dropnode.graph.graph import Graph


def to_pairs(edge_index: Any) -> np.ndarray:
    """Return the ``edge_index`` of a PyG object as pairs."""
    ends = to_array(edge_index, "edge_index")
    if ends.ndim != 2 or ends.shape[0] != 2:
        raise GraphError(
            f"edge_index has shape {ends.shape}; expected (2, number of edges): transpose pairs"
        )
    return ends.T


def to_weights(data: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the edge weights of a PyG object, if it has any, and what to say about them."""
    weights, attributes = (getattr(data, name, None) for name in ("edge_weight", "edge_attr"))
    if attributes is None:
        return weights, ()
    shape = tuple(to_array(attributes, "edge_attr").shape)
    if weights is not None:
        return weights, ("edge_attr ignored, because edge_weight has the weights",)
    if len(shape) > 2 or shape[1:] not in ((), (1,)):
        return None, (f"edge_attr ignored: shape {shape}, but a weight is one number per edge",)
    values = to_float32(attributes, "edge_attr").reshape(-1)
    if not np.isfinite(values).all() or (values < 0).any():
        return None, ("edge_attr ignored: weights are finite and not negative, but these are not",)
    return values, ("the one column of edge_attr was used as edge weights",)


def to_parts(data: Any) -> list[np.ndarray] | None:
    """Return the positions that the three masks of a PyG object select, if it has any."""
    masks = {part: getattr(data, f"{part}_mask", None) for part in PARTS}
    if all(mask is None for mask in masks.values()):
        return None
    x = plain(data.x)
    nodes = (x if sp.issparse(x) else to_array(x, "x")).shape[:1] or (0,)
    parts = []
    for part, mask in masks.items():
        chosen = np.zeros(nodes, dtype=bool) if mask is None else to_array(mask, f"{part}_mask")
        # Several splits come as the columns of one mask, and would be mixed up.
        if chosen.shape != nodes:
            raise GraphError(
                f"{part}_mask has shape {chosen.shape} for {nodes[0]:,} nodes; expected one "
                "value per node: of several splits, keep one column"
            )
        # Whole numbers may be positions, of which a mask would make others.
        if chosen.dtype.kind != "b":
            raise GraphError(
                f"{part}_mask is {chosen.dtype}; expected true or false for every node "
                "(mask.bool(), if 1 and 0 mean these)"
            )
        parts.append(np.flatnonzero(chosen))
    return parts


def to_data(graph: Graph) -> Any:
    """Return a graph as a ``Data`` object."""
    import torch
    from torch_geometric.data import Data

    entries = graph.adjacency.tocoo()
    dense = graph.features.toarray() if sp.issparse(graph.features) else graph.features
    data = Data(
        # Those of a graph on disk may be float16, which layers of float32 cannot multiply.
        x=torch.from_numpy(np.array(dense, dtype=np.float32)),
        edge_index=torch.from_numpy(np.stack(entries.coords).astype(np.int64)),
        edge_weight=torch.from_numpy(entries.data.copy()),
        y=torch.from_numpy(graph.labels.copy()),
        class_names=graph.class_names,
    )
    if graph.split is not None:
        for part in PARTS:
            mask = np.zeros(graph.num_nodes, dtype=bool)
            mask[getattr(graph.split, part)] = True
            data[f"{part}_mask"] = torch.from_numpy(mask)
    return data
