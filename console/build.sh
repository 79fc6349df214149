#!/bin/bash
# Generates the TypeScript clients and builds console/dist. Both are committed.
set -euo pipefail
cd "$(dirname "$0")/.."
. console/node.sh
console/node_modules/.bin/buf generate --template console/buf.gen.yaml
cd console
npx --no-install tsc --noEmit
npx --no-install vite build --logLevel warn
