package tidy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

const module = "github.com/progressor-engine/progressor"

// commandLine is the base of the commands of the program.
const commandLine = "cmd/progressor/internal/cli"

// tooling is the level of tools and test kits, which are outside the layers.
const tooling = -1

// groupLevels contains the level of each group of packages, by the path of its root package in the
// module. A package that is not listed belongs to the nearest listed one above it in the path
// (processor/demo to processor). Packages of one group may import each other. Other imports must be
// of a strictly lower level.
var groupLevels = map[string]int{
	"process": 0, "cron": 0, "migrations": 0, "proto/progressor/v1": 0, "console": 0, "docs": 0,
	"internal/budget": 0, "internal/durations": 0, "internal/elements": 0, "internal/msgpack": 0,
	"internal/onewrite":  0,
	"internal/requestid": 0, "internal/spelling": 0, "internal/tracing": 0, "internal/warm": 0,
	"internal/checkpoints": 1, "internal/parked": 1,
	"processor": 2, "explain": 2, "flow": 2, "internal/digits": 2, "storage": 2,
	"client": 3, "processor/remote": 3,
	"storage/changes": 3, "storage/crons": 3, "storage/jobs": 3, "storage/flows": 3, "storage/insight": 3,
	"storage/erasure": 3, "storage/pull": 3,
	"wire": 4, "storage/search": 4, "engine/secrets": 4, "internal/conformance": 4,
	"engine":       5,
	"engine/crons": 6, "engine/jobs": 6, "engine/flows": 6, "engine/bulk": 6, "engine/insight": 6, "engine/pull": 6,
	"engine/sinks": 6, "engine/streams": 6, "engine/auth": 6,
	"engine/rpc":     7,
	"internal/bench": 8, "examples": 8,

	// The command line: its base, the commands of each subject, all commands, and the programs.
	commandLine + "/output": 9, commandLine + "/protoyaml": 10, commandLine + "/configfile": 11,
	commandLine + "/login": 11,
	commandLine:            12,
	commandLine + "/admin": 13, commandLine + "/cron": 13, commandLine + "/deploy": 13, commandLine + "/flow": 13,
	commandLine + "/job": 13, commandLine + "/process": 13, commandLine + "/sink": 13, commandLine + "/worker": 13,
	commandLine + "/server":   14,
	commandLine + "/commands": 15,
	"cmd/progressor":          16, "cmd/progressor/internal/manual": 16, "cmd/progressor-vet": 16,

	"internal/pgembed": tooling, "storage/storagetest": tooling, "engine/enginetest": tooling,
	commandLine + "/clitest": tooling,
	"internal/tidy":          tooling, "internal/chaos": tooling, "internal/mutants": tooling,
	"internal/openapi": tooling, "internal/testca": tooling, "internal/testissuer": tooling,
	"internal/reference": tooling, "internal/sdktypes": tooling, "internal/sqlrows": tooling, "deploy": tooling,
	"sdk": tooling,
}

// toolingUsers lists the groups that may import a package of the level tooling outside tests.
var toolingUsers = map[string][]string{
	"internal/pgembed":    {commandLine + "/server", "internal/bench", "storage/storagetest", "internal/chaos"},
	"storage/storagetest": {"internal/chaos", "engine/enginetest"},
}

// Only storage and its subpackages may import the code that sqlc generates.
const generatedQueries = "storage/internal/dbsqlc"

// Pure packages only compute: they must not import impure packages or use the clock.
var (
	purePackages = []string{"process", "cron", "explain", "flow", "engine/sinks/format"}
	clock        = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}
	impure       = []string{"math/rand", "math/rand/v2", "crypto/rand", "os", "net", "net/http", "os/exec",
		"database/sql", "log/slog", "connectrpc.com/connect", "github.com/jackc/pgx/v5",
		"github.com/jackc/pgx/v5/pgxpool", "github.com/prometheus/client_golang/prometheus"}
)

// Package is the part of the output of `go list -json` that Ladder needs.
type Package struct {
	ImportPath string
	Imports    []string // without those of its tests
}

// ListPackages lists the packages of the module whose root directory is root. Imports of test files
// are not included.
func ListPackages(root string) ([]Package, error) {
	list := exec.Command("go", "list", "-e", "-json=ImportPath,Imports", "./...")
	list.Dir = root
	var stderr bytes.Buffer
	list.Stderr = &stderr
	output, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w: %s", root, err, stderr.Bytes())
	}
	var packages []Package
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var pkg Package
		if err := decoder.Decode(&pkg); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the output of go list: %w", err)
		}
		packages = append(packages, pkg)
	}
}

// Ladder returns one line for each import that is not allowed (see forbidden), and for each package
// without a level.
func Ladder(packages []Package) []string {
	var violations []string
	for _, pkg := range packages {
		from, ok := inModule(pkg.ImportPath)
		if !ok {
			continue
		}
		if groupOf(from) == "" {
			violations = append(violations,
				fmt.Sprintf("%s has no level: add it to groupLevels in internal/tidy/ladder.go", from))
			continue
		}
		for _, imported := range pkg.Imports {
			if why := forbidden(from, imported); why != "" {
				violations = append(violations,
					fmt.Sprintf("%s imports %s: %s", from, strings.TrimPrefix(imported, module+"/"), why))
			}
		}
	}
	return violations
}

// forbidden returns why an import is not allowed, or "".
func forbidden(from, imported string) string {
	to, ok := inModule(imported)
	if !ok {
		if slices.Contains(purePackages, from) && slices.Contains(impure, imported) {
			return from + " is pure, so it may not import this package"
		}
		return ""
	}
	fromGroup, toGroup := groupOf(from), groupOf(to)
	fromLevel, toLevel := groupLevels[fromGroup], groupLevels[toGroup]
	switch {
	case toGroup == "": // Ladder reports it as a package without a level.
		return ""
	case to == generatedQueries && !strings.HasPrefix(from+"/", "storage/"):
		return "only storage and its subpackages may import generated queries"
	case fromGroup == toGroup:
		return ""
	case toLevel == tooling:
		if slices.Contains(toolingUsers[toGroup], fromGroup) {
			return ""
		}
		return "it is only for tests and the groups in toolingUsers"
	case fromLevel == tooling, toLevel < fromLevel:
		return ""
	}
	return fmt.Sprintf("level %d imports level %d, and only lower ones are allowed", fromLevel, toLevel)
}

// inModule returns the path of a package relative to the module, and reports whether the package
// belongs to the module.
func inModule(importPath string) (string, bool) {
	return strings.CutPrefix(importPath, module+"/")
}

// groupOf returns the nearest listed package at or above pkg, or "".
func groupOf(pkg string) string {
	for {
		if _, ok := groupLevels[pkg]; ok {
			return pkg
		}
		i := strings.LastIndex(pkg, "/")
		if i < 0 {
			return ""
		}
		pkg = pkg[:i]
	}
}
