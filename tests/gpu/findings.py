"""What the checks found, and the table that says so."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """SKIPPED: this machine can't show it. TOLD: a figure without an aim."""

    OK = "ok"
    MISSED = "MISSED"
    FAILED = "FAILED"
    SKIPPED = "skipped"
    TOLD = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of the table."""

    check: str
    figure: str
    aim: str
    verdict: Verdict


def judged(check: str, figure: str, aim: str, *, met: bool) -> Finding:
    """A figure that has an aim."""
    return Finding(check, figure, aim, Verdict.OK if met else Verdict.MISSED)


def told(check: str, figure: str) -> Finding:
    """A figure that has none."""
    return Finding(check, figure, "", Verdict.TOLD)


def skipped(check: str, reason: str) -> Finding:
    """What this machine can't show."""
    return Finding(check, reason, "", Verdict.SKIPPED)


def failed(check: str, reason: str) -> Finding:
    """A check that came to nothing."""
    return Finding(check, reason, "", Verdict.FAILED)


def all_well(findings: Sequence[Finding]) -> bool:
    return not any(finding.verdict in {Verdict.MISSED, Verdict.FAILED} for finding in findings)


def table(findings: Sequence[Finding]) -> str:
    """Rows of check, figure, aim and verdict, in columns as wide as they need to be."""
    rows = [("check", "figure", "aim", "")]
    rows += [(finding.check, finding.figure, finding.aim, finding.verdict.value) for finding in findings]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def gib(size_bytes: float) -> str:
    """Bytes for a reader: GiB, or MiB where it is less than one."""
    return f"{size_bytes / 1024**3:.2f} GiB" if abs(size_bytes) >= 1024**3 else f"{size_bytes / 1024**2:.1f} MiB"
