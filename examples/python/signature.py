"""Checks the signatures of requests of the engine, as defined by Standard Webhooks.

    from signature import verify
    verify(self.headers, body, ["whsec_…"])     # raises ValueError unless a key has signed the request

It needs only Python. To replace a key, give it the old and the new one.
"""

import base64
import hashlib
import hmac
import sys
import time

TOLERANCE = 300  # seconds between webhook-timestamp and the clock of this machine


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
    signed = f"{message_id}.{timestamp}.".encode() + body
    for key in keys:
        secret = base64.b64decode(key.removeprefix("whsec_"), validate=True)
        if not key.startswith("whsec_") or len(secret) < 24:
            raise ValueError("a key must be whsec_ and 24 bytes or more in base64")
        mine = "v1," + base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode()
        for theirs in signatures.split():
            if hmac.compare_digest(mine.encode(), theirs.encode()):
                return
    raise ValueError("no signature of the request is of a known key")


if __name__ == "__main__":  # python3 signature.py KEY... <request: headers, an empty line, the body
    head, _, content = sys.stdin.buffer.read().partition(b"\n\n")
    lines = (line.split(": ", 1) for line in head.decode().splitlines())
    try:
        verify({name.lower(): value for name, value in lines}, content, sys.argv[1:])
    except ValueError as error:
        sys.exit(str(error))
