"""The verbs of the command that need Python: what `millhead VERB` executes, and `python -m millhead VERB`."""

from __future__ import annotations

import importlib
import os
import sys

#: Each has a function ``main(arguments)`` that returns the exit code.
VERBS = {
    "bench": "millhead.bench.command",
    "doctor": "millhead.doctor",
    "run": "millhead.run",
    "tune": "millhead.tune.command",
}


def main() -> int:
    """The verb named by the first argument."""
    if sys.stderr is None:  # closed: else messages would go to standard output
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - until the end
    verb, arguments = (sys.argv[1:2] or [""])[0], sys.argv[2:]
    if verb not in VERBS:
        print(
            f"millhead: no verb '{verb}' here (python -m millhead): known: {', '.join(VERBS)}; "
            "others have the command millhead",
            file=sys.stderr,
        )
        return 2
    try:
        module = importlib.import_module(VERBS[verb])
    except KeyboardInterrupt:
        print(f"millhead: interrupted ({verb}): nothing was done yet", file=sys.stderr)
        return 130
    code: int = module.main(arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
