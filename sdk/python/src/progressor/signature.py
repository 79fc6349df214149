"""Checks the signatures of requests of the engine, as defined by Standard Webhooks."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from typing import Any, Iterable, Mapping, Optional

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ed25519
except ImportError:
    ed25519: Any = None  # type: ignore[no-redef]

TOLERANCE = 300  # seconds between webhook-timestamp and the clock of this machine
MAX_SIGNATURES = 10  # signatures of a request that are checked


def verify(headers: Mapping[str, str], body: bytes, keys: Iterable[str], now: Optional[float] = None) -> None:
    """Raises ValueError unless one of the keys has signed the request.

    The engine can sign its requests to processors, to HTTP targets of crons and to webhooks.
    headers contains the names in lower case, or ignores their case. body is the body as bytes,
    unchanged. A key begins with whsec_, or with whpk_ if it is an Ed25519 public key. Public keys
    need the package cryptography, because the standard library has no Ed25519. To replace a key,
    pass the old and the new one.
    """
    if isinstance(keys, str):
        raise TypeError("keys must be a list")
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    message_id, timestamp, signatures = (headers.get(name) or "" for name in names)
    if not (message_id and timestamp and signatures):
        raise ValueError("the request is not signed: it needs the headers " + ", ".join(names))
    if "." in message_id:  # otherwise, the ID could contain the timestamp of another request
        raise ValueError("webhook-id must not contain a dot")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        raise ValueError("webhook-timestamp must be a number of seconds")
    if abs((time.time() if now is None else now) - int(timestamp)) > TOLERANCE:
        raise ValueError("webhook-timestamp differs too much from the clock of this machine")
    content = f"{message_id}.{timestamp}.".encode() + body
    for key in keys:
        for text in signatures.split()[:MAX_SIGNATURES]:
            if _signed_by(key, text, content):
                return
    raise ValueError("no signature of the request was made with a known key")


def _signed_by(key: str, text: str, content: bytes) -> bool:
    """Reports whether a key has created a signature of the content."""
    if key.startswith("whpk_"):
        return _signed_by_public(key[5:], text, content)
    secret = base64.b64decode(key[6:] if key.startswith("whsec_") else key, validate=True)
    if not key.startswith("whsec_") or len(secret) < 24:
        raise ValueError("a key must be whsec_ followed by 24 or more bytes in base64")
    mine = "v1," + base64.b64encode(hmac.digest(secret, content, hashlib.sha256)).decode()
    return hmac.compare_digest(mine.encode(), text.encode())


def _signed_by_public(key: str, text: str, content: bytes) -> bool:
    if ed25519 is None:
        raise RuntimeError("a key that begins with whpk_ needs the package cryptography: pip install cryptography")
    raw = base64.b64decode(key, validate=True)
    if len(raw) != 32:
        raise ValueError("a key must be whpk_ followed by an Ed25519 public key in base64")
    if not text.startswith("v1a,"):
        return False
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(raw).verify(base64.b64decode(text[4:]), content)
    except (InvalidSignature, ValueError):  # ValueError: it is not base64
        return False
    return True
