"""The processor of carts: a cart takes items, and is abandoned when nothing has come for as long as it keeps them."""

import base64
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def pack(value):  # bytes are base64 in JSON
    return base64.b64encode(json.dumps(value).encode()).decode()


def unpack(text):
    return json.loads(base64.b64decode(text)) if text else {}


def decide(task):
    cart, args = unpack(task["process"].get("auxState")), unpack(task.get("args"))
    match task["type"]:
        case "TASK_TYPE_INIT":
            cart = {"keep": args.get("keep", "60s"), "items": []}
            return {"result": {"auxState": pack(cart), "response": pack(cart)}}
        case "TASK_TYPE_CALL":
            if not args.get("add"):
                return {"rejection": {"reason": "nothing_to_add", "message": "add is empty"}}
            cart["items"].append(args["add"])
            return {"result": {
                "auxState": pack(cart),
                "response": pack(cart),
                "events": [{"payload": pack({"added": args["add"]})}],
                "setTimer": {"after": cart["keep"]},
            }}
        case "TASK_TYPE_TIMEOUT":
            return {"result": {"events": [{"payload": pack({"abandoned": cart["items"]})}], "complete": {}}}
        case "TASK_TYPE_CANCEL":
            return {"result": {}}
        case other:
            return {"rejection": {"reason": "not_handled", "message": f"{other} is not handled"}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections open

    def do_POST(self):
        answer = json.dumps(decide(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        pass


ThreadingHTTPServer(("127.0.0.1", 9103), Handler).serve_forever()
