# `make help` lists the targets. They need Go, bash and git; those of the console also need Node. The
# Makefile installs the binaries of PostgreSQL if they are missing, and builds tools from tools/go.mod.
SHELL := /bin/bash
.DEFAULT_GOAL := help

GO ?= go
TOOL := $(GO) tool -modfile=tools/go.mod
# With -trimpath, compiled code does not depend on the directory, so clones share the build cache.
export GOFLAGS := $(strip $(shell $(GO) env GOFLAGS) -trimpath)
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# Passed to the program by run and bench, for example: make bench ARGS='--workload start --clients 128'
ARGS ?=
# Duration and seed of chaos. 0 chooses a seed and prints it, so that the run can be repeated.
SECONDS ?= 60
SEED ?= 0
# chaos injects only the faults whose name contains this.
FAULT ?=
# mutants plants the bugs whose name contains this.
MUTANT ?=
# The packages to test, for example: make test PKG=./storage/... The default is all packages. The
# slowest ones come first, so that none of them runs alone at the end.
PKG ?= ./cmd/progressor ./storage ./engine ./engine/jobs ./internal/bench ./engine/flows ./...

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | \
	  while IFS=$$'\t' read -r name text; do printf '  %-12s %s\n' "$$name" "$$text"; done

.PHONY: run
run: postgres build ## Start everything on this machine: private PostgreSQL, engine, demo (ARGS='--listen ADDR --data-dir DIR')
	./bin/progressor dev --demo-flow $(ARGS)

.PHONY: test
test: postgres ## Run all tests (PKG=./storage/... for some)
	@# verify runs vet. Test programs are linked faster without debug information. Results of earlier
	@# runs are not used, because most tests depend on PostgreSQL.
	$(GO) test -vet=off -ldflags=-w -count=1 -timeout 40m $(PKG)

.PHONY: race
race: postgres ## Run all tests with the race detector
	$(GO) test -race -timeout 40m $(PKG)

.PHONY: test-portable
test-portable: postgres ## Run the tests on databases without NOTIFY and advisory locks (PKG=./storage/... for some)
	TEST_PORTABLE=1 $(GO) test -timeout 40m $(PKG)

.PHONY: generate
generate: ## Regenerate code and docs: protobuf, Connect, OpenAPI, reference.md, cli.md, types of the SDKs, sqlc
	$(TOOL) buf format --diff --exit-code
	$(TOOL) buf lint
	@# The OpenAPI plugin prints a useless warning about a field that it does not set.
	$(TOOL) buf generate 2> >(grep -v 'WARN field not found field=Examples' >&2)
	$(GO) run ./internal/openapi docs/openapi.yaml
	@$(MAKE) --no-print-directory generate-sql
	$(GO) run ./cmd/progressor/internal/manual docs/cli.md
	cp "$$(go env GOROOT)/lib/time/zoneinfo.zip" cron/zoneinfo.zip && chmod 644 cron/zoneinfo.zip
	@# The generators do not delete the code of deleted files.
	@for code in proto/progressor/v1/*.pb.go; do name=$${code##*/}; \
	  test -f proto/progressor/v1/$${name%.pb.go}.proto || rm -v $$code; done
	@for code in proto/progressor/v1/progressorv1connect/*.connect.go; do name=$${code##*/}; \
	  test -f proto/progressor/v1/$${name%.connect.go}.proto || rm -v $$code; done
	@./tools/sum.sh write proto

.PHONY: generate-sql
generate-sql: ## Regenerate only the code of the statements in sql/
	$(TOOL) sqlc generate
	@for code in storage/internal/dbsqlc/*.sql.go; do name=$${code##*/}; \
	  test -f sql/$${name%.go} || rm -v $$code; done
	$(GO) run ./internal/sqlrows storage/internal/dbsqlc
	@./tools/sum.sh write sql

.PHONY: console
console: ## Rebuild the web console and its clients (needs Node; commit the result)
	@./console/build.sh

.PHONY: sdk
sdk: ## Compile the TypeScript SDK (needs Node; commit the result)
	@./sdk/typescript/build.sh

