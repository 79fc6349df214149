#!/bin/bash
# Some checks need programs that take minutes to compile, such as buf. tools/checked.sum has one
# line for each of these checks: the checksum of the files that the check reads and writes, from the
# last time that the check passed. "sum.sh write NAME" writes a line; the check does this itself.
# "sum.sh check" compares all lines with the files, and names the target that runs the check again.
set -euo pipefail
cd "$(dirname "$0")/.."
sums=tools/checked.sum

# target NAME prints the target of the Makefile that writes the line NAME.
target() {
  case $1 in
  proto) echo generate ;;
  sql) echo generate-sql ;;
  chart | rules) echo "check-$1" ;;
  *) echo "sum.sh: $1: must be proto, sql, chart or rules" >&2 && return 1 ;;
  esac
}

# paths NAME prints what the check NAME reads and writes.
paths() {
  case $1 in
  proto)
    echo proto buf.yaml buf.gen.yaml docs/openapi.yaml docs/reference.md tools/{go.mod,go.sum} \
      tools/openapi.base.yaml internal/{openapi,reference,sdktypes} sdk/typescript/src/api.ts \
      sdk/python/src/progressor/api.py ':!*_test.go'
    ;;
  sql)
    echo sql migrations sqlc.yaml storage/internal/dbsqlc internal/sqlrows ':!*_test.go' \
      tools/{go.mod,go.sum,sqlc}
    ;;
  chart) echo deploy/helm deploy/grafana deploy/prometheus tools/helm ;;
  rules) echo deploy/prometheus tools/rules ;;
  esac
}

# line NAME prints the line of a check.
line() {
  local files
  # shellcheck disable=SC2046 # no path has a space
  files=$(git ls-files --cached --others --exclude-standard -- $(paths "$1") |
    LC_ALL=C sort -u | while read -r file; do if [ -f "$file" ]; then echo "$file"; fi; done)
  echo "$(paste <(echo "$files") <(git hash-object --stdin-paths <<<"$files") |
    git hash-object --stdin) $1"
}

case ${1-} in
write)
  target "${2-}" >/dev/null
  new=$(grep -v " $2\$" $sums || true; line "$2")
  sort -k2 <<<"$new" | grep . >$sums
  ;;
check)
  for name in chart proto rules sql; do
    grep -qx "$(line $name)" $sums || { echo "$sums: the files of $name have changed since" \
      "make $(target $name): run it, then commit"; exit 1; }
  done
  ;;
*) echo "usage: sum.sh write NAME | check" >&2 && exit 2 ;;
esac
