#!/bin/bash
# Installs the packages of package-lock.json. The scripts in this directory source it. Without Node,
# node.sh prints a message and ends the script that sources it.
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
  echo "$0: skipped: needs Node (20 or newer) and npm"
  exit 0
fi
# If two scripts run at once, the second one waits for the first one.
exec 9<console
if command -v flock >/dev/null; then flock 9; fi
if ! cmp -s console/package-lock.json console/node_modules/.installed; then
  (cd console && npm ci --no-audit --no-fund --loglevel=error)
  cp console/package-lock.json console/node_modules/.installed
fi
exec 9<&-
