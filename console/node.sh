#!/bin/bash
# Sees to Node and to the packages of package-lock.json. Sourced by the scripts beside it; ends them, saying what is missing, where there is
# no Node.
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
  echo "$(basename "$0" .sh) of the console: skipped: there is no Node and npm (Node 20 or newer)"
  exit 0
fi
if ! cmp -s console/package-lock.json console/node_modules/.installed; then
  (cd console && npm ci --no-audit --no-fund --loglevel=error)
  cp console/package-lock.json console/node_modules/.installed
fi
