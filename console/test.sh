#!/bin/bash
# Tests the console in a real browser against engines that it starts. ARGS: of node --test, such as --test-name-pattern=Overview.
set -euo pipefail
cd "$(dirname "$0")/.."
. console/node.sh
export CHROMIUM=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
if [ -z "$CHROMIUM" ]; then
  echo "test of the console: skipped: there is no Chromium (apt-get install chromium, or CHROMIUM=/path)"
  exit 0
fi
cd console
node --test --test-concurrency=1 --test-timeout=180000 "$@" test/*.test.mjs
