"""The rules that are on from the first run. Each says why it exists and where its numbers come from."""

from typing import Final

from .default_absence import ABSENCE_RULES
from .default_curves import GRADIENT_RULES, LOSS_RULES, NOT_FINITE_RULES, PLAIN_RULES
from .default_signals import MACHINE_RULES, RESUME_RULES, SCALER_RULES

DEFAULT_RULES: Final = (
    *NOT_FINITE_RULES,
    *SCALER_RULES,
    *LOSS_RULES,
    *GRADIENT_RULES,
    *PLAIN_RULES,
    *RESUME_RULES,
    *MACHINE_RULES,
    *ABSENCE_RULES,
)
"""The most serious first; the page lists them in this order. All are `enabled`, none acts until somebody gives it an action."""
