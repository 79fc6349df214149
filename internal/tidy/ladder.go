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

// beside is the level of what stands beside the ladder: tools, test kits.
const beside = -1

// rooms is the ladder: the level of each package by its path in the module. A package that is not named belongs to the
// nearest one above it in the path (processor/demo to processor). Inside a room there is no order; out of it a package
// imports only what stands on a strictly lower level.
var rooms = map[string]int{
	"process": 0, "cron": 0, "migrations": 0, "proto/progressor/v1": 0, "console": 0, "docs": 0,
	"internal/durations": 0, "internal/msgpack": 0, "internal/onewrite": 0, "internal/tracing": 0, "internal/warm": 0,
	"processor": 1, "explain": 1, "flow": 1, "internal/digits": 1,
	"client": 2, "processor/remote": 2, "storage": 2,
	"wire": 3, "storage/crons": 3, "storage/jobs": 3, "storage/flows": 3, "storage/search": 3,
	"engine":       4,
	"engine/crons": 5, "engine/jobs": 5, "engine/flows": 5, "engine/bulk": 5,
	"engine/rpc":     6,
	"cmd/progressor": 7, "examples": 7,

	"internal/pgembed": beside, "storage/storagetest": beside, "engine/enginetest": beside, "internal/tidy": beside, "internal/chaos": beside,
	"internal/mutants": beside, "internal/openapi": beside, "internal/reference": beside, "deploy": beside,
}

// besideUsers says which rooms may import what stands beside the ladder, tests apart.
var besideUsers = map[string][]string{
	"internal/pgembed":    {"cmd/progressor", "storage/storagetest", "internal/chaos"},
	"storage/storagetest": {"internal/chaos"},
}

// Which rooms see what sqlc generates.
const generatedQueries = "storage/internal/dbsqlc"

// pure packages decide and compute; what they must not touch.
var (
	purePackages = []string{"process", "cron", "explain", "flow"}
	impure       = []string{"os", "net", "net/http", "os/exec", "database/sql", "log/slog", "connectrpc.com/connect",
		"github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgxpool", "github.com/prometheus/client_golang/prometheus"}
)

// Package is what `go list -json` tells of a package, as far as the ladder needs it.
type Package struct {
	ImportPath string
	Imports    []string // without those of its tests
}

// ListPackages asks go list for the packages of the module whose root directory is root. Packages without Go files
// outside their tests have no imports here.
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
			return nil, fmt.Errorf("read the answer of go list: %w", err)
		}
		packages = append(packages, pkg)
	}
}

// Ladder tells which imports go up or sideways, and which packages have no place.
func Ladder(packages []Package) []string {
	var violations []string
	for _, pkg := range packages {
		from, ok := inModule(pkg.ImportPath)
		if !ok {
			continue
		}
		if roomOf(from) == "" {
			violations = append(violations, fmt.Sprintf("%s has no place on the ladder: give it one in internal/tidy/ladder.go", from))
			continue
		}
		for _, imported := range pkg.Imports {
			if why := forbidden(from, imported); why != "" {
				violations = append(violations, fmt.Sprintf("%s imports %s: %s", from, strings.TrimPrefix(imported, module+"/"), why))
			}
		}
	}
	return violations
}

// forbidden says why one import breaks the ladder, "" where it does not.
func forbidden(from, imported string) string {
	to, ok := inModule(imported)
	if !ok {
		if slices.Contains(purePackages, from) && slices.Contains(impure, imported) {
			return "this package is pure: values in, values out"
		}
		return ""
	}
	fromRoom, toRoom := roomOf(from), roomOf(to)
	fromLevel, toLevel := rooms[fromRoom], rooms[toRoom]
	switch {
	case toRoom == "": // reported as a package of its own
		return ""
	case to == generatedQueries && !strings.HasPrefix(from+"/", "storage/"):
		return "what sqlc generates is for storage and its rooms"
	case fromRoom == toRoom:
		return ""
	case toLevel == beside:
		if slices.Contains(besideUsers[toRoom], fromRoom) {
			return ""
		}
		return "it stands beside the ladder, for tests"
	case fromLevel == beside, toLevel < fromLevel:
		return ""
	}
	return fmt.Sprintf("level %d imports level %d, and only lower ones are allowed", fromLevel, toLevel)
}

// inModule is a package's path in this module.
func inModule(importPath string) (string, bool) {
	return strings.CutPrefix(importPath, module+"/")
}

// roomOf is the nearest named package at or above one, "" where there is none.
func roomOf(pkg string) string {
	for {
		if _, ok := rooms[pkg]; ok {
			return pkg
		}
		i := strings.LastIndex(pkg, "/")
		if i < 0 {
			return ""
		}
		pkg = pkg[:i]
	}
}
