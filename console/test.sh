#!/bin/bash
# Tests the console in Chromium against engines that it starts. Arguments are passed to node --test,
# for example --test-name-pattern=Overview.
set -euo pipefail
cd "$(dirname "$0")/.."
. console/node.sh
find_chromium() {
  command -v chromium || command -v chromium-browser || command -v google-chrome || true
}
export CHROMIUM=${CHROMIUM:-$(find_chromium)}
if [ -z "$CHROMIUM" ]; then
  echo "test of the console: skipped: needs Chromium (apt-get install chromium, or CHROMIUM=/path)"
  exit 0
fi
cd console
# Two files run at a time, each with its own engine and browser, because the tests often wait. The
# timeout is that of a file.
node --test --test-concurrency=2 --test-timeout=360000 "$@" test/*.test.mjs
