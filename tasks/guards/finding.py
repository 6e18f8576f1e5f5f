"""What a guard says, and what follows from it for a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from warehouse.ledger.verdicts import Reason, Severity, Verdict, worst


class Finding(NamedTuple):
    """One thing found: a code, how bad it is, and a sentence with the figures."""

    reason: Reason
    severity: Severity
    sentence: str


class Judgement(NamedTuple):
    """What the guards say about one condition of a step; `condition` and `mode` are None for the whole step."""

    condition: str | None
    mode: str | None
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst severity found; ok if nothing was."""
        return worst(finding.severity for finding in self.findings)

    def as_row(self) -> dict[str, object]:
        """As a row of `verdicts`."""
        reasons, details = [each.reason.value for each in self.findings], [each.sentence for each in self.findings]
        of = {"condition": self.condition, "mode": self.mode, "verdict": self.verdict}
        return {**of, "reasons": reasons, "details": details}


def judge(condition: str | None, mode: str | None, findings: Sequence[Finding | None]) -> Judgement:
    """Gather what guards returned; a guard that found nothing returns None."""
    return Judgement(condition, mode, tuple(finding for finding in findings if finding is not None))
