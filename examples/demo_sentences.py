"""What the demo asks the embedder, and what it should find."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sentences, and whether they say the same."""

    first: str
    second: str
    paraphrase: bool

    def accepts(self, similarity: float) -> bool:
        """Whether a cosine is in the range that a good embedding gives."""
        return similarity > 0.6 if self.paraphrase else similarity < 0.3


PAIRS = (
    Pair("How do I get a refund for my ticket?", "I would like my money back for the ticket I bought.", True),
    Pair("The storm knocked out power across the city.", "The whole town lost electricity because of the storm.", True),
    Pair(
        "The harbour master closed the port because of the storm.",
        "The port was shut by the harbour master due to bad weather.",
        True,
    ),
    Pair("How do I get a refund for my ticket?", "Penguins huddle together to keep warm.", False),
    Pair("The storm knocked out power across the city.", "She practises the violin every morning.", False),
    Pair("A fishing boat is tied up at the quay.", "The parliament passed the new tax law.", False),
)
