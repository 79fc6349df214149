#!/bin/bash
# Measures how long each page of the console takes to show its content in a large database, or with
# PROCESSES, RUNS and WORKERS in a smaller one. It opens each page ROUNDS times.
set -euo pipefail
cd "$(dirname "$0")/.."
. console/node.sh
CHROMIUM=${CHROMIUM:-$(command -v chromium-headless-shell || command -v chromium)}
export CHROMIUM
cd console
node test/speed.mjs
