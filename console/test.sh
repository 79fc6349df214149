#!/bin/bash
# Tests the console in Chromium against engines that it starts. Arguments are passed to node --test,
# for example --test-name-pattern=Overview.
set -euo pipefail
cd "$(dirname "$0")/.."
. console/node.sh
# The headless shell needs a quarter less CPU time than the whole browser.
find_chromium() {
  local name
  for name in chromium-headless-shell chromium chromium-browser google-chrome; do
    command -v "$name" && return
  done
  true
}
export CHROMIUM=${CHROMIUM:-$(find_chromium)}
if [ -z "$CHROMIUM" ]; then
  echo "test of the console: skipped: needs Chromium (apt-get install chromium-headless-shell, or" \
    "CHROMIUM=/path)"
  exit 0
fi
cd console
# Two files run at a time, each with its own engine and browser, because the tests often wait. The
# timeout applies to each file.
node --test --test-concurrency=2 --test-timeout=360000 "$@" test/*.test.mjs
