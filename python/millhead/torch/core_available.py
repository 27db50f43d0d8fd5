"""Whether millhead's own iterators serve, or torch's."""

from __future__ import annotations

import torch

from millhead import _no_core

#: The oldest torch whose loader millhead's iterators equal (docs/compatibility.md).
_TORCH = "2.6"


def _reason() -> str | None:
    if _no_core is not None:
        return _no_core
    if torch.__version__ < _TORCH:
        return (
            f"torch's own iterators serve every loader: millhead's need torch {_TORCH} or later "
            f"(torch {torch.__version__}): update torch"
        )
    return None


#: The advice where torch's own iterators serve every loader; None: millhead's do.
why_not: str | None = _reason()
