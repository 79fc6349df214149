// Package tidy holds the shape of this repository: the ladder of its packages, and the style that a reader may count on.
// Its test runs every rule over the whole tree; each rule has a test that plants a violation and sees it caught.
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

// The limits, in lines. A test may be longer than other functions, for its table is data; a test file may not.
const (
	maxFileLines         = 500
	maxFunctionLines     = 70
	maxTestFunctionLines = 140
)

// Directories that hold nothing of ours, from the repository's root or by name.
var (
	skippedPaths = map[string]bool{"bin": true, "data": true, "proto/buf": true, "console/dist": true}
	skippedNames = map[string]bool{"node_modules": true, "testdata": true}
)

// The files that are read for unfinished work.
var textExtensions = map[string]bool{
	".go": true, ".sql": true, ".proto": true, ".sh": true, ".md": true, ".yaml": true, ".yml": true,
	".ts": true, ".tsx": true, ".css": true, ".html": true, "": true,
}

var (
	generatedHeader = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	unfinished      = regexp.MustCompile(`\b(TODO|FIXME)\b`)
)

// Tree checks every file under root, the repository's own directory, and tells what breaks a rule, a line each.
func Tree(root string) ([]string, error) {
	var violations []string
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
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
		found, err := File(name, content)
		violations = append(violations, found...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("tidy: %w", err)
	}
	return violations, nil
}

// File checks one file by its path from the repository's root.
func File(name string, content []byte) ([]string, error) {
	if path.Ext(name) == ".go" && generatedHeader.Match(content) {
		return nil, nil
	}
	violations := fileName(name)
	if !strings.HasPrefix(name, "internal/tidy/") { // which has to name what it forbids
		violations = append(violations, unfinishedWork(name, content)...)
	}
	switch path.Ext(name) {
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
	return []string{fmt.Sprintf("%s: %d lines, at most %d: one file, one thing", name, lines, maxFileLines)}
}

func unfinishedWork(name string, content []byte) []string {
	var violations []string
	for i, line := range strings.Split(string(content), "\n") {
		if word := unfinished.FindString(line); word != "" {
			violations = append(violations, fmt.Sprintf("%s:%d: %s: finish it, or say in the docs what is not there", name, i+1, word))
		}
	}
	return violations
}

var (
	sqlComment = regexp.MustCompile(`--[^\n]*`)
	sqlOffset  = regexp.MustCompile(`(?i)\boffset\s+[^\s0)]`) // OFFSET 0 skips nothing: it keeps a subquery whole
)

// sqlFile checks the queries. A column of that name would have to be quoted; there is none.
func sqlFile(name string, content []byte) []string {
	if !strings.HasPrefix(name, "sql/") || !sqlOffset.Match(sqlComment.ReplaceAll(content, nil)) {
		return nil
	}
	return []string{fmt.Sprintf("%s: OFFSET reads what it skips: page by key", name)}
}
