"""Checks the signatures of requests of the engine, as defined by Standard Webhooks.

    from signature import verify
    verify(self.headers, body, ["whsec_…"])     # raises ValueError unless a key has signed the request

A key begins with whsec_, or with whpk_ if it is a public key of Ed25519. Public keys need the package
cryptography, because the standard library has no Ed25519. To replace a key, give it the old and the
new one.
"""

import base64
import hashlib
import hmac
import sys
import time

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
except ImportError:
    Ed25519PublicKey = None

TOLERANCE = 300  # seconds between webhook-timestamp and the clock of this machine
MAX_SIGNATURES = 10  # of a request that are checked


def _signed_by(key, text, content):
    """Reports whether a key has made a signature of a content."""
    if key.startswith("whpk_"):
        if Ed25519PublicKey is None:
            raise RuntimeError("a key that begins with whpk_ needs the package cryptography: pip install cryptography")
        raw = base64.b64decode(key.removeprefix("whpk_"), validate=True)
        if len(raw) != 32:
            raise ValueError("a key must be whpk_ and a public key of Ed25519 in base64")
        if not text.startswith("v1a,"):
            return False
        try:
            Ed25519PublicKey.from_public_bytes(raw).verify(base64.b64decode(text.removeprefix("v1a,")), content)
        except (InvalidSignature, ValueError):  # also if it is not base64
            return False
        return True
    secret = base64.b64decode(key.removeprefix("whsec_"), validate=True)
    if not key.startswith("whsec_") or len(secret) < 24:
        raise ValueError("a key must be whsec_ and 24 bytes or more in base64")
    mine = "v1," + base64.b64encode(hmac.digest(secret, content, hashlib.sha256)).decode()
    return hmac.compare_digest(mine.encode(), text.encode())


def verify(headers, body, keys, now=None):
    """Raises ValueError unless one of the keys has signed the request. body is the body as bytes."""
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    message_id, timestamp, signatures = (headers.get(name, "") for name in names)
    if not (message_id and timestamp and signatures):
        raise ValueError("the request is not signed: it needs the headers " + ", ".join(names))
    if "." in message_id:  # it could contain the timestamp of another request
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
    raise ValueError("no signature of the request is of a known key")


if __name__ == "__main__":  # python3 signature.py KEY... <request: headers, an empty line, the body
    head, _, content = sys.stdin.buffer.read().partition(b"\n\n")
    lines = (line.split(": ", 1) for line in head.decode().splitlines())
    try:
        verify({name.lower(): value for name, value in lines}, content, sys.argv[1:])
    except (ValueError, RuntimeError) as error:
        sys.exit(str(error))
