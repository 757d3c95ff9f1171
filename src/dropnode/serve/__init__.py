"""The Explorer: a trained model as an HTTP service and as a page in a browser.

``dropnode serve MODEL`` answers on this machine alone unless it is given a token. A model is read
once, and requests only read it. What a person adds, labels and newly trained candidates, is kept in
a folder of its own beside the model, which changes only when that person says so.
"""
