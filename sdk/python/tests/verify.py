"""python3 verify.py KEY... <request: headers, an empty line, the body. It fails if no key has signed it."""

import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "src"))

from progressor import verify  # noqa: E402

head, _, content = sys.stdin.buffer.read().partition(b"\n\n")
lines = (line.split(": ", 1) for line in head.decode().splitlines())
try:
    verify({name.lower(): value for name, value in lines}, content, sys.argv[1:])
except (ValueError, RuntimeError) as error:
    sys.exit(str(error))
