"""Compiled kernels of the training step, which the layers in ``methods/grand/fused/`` call.

``rows`` computes everything after the first linear map. ``views`` describes views of propagated
features, which ``small_graphs`` and ``large_graphs`` compute in two ways. ``batch_norm`` and
``octets`` are the passes that batch norm needs after and before the first layer.
"""
