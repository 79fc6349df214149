"""A processor of jobs with Python's standard library only. The engine posts each job to it, as JSON or MessagePack.

    python3 processor.py [PORT]
"""

import json
import struct
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_REQUEST = 17 << 20  # bytes; the engine sends at most 16 MiB


def pack(v):
    """Encodes the types that responses of this program contain: None, bool, int, float, str, bytes, list and dict."""
    match v:
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if v else b"\xc2"
        case int():
            return b"\xd3" + struct.pack(">q", v)
        case float():
            return b"\xcb" + struct.pack(">d", v)
        case str():
            text = v.encode()
            return b"\xdb" + struct.pack(">I", len(text)) + text
        case bytes():
            return b"\xc6" + struct.pack(">I", len(v)) + v
        case list():
            return b"\xdd" + struct.pack(">I", len(v)) + b"".join(map(pack, v))
        case dict():
            return b"\xdf" + struct.pack(">I", len(v)) + b"".join(pack(k) + pack(x) for k, x in v.items())


NUMBERS = dict(zip(range(0xCA, 0xD4), "f d B H I Q b h i q".split()))
LENGTHS = {0xC4: "B", 0xC5: "H", 0xC6: "I", 0xD9: "B", 0xDA: "H", 0xDB: "I", 0xDC: "H", 0xDD: "I", 0xDE: "H", 0xDF: "I"}


def unpack(data):
    at = 0

    def take(n):
        nonlocal at
        at += n
        return data[at - n : at]

    def number(form):
        return struct.unpack(">" + form, take(struct.calcsize(form)))[0]

    def value():
        c = take(1)[0]
        if c < 0x80 or c >= 0xE0:
            return c if c < 0x80 else c - 0x100
        if c in NUMBERS:
            return number(NUMBERS[c])
        if 0xC0 <= c <= 0xC3:
            return {0xC0: None, 0xC2: False, 0xC3: True}[c]
        n = number(LENGTHS[c]) if c in LENGTHS else c & (0x1F if c >= 0xA0 else 0x0F)
        if 0xC4 <= c <= 0xC6:
            return take(n)
        if 0xA0 <= c <= 0xBF or 0xD9 <= c <= 0xDB:
            return take(n).decode()
        if 0x90 <= c <= 0x9F or 0xDC <= c <= 0xDD:
            return [value() for _ in range(n)]
        return {value(): value() for _ in range(n)}

    return value()


def decide(task):
    """Takes a ProcessRequest and returns a ProcessResponse. If the response is lost, the engine sends the request again."""
    match task.get("jobName"), task.get("jobArgs"):
        case "count", {"text": str(text)}:
            return {"result": {"jobResult": {"words": len(text.split())}, "complete": {}}}
        case "count", args:
            return {"failure": {"reason": "bad_args", "message": f"text must be a string, not {args!r}", "nonRetryable": True}}
        case name, _:
            return {"rejection": {"reason": "not_handled", "message": f"jobs named {name} are not handled"}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections open
    disable_nagle_algorithm = True

    def do_POST(self):
        size = self.headers["Content-Length"] or ""
        if not size.isdecimal() or int(size) > MAX_REQUEST:
            self.send_error(411 if not size.isdecimal() else 413)  # closes the connection
            return
        body, kind = self.rfile.read(int(size)), self.headers["Content-Type"]
        packed = kind == "application/msgpack"
        try:
            answer = decide(unpack(body) if packed else json.loads(body))
        except Exception as error:
            answer = {"failure": {"reason": "error", "message": repr(error)}}
        text = pack(answer) if packed else json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 9000), Handler)
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
