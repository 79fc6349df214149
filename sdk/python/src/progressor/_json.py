"""Converts between the JSON of the API and the values that users see.

There, names of fields are in camelCase, bytes are base64, and 64-bit integers are strings.
"""

from __future__ import annotations

import base64
import functools
import json
import re
from typing import Any

from .api import CONVERSIONS


def dump(value: Any) -> str:
    """Returns JSON. Raises ValueError for NaN and infinity, which are not JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def encode(message: str, value: Any) -> Any:
    """Converts a request or a response of a processor to the JSON of the API."""
    if not isinstance(value, dict):
        return value
    fields = CONVERSIONS[message]
    return {name: _encode_field(fields.get(name, ""), field) for name, field in value.items()}


def _encode_field(how: str, value: Any) -> Any:
    if how == "bytes":
        content = value if isinstance(value, (bytes, bytearray)) else dump(value).encode()
        return base64.b64encode(content).decode()
    if how in ("", "int64", "{int64}"):
        return value
    if isinstance(value, (list, tuple)):
        return [encode(how, item) for item in value]
    return encode(how, value)


def decode(message: str, value: Any, payloads: str = "json") -> Any:
    """Converts a response or a task from the JSON of the API."""
    fields = CONVERSIONS[message]
    decoded = {}
    for key, field in value.items():
        name = _snake_case(key)
        decoded[name] = _decode_field(fields.get(name, ""), field, payloads)
    return decoded


def _decode_field(how: str, value: Any, payloads: str) -> Any:
    if how == "" or value is None:
        return value
    if how == "bytes":
        return _payload(base64.b64decode(value), payloads)
    if how == "{int64}":
        return {key: int(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_decode_field(how, item, payloads) for item in value]
    return int(value) if how == "int64" else decode(how, value, payloads)


def _payload(content: bytes, payloads: str) -> Any:
    if payloads == "bytes":
        return content
    if not content:
        return None
    try:
        return json.loads(content.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return content  # not JSON, or nested too deeply


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


@functools.lru_cache(maxsize=None)
def _snake_case(name: str) -> str:
    return re.sub("([A-Z])", lambda match: "_" + match[1].lower(), name)
