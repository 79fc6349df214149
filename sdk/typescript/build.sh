#!/bin/bash
# Compiles the TypeScript SDK with the compiler of the console. With --check, it only compares the
# result with sdk/typescript/dist.
set -euo pipefail
cd "$(dirname "$0")/../.."
. console/node.sh
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
console/node_modules/.bin/tsc -p sdk/typescript --outDir "$new"
if [ "${1:-}" = --check ]; then
  diff -rq "$new" sdk/typescript/dist ||
    { echo "sdk/typescript/dist is out of date: run make sdk, then commit"; exit 1; }
  exit
fi
rm -rf sdk/typescript/dist
cp -r "$new" sdk/typescript/dist
chmod 755 sdk/typescript/dist
