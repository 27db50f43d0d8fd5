"""`millhead bench`: a dataset under several loader configurations."""


def main(arguments: list[str]) -> int:
    """`millhead bench ARGUMENTS`; its exit code."""
    from millhead.bench import command  # not in every process that imports a part of bench

    return command.main(arguments)
