"""`millhead tune`: the best loader settings for a dataset and a training step."""


def main(arguments: list[str]) -> int:
    """`millhead tune ARGUMENTS`; its exit code."""
    from millhead.tune import command  # not in every process that imports a part of tune

    return command.main(arguments)
