"""Whether millhead's own iterators serve, or torch's."""

from __future__ import annotations

import torch

from millhead import _no_core

#: The oldest torch whose loader millhead's iterators equal (docs/compatibility.md).
_TORCH = "2.6"

#: The advice where torch's own iterators serve every loader; None: millhead's do.
why_not: str | None = _no_core
if why_not is None and torch.__version__ < _TORCH:
    why_not = (
        f"torch's own iterators serve every loader: millhead's need torch {_TORCH} or later "
        f"(torch {torch.__version__}): update torch"
    )
