#!/bin/bash
# Generates code and docs into an empty directory, and compares them with the files at the given
# paths. It writes nothing into the tree, because tests may be running.
set -euo pipefail
cd "$(dirname "$0")/.."
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
mkdir "$new"/{cron,docs}
ln -s "$PWD"/{migrations,sql,sqlc.yaml,tools} "$new"
make --no-print-directory generate OUT="$new"
outdated=
for path in "$@"; do
  diff -rq --exclude='*.proto' --exclude='*_test.go' "$path" "$new/$path" || outdated=1
done
test -z "$outdated" ||
  { echo "generated code is out of date: run make generate, then commit"; exit 1; }
