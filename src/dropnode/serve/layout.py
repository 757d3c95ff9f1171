"""Layout: a place in the plane for every node, so that neighbours are near each other.

Nodes repel each other and edges attract, as in ForceAtlas2. Repulsion is computed on a grid: nodes
are counted in its cells, and one convolution by FFT gives the force of all on all. An iteration so
costs the nodes, the edges and the grid, and 20,000 nodes take seconds. The start is the graph's
smooth directions: random numbers that are averaged over neighbours many times.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.fft import irfft2, rfft2

from dropnode.ops.randomness import Stream

ITERATIONS = 120
SMOOTHINGS = 60
CELLS = 192
"""Cells of the grid along one side."""

GRAVITY = 0.03
"""How strongly nodes are drawn to the middle, which holds parts together that no edge joins.
Without edges, this and the repulsion balance where nodes fill a disc evenly."""


def place_nodes(adjacency: sp.csr_array, iterations: int = ITERATIONS) -> np.ndarray:
    """Return the places of nodes, (nodes, 2) in float32; the same for the same graph.

    Parameters
    ----------
    adjacency : csr_array (nodes, nodes)
        Symmetric; its weights do not count.
    iterations : int
        More give a calmer picture.

    Examples
    --------
    >>> path = sp.csr_array(sp.diags_array([np.ones(9), np.ones(9)], offsets=[-1, 1]))
    >>> places = place_nodes(path)
    >>> far, near = (np.linalg.norm(places[0] - places[at]) for at in (9, 1))
    >>> bool(far > 3 * near)
    True
    """
    count = adjacency.shape[0]
    if count < 2:
        return np.zeros((count, 2), dtype=np.float32)
    edges = sp.csr_array(adjacency, dtype=np.float32, copy=True)
    edges.data[:] = 1.0
    degree = np.asarray(edges.sum(axis=1), dtype=np.float64)
    places = _smooth_directions(edges, degree)
    pull = (degree + 1.0)[:, None]
    # The radius of that disc.
    radius = np.sqrt(pull.sum() / GRAVITY)
    places *= radius / max(float(np.abs(places).max()), 1e-9)
    for step in range(iterations):
        attraction = edges @ places - degree[:, None] * places
        force = attraction + pull * (_repulsion(places, pull[:, 0]) - GRAVITY * places)
        # Hubs are heavy, and steps become shorter, so that the picture comes to rest.
        move = force / pull
        length = np.linalg.norm(move, axis=1, keepdims=True)
        longest = 0.1 * radius * (1.0 - step / iterations) ** 2 + 1e-3
        places += move * np.minimum(1.0, longest / np.maximum(length, 1e-9)) * 0.5
    places -= places.mean(axis=0)
    return (places / max(float(np.abs(places).max()), 1e-9)).astype(np.float32)


def _smooth_directions(edges: sp.csr_array, degree: np.ndarray) -> np.ndarray:
    """Return two directions that vary little along edges, by power iteration."""
    count = edges.shape[0]
    values = Stream(0).at("layout").generator().standard_normal((count, 2))
    scale = 1.0 / (degree + 1.0)
    trivial = np.sqrt(degree + 1.0)
    trivial /= np.linalg.norm(trivial)
    for _ in range(SMOOTHINGS):
        values = scale[:, None] * (edges @ values + values)
        # Without the constant, which is the smoothest of all, and at right angles.
        weighted = values * np.sqrt(degree + 1.0)[:, None]
        weighted -= trivial[:, None] * (trivial @ weighted)
        values = np.linalg.qr(weighted)[0] * np.sqrt(scale)[:, None]
    # By rank, half of the way: outliers would press all others together.
    ranks = np.argsort(np.argsort(values, axis=0), axis=0) / max(count - 1, 1) - 0.5
    return values / max(float(np.abs(values).max()), 1e-9) + 2.0 * ranks


def _repulsion(places: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the force of all nodes on each, which falls with the distance."""
    low = places.min(axis=0)
    width = max(float((places.max(axis=0) - low).max()), 1e-6)
    cell = width / (CELLS - 2)
    at = (places - low) / cell
    corner = np.floor(at).astype(np.int64)
    part = at - corner
    # A node is shared out among the four corners of its cell.
    corners = [
        (
            (corner[:, 0] + across) * CELLS + corner[:, 1] + up,
            np.abs(1 - across - part[:, 0]) * np.abs(1 - up - part[:, 1]),
        )
        for across in (0, 1)
        for up in (0, 1)
    ]
    mass = np.zeros(CELLS * CELLS)
    for index, share in corners:
        mass += np.bincount(index, share * weights, minlength=CELLS * CELLS)
    spectrum = rfft2(mass.reshape(CELLS, CELLS).astype(np.float32), s=(2 * CELLS, 2 * CELLS))
    # The kernel is d / |d|² in cells; in units, that is 1 / cell of it.
    forces = []
    for kernel in _KERNELS:
        field = irfft2(spectrum * kernel, s=(2 * CELLS, 2 * CELLS))[:CELLS, :CELLS].ravel()
        forces.append(sum(share * field[index] for index, share in corners))
    return np.stack(forces, axis=1, dtype=np.float64) / cell


def _kernels() -> tuple[np.ndarray, np.ndarray]:
    """Return the transforms of both parts of the force, on a grid that wraps around."""
    steps = np.fft.fftfreq(2 * CELLS, 1.0 / (2 * CELLS))
    across, up = np.meshgrid(steps, steps, indexing="ij")
    squared = across**2 + up**2
    squared[0, 0] = 1.0
    first, second = ((part / squared).astype(np.float32) for part in (across, up))
    return rfft2(first), rfft2(second)


_KERNELS = _kernels()
