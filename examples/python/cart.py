"""The processor of carts: a cart takes items, and is abandoned if nothing is added for a while."""

from progressor import Processor, Rejection

carts = Processor()


@carts.init
def init(task):
    cart = {"keep": task.get("args", {}).get("keep", "60s"), "items": []}
    return {"aux_state": cart, "response": cart}


@carts.call
def call(task):
    cart, add = task["process"]["aux_state"], task["args"]["add"]
    if not add:
        raise Rejection("nothing_to_add", "add is empty")
    cart["items"].append(add)
    return {"aux_state": cart, "response": cart, "events": [{"payload": {"added": add}}], "set_timer": {"after": cart["keep"]}}


@carts.timeout
def timeout(task):
    return {"events": [{"payload": {"abandoned": task["process"]["aux_state"]["items"]}}], "complete": {}}


carts.serve("127.0.0.1", 9103)
