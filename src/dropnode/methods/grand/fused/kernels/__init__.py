"""The machine code of the training step; the layers that call it are in the folder above.

``rows`` is everything after the first linear map, and ``views`` describes the views of propagated
features, which ``small_graphs`` and ``large_graphs`` make in two ways.
"""
