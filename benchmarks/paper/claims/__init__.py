"""The claims, in the order of the page."""

from __future__ import annotations

from paper.claim import Claim
from paper.claims.grafted import GRAFTED
from paper.claims.induction import INDUCTION
from paper.claims.loss_weights import LOSS_WEIGHTS
from paper.claims.memory import MEMORY
from paper.claims.polynomials import POLYNOMIALS
from paper.claims.quality import QUALITY
from paper.claims.sequence import SEQUENCE
from paper.claims.speed import SPEED

CLAIMS: dict[str, Claim] = {
    claim.name: claim for claim in (MEMORY, SPEED, GRAFTED, SEQUENCE, INDUCTION, POLYNOMIALS, QUALITY, LOSS_WEIGHTS)
}
