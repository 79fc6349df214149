"""Puts an item into a cart: add.py CART ITEM."""

import json
import sys

from progressor import Client, TaskRejected

client = Client()  # at PROGRESSOR_ADDRESS, or http://127.0.0.1:8080
try:
    request = {"namespace": "carts-python", "process_id": sys.argv[1], "args": {"add": sys.argv[2]}}
    print(json.dumps(client.process.call(request)["response"]))
except TaskRejected as error:
    print("no:", error.rejection["message"])
