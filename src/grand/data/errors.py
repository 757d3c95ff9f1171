"""The error that every part of ``grand.data`` raises when a dataset cannot be had or trusted."""


class DataError(RuntimeError):
    """A dataset cannot be obtained, read or trusted; the message says why and what to do."""
