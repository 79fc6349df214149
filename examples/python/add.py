"""Puts an item into a cart: add.py CART ITEM."""

import base64
import json
import sys
import urllib.error
import urllib.request
import uuid

request = {
    "namespace": "carts-python",
    "processId": sys.argv[1],
    "args": base64.b64encode(json.dumps({"add": sys.argv[2]}).encode()).decode(),
    "idempotencyKey": str(uuid.uuid4()),  # sent again, after a lost answer, it is done once
}
post = urllib.request.Request(
    "http://127.0.0.1:8080/progressor.v1.ProcessService/Call", json.dumps(request).encode(), {"Content-Type": "application/json"})
try:
    print(base64.b64decode(json.load(urllib.request.urlopen(post))["response"]).decode())
except urllib.error.HTTPError as error:
    refused = json.load(error)
    detail = refused["details"][0]["debug"] if "details" in refused else {}
    print("no:", detail["rejection"]["message"] if detail.get("reason") == "REASON_TASK_REJECTED" else refused["message"])
