#!/bin/bash
# Takes the pictures of the documents anew: docs/images.
set -euo pipefail
cd "$(dirname "$0")/.."
. console/node.sh
cd console
node test/pictures.mjs