.PHONY: test-console
test-console: postgres build ## Test the web console in Chromium (needs Node; ARGS=--test-name-pattern=TEXT)
	@./console/test.sh $(ARGS)

.PHONY: pictures
pictures: postgres build ## Retake the screenshots of the docs (needs Node and Chromium; check each of them)
	@./console/pictures.sh

.PHONY: console-speed
console-speed: postgres build ## Measure the pages with 100,000 processes (needs Node and Chromium; PROCESSES, RUNS, WORKERS, ROUNDS)
	@./console/speed.sh

.PHONY: verify
verify: verify-format verify-vet verify-sums verify-console verify-sdk verify-tidy lint verify-vulnerabilities ## Run all checks that need no server
	@echo "verify: ok"

.PHONY: lint
lint: ## Run golangci-lint
	$(TOOL) golangci-lint run ./...

.PHONY: check-chart
check-chart: ## Lint and render the Helm chart, after each change of it
	@./tools/helm/check.sh
	@./tools/sum.sh write chart

.PHONY: check-rules
check-rules: ## Check the alert rules of Prometheus, after each change of them
	$(GO) -C tools/rules run . $(CURDIR)/deploy/prometheus/alerts.yaml
	$(GO) -C tools/rules test -count=1 ./...
	@./tools/sum.sh write rules

.PHONY: bench
bench: postgres build ## Measure this engine against the baseline (ARGS=flags of progressor bench)
	./bin/progressor bench $(ARGS)

.PHONY: bench-peers
bench-peers: postgres build ## Compare with River, graphile-worker and DBOS (needs Node; ARGS='-compare functions')
ifeq (,$(findstring -compare functions,$(ARGS)))
	npm ci --prefix tools/peers/graphile --silent --no-audit --no-fund
endif
	cd tools/peers && $(GO) run . -progressor ../../bin/progressor -graphile graphile $(ARGS)

.PHONY: chaos
chaos: postgres ## Inject faults for SECONDS under load, then check every invariant (SECONDS=60 SEED=0)
	$(GO) test ./internal/chaos -run TestChaos -count=1 -v -timeout 0 \
	  -args -chaos.duration=$(SECONDS)s -chaos.seed=$(SEED) -chaos.fault="$(FAULT)"

.PHONY: mutants
mutants: postgres ## Plant bugs in the engine, four at a time: the tests must catch each (MUTANT=part of a name)
	$(GO) run ./internal/mutants -parallel 4 -run '$(MUTANT)'

.PHONY: release
release: ## Build a release into dist/: binaries, image, bills of materials, checksums (VERSION=v1.2.3, the tag of HEAD)
	@./tools/release.sh $(VERSION)

# Targets that other targets depend on.

.PHONY: build
build:
	$(GO) build -ldflags '-X github.com/progressor-engine/progressor/cmd/progressor/internal/cli.version=$(VERSION)' -o bin/progressor ./cmd/progressor

.PHONY: postgres
postgres:
	@./internal/pgembed/install.sh

.PHONY: verify-format
verify-format:
	@files=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
	  test -z "$$files" || { echo "gofmt: not formatted:"; echo "$$files"; exit 1; }

.PHONY: verify-vet
verify-vet:
	$(GO) vet ./...
	@# The durable functions of the examples must have no finding.
	$(GO) build -o bin/progressor-vet ./cmd/progressor-vet
	$(GO) vet -vettool=$(CURDIR)/bin/progressor-vet ./examples/...

.PHONY: verify-sums
verify-sums:
	@./tools/sum.sh check

.PHONY: verify-console
verify-console:
	@./console/verify.sh

.PHONY: verify-sdk
verify-sdk:
	@./sdk/typescript/build.sh --check

.PHONY: verify-tidy
verify-tidy:
	$(GO) mod tidy -diff
	$(GO) test -count=1 ./internal/tidy

.PHONY: verify-vulnerabilities
verify-vulnerabilities:
	@./tools/govulncheck.sh
