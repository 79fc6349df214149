#!/bin/bash
# Checks that console/dist and the TypeScript clients are up to date.
set -euo pipefail
cd "$(dirname "$0")/.."
. console/node.sh
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
console/node_modules/.bin/buf generate --template console/buf.gen.yaml -o "$new"
(cd console && npx --no-install tsc --noEmit &&
  npx --no-install vite build --logLevel warn --outDir "$new/dist" --emptyOutDir)
for built in src/gen dist; do
  made=$new/${built/src/console\/src}
  if ! diff -rq "$made" "console/$built"; then
    echo "console/$built is out of date: run make console, then commit"
    exit 1
  fi
done
