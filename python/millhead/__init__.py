"""millhead: data loading that keeps the accelerator fed, and says why when it does not.

The drop-in for PyTorch is in :mod:`millhead.torch`::

    from millhead.torch import DataLoader
"""

from millhead._core import Error, __version__

__all__ = ["Advice", "Error", "__version__"]


class Advice(UserWarning):
    """What millhead noticed and what to do about it; given once per cause and process."""
