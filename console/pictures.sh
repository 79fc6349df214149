#!/bin/bash
# Retakes the screenshots in docs/images.
set -euo pipefail
cd "$(dirname "$0")/.."
. console/node.sh
cd console
node test/pictures.mjs
