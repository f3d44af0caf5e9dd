"""What can be wrong with a repository. Messages may reach clients: they hold no absolute path of the repository."""

from collections.abc import Sequence


class RepositoryError(Exception):
    """The repository itself is unusable."""


class ManifestError(RepositoryError):
    """One model's folder is unusable; the message has one line per problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)
