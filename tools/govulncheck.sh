#!/bin/bash
# Runs govulncheck and keeps apart the two ways in which it can end badly: vulnerabilities that it found, which fail, and
# a database that this machine cannot reach, which is said in one line and passes, for there is nothing to compare with.
set -uo pipefail

output=$(go tool -modfile=tools/go.mod govulncheck ./... 2>&1)
status=$?
if [ $status -ne 0 ] &&
  grep -qE '^govulncheck: fetching vulnerabilities: .*(dial tcp|no such host|i/o timeout|TLS handshake|connection refused|proxyconnect)' <<<"$output" &&
  ! grep -q '^Vulnerability #' <<<"$output"; then
  echo "govulncheck: NOT CHECKED, the vulnerability database cannot be reached from this machine"
  exit 0
fi
echo "$output"
exit $status
