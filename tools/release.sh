#!/bin/bash
# Builds a release into dist/: a binary and its bill of materials (CycloneDX) for each platform, an
# image for Linux, and SHA256SUMS. Everything is built twice, the second time in another directory
# and with an empty build cache. The script fails unless both builds are identical.
#   tools/release.sh VERSION
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1-}
variable=github.com/progressor-engine/progressor/cmd/progressor/internal/cli.version
platforms='linux/amd64 linux/arm64 darwin/amd64 darwin/arm64'

fail() { echo "release: $*" >&2; exit 1; }
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?$ ]] ||
  fail "the version is ${version:-missing}; want one like v1.2.3 or v1.2.3-rc.1"
test -z "$(git status --porcelain)" || fail "commit or remove the changes of the working tree first"
head=$(git rev-parse HEAD)
test "$(git rev-parse -q --verify "refs/tags/$version^{commit}")" = "$head" ||
  fail "the commit is not tagged $version: git tag $version"

grep -qxF "appVersion: \"${version#v}\"" deploy/helm/progressor/Chart.yaml ||
  fail "appVersion in deploy/helm/progressor/Chart.yaml is not ${version#v}"

# The settings of this machine must not change the build. The version of Go is part of the binary,
# so Go must not download another one.
unset GOOS GOARCH GOVULNDB GOEXPERIMENT
export CGO_ENABLED=0 GOFLAGS=-mod=readonly GOWORK=off GOTOOLCHAIN=local GOFIPS140=off
export GOAMD64=v1 GOARM64=v8.0
test -z "$(go env GOEXPERIMENT)" || fail "unset GOEXPERIMENT, also in $(go env GOENV)"
./tools/govulncheck.sh required

# build SOURCE FILES builds the release of the commit in a new directory SOURCE, into FILES.
build() {
  mkdir -p "$1" "$2"
  git -c core.autocrlf=false archive HEAD | tar -x -C "$1"
  for platform in $platforms; do
    local name=progressor-${platform/\//-}
    echo "release: build $name"
    (cd "$1" && GOOS=${platform%/*} GOARCH=${platform#*/} go build -trimpath -buildvcs=false \
      -ldflags "-s -w -X $variable=$version" -o "$2/$name" ./cmd/progressor)
  done
  go -C tools/release run . "$version" "$head" "$2"
  (cd "$2" && find progressor-* image* -type f | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
}

work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
build "$work/first/source" "$work/first/dist"
echo "release: build everything again"
GOCACHE=$work/cache build "$work/second-build/source" "$work/second-build/dist"
diff -r "$work/first/dist" "$work/second-build/dist" || fail "the two builds differ"
rm -rf dist
mv "$work/first/dist" dist
cat dist/SHA256SUMS
echo "release: dist/ has $version, built twice with $(go env GOVERSION), with the same result"
