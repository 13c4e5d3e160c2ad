"""Signatures of outgoing webhooks, and the secrets they are made with.

Source: Standard Webhooks 1.0, "Signature scheme"; the package `standardwebhooks` does the work.
"""

import base64
import secrets
from datetime import datetime

from standardwebhooks.webhooks import Webhook

SECRET_BYTES = 32


def new_secret() -> str:
    """A fresh secret, as receivers paste it: `whsec_` and base64."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def headers(secret: str, delivery_id: str, sent_at: datetime, body: str) -> dict[str, str]:
    """The three headers for exactly these bytes at this time. `sent_at` is that of the attempt, not of the event."""
    return {
        "webhook-id": delivery_id,
        "webhook-timestamp": str(int(sent_at.timestamp())),
        "webhook-signature": Webhook(secret).sign(delivery_id, sent_at, body),
    }
