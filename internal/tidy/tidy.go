package tidy

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// The limits, in lines. Test functions may be longer than others, because their tables are data.
const (
	maxFileLines         = 500
	maxFunctionLines     = 70
	maxTestFunctionLines = 140
	maxVersionLines      = 80 // a section of CHANGELOG.md
)

// maxFields is the number of fields that a struct may have.
const maxFields = 20

// manyFields contains structs that have, or once had, more than maxFields fields, with their number
// of fields. The numbers may only decrease, and no struct may be added: split it by the purpose of
// its fields.
var manyFields = map[string]int{
	"internal/bench.Command": 36, "internal/bench.Row": 21,
	"processor/processortest.Process": 18,
}

// maxPageLines contains the pages that must stay short.
var maxPageLines = map[string]int{
	"README.md": 200, "ARCHITECTURE.md": 150, "CONTRIBUTING.md": 60, "docs/performance.md": 150,
}

// Directories that contain no hand-written files, by path or by name.
var (
	skippedPaths = map[string]bool{"bin": true, "data": true, "proto/buf": true, "console/dist": true}
	skippedNames = map[string]bool{"node_modules": true, "testdata": true}
)

// textExtensions are the extensions of the files that are read.
var textExtensions = map[string]bool{
	".go": true, ".sql": true, ".proto": true, ".sh": true, ".md": true, ".yaml": true, ".yml": true,
	".ts": true, ".tsx": true, ".css": true, ".html": true, "": true,
}

var (
	generatedHeader = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	unfinished      = regexp.MustCompile(`\b(TODO|FIXME)\b`)
)

// Tree checks every file under root, the root directory of the repository, and returns one line for
// each violation.
func Tree(root string) ([]string, error) {
	var violations []string
	err := walk(root, func(name string, content []byte) error {
		found, err := File(name, content)
		violations = append(violations, found...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("tidy: %w", err)
	}
	return violations, nil
}

// walk calls f for each text file under root, with its path from root and its content. It skips
// hidden directories and those in skippedPaths and skippedNames.
func walk(root string, f func(name string, content []byte) error) error {
	return filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if entry.IsDir() {
			hidden := name != "." && strings.HasPrefix(path.Base(name), ".")
			if hidden || skippedPaths[name] || skippedNames[path.Base(name)] {
				return filepath.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() || !textExtensions[path.Ext(name)] {
			return nil
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return f(name, content)
	})
}

// File checks one file. name is its path from the root directory of the repository.
func File(name string, content []byte) ([]string, error) {
	if path.Ext(name) == ".go" && generatedHeader.Match(content) {
		return nil, nil
	}
	violations := fileName(name)
	if !strings.HasPrefix(name, "internal/tidy/") { // it contains the banned words
		violations = append(violations, unfinishedWork(name, content)...)
	}
	violations = append(violations, prose(name, content)...)
	switch path.Ext(name) {
	case ".md":
		violations = append(violations, pageLength(name, content)...)
	case ".go":
		violations = append(violations, fileLength(name, content)...)
		found, err := goFile(name, content)
		return append(violations, found...), err
	case ".sql":
		violations = append(violations, fileLength(name, content)...)
		violations = append(violations, sqlFile(name, content)...)
	}
	return violations, nil
}

func fileLength(name string, content []byte) []string {
	lines := bytes.Count(content, []byte("\n"))
	if lines <= maxFileLines {
		return nil
	}
	return []string{fmt.Sprintf("%s: %d lines, at most %d: split it by subject", name, lines, maxFileLines)}
}

func pageLength(name string, content []byte) []string {
	if name == "CHANGELOG.md" {
		return changelogLength(name, content)
	}
	limit, limited := maxPageLines[name]
	if lines := bytes.Count(content, []byte("\n")); limited && lines > limit {
		return []string{fmt.Sprintf("%s: %d lines, at most %d", name, lines, limit)}
	}
	return nil
}

// changelogLength checks the number of lines of each version. A version begins with its heading.
func changelogLength(name string, content []byte) []string {
	var violations []string
	for section := range strings.SplitSeq("\n"+string(content), "\n## ") {
		lines := strings.Count(strings.TrimSpace(section), "\n") + 1
		if lines > maxVersionLines {
			version, _, _ := strings.Cut(section, "\n")
			violations = append(violations, fmt.Sprintf("%s: %s has %d lines, at most %d: merge lines of one subject",
				name, version, lines, maxVersionLines))
		}
	}
	return violations
}

func unfinishedWork(name string, content []byte) []string {
	var violations []string
	for i, line := range strings.Split(string(content), "\n") {
		if word := unfinished.FindString(line); word != "" {
			violations = append(violations, fmt.Sprintf("%s:%d: %s: finish it, or document what is missing",
				name, i+1, word))
		}
	}
	return violations
}
