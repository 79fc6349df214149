package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

// bugVariable is the environment variable that selects the bug of a test program, by its number.
const bugVariable = "PLANTED_BUG"

// programs are test programs that contain many bugs, at most one of which is switched on.
// Building the tests of a package takes ten times as long as running those that catch a bug.
type programs struct {
	dir    string            // directory of the programs
	root   string            // root directory of the module
	bugs   []mutant          // bugs that the programs contain
	others []mutant          // bugs that must be planted alone
	number map[string]int    // the number of each bug, by name
	files  map[string]string // the program of each package
	tests  map[string]string // what -test.run selects in each package, for all of its bugs
}

// buildPrograms writes the switched files of all bugs into dir, and builds the tests that are to
// catch them. A bug that does not compile is planted alone, which reports its error.
func buildPrograms(ctx context.Context, root, dir string, bugs []mutant) (*programs, error) {
	p := &programs{dir: dir, root: root, number: map[string]int{}}
	for n, m := range bugs {
		p.number[m.name] = n + 1
	}
	broken := map[int]bool{}
	for {
		where, err := p.write(bugs, broken)
		if err != nil {
			return nil, err
		}
		output, err := p.build(ctx)
		if err == nil {
			return p, nil
		}
		if !blame(output, where, broken) {
			return nil, fmt.Errorf("build the tests with all bugs: %w:\n%s", err, output)
		}
	}
}

// write writes the switched files and the overlay. It returns the lines of each bug by file.
func (p *programs) write(bugs []mutant, broken map[int]bool) (map[string][]lines, error) {
	p.bugs, p.others = nil, nil
	files := map[string]*switchedFile{}
	for _, m := range bugs {
		n := p.number[m.name]
		file, src, changed, err := m.change(p.root)
		was, is, ok := changedDeclaration(file, src, changed)
		if err != nil || !ok || broken[n] {
			p.others = append(p.others, m)
			continue
		}
		p.bugs = append(p.bugs, m)
		if files[file] == nil {
			files[file] = &switchedFile{src: src, decls: map[int][]switched{}}
		}
		files[file].decls[was.index] = append(files[file].decls[was.index], switched{n, was, is})
	}
	replace, where := map[string]string{}, map[string][]lines{}
	for n, file := range slices.Sorted(maps.Keys(files)) {
		code, at := files[file].source()
		over := filepath.Join(p.dir, fmt.Sprintf("switched%d.go", n))
		selector := filepath.Join(filepath.Dir(file), "planted_bug.go")
		overSelector := filepath.Join(p.dir, fmt.Sprintf("planted%d.go", n))
		replace[filepath.Join(p.root, file)], where[over] = over, at
		replace[filepath.Join(p.root, selector)] = overSelector
		err := errors.Join(os.WriteFile(over, code, 0o600), os.WriteFile(overSelector, selectorCode(code), 0o600))
		if err != nil {
			return nil, err
		}
	}
	return where, writeOverlay(p.overlay(), replace)
}

func (p *programs) overlay() string { return filepath.Join(p.dir, "overlay.json") }

var packageClause = regexp.MustCompile(`(?m)^package \w+`)

// selectorCode returns a file that declares the variable plantedBug in the package of the given
// code.
func selectorCode(code []byte) []byte {
	return fmt.Appendf(nil, "%s\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar %s, _ = strconv.Atoi(os.Getenv(%q))\n",
		packageClause.Find(code), planted, bugVariable)
}

// build builds the tests of all packages that are to catch a bug.
func (p *programs) build(ctx context.Context) (output []byte, err error) {
	p.files, p.tests = map[string]string{}, map[string]string{}
	for _, m := range p.bugs {
		for _, pkg := range strings.Fields(m.packages) {
			run, others := m.run, p.tests[pkg]
			switch {
			case p.files[pkg] == "":
				p.files[pkg] = filepath.Join(p.dir, fmt.Sprintf("program%d", len(p.files)))
			case run == "" || others == "":
				run = ""
			default:
				run = others + "|" + run
			}
			p.tests[pkg] = run
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(p.files)) {
		args := []string{"test", "-c", "-vet=off", "-overlay", p.overlay(), "-o", p.files[pkg], pkg}
		build := exec.CommandContext(ctx, "go", args...)
		build.Dir = p.root
		if output, err := build.CombinedOutput(); err != nil {
			return output, err
		}
	}
	return nil, nil
}

var compileError = regexp.MustCompile(`(?m)^(\S+\.go):(\d+):`)

// blame adds to broken each bug whose code contains a compiler error. It reports whether it has
// added a bug.
func blame(output []byte, where map[string][]lines, broken map[int]bool) bool {
	before := len(broken)
	for _, found := range compileError.FindAllSubmatch(output, -1) {
		line, err := strconv.Atoi(string(found[2]))
		for _, l := range where[string(found[1])] {
			if err == nil && l.first <= line && line <= l.last {
				broken[l.bug] = true
			}
		}
	}
	return len(broken) > before
}

// testWithoutBugs runs all tests that are to catch a bug, without any bug. It returns the errors of
// the packages whose tests fail.
func (p *programs) testWithoutBugs(ctx context.Context, parallel int) (map[string]error, error) {
	var (
		group errgroup.Group
		mu    sync.Mutex
		fail  = map[string]error{}
	)
	group.SetLimit(min(parallel, runtime.NumCPU()))
	for pkg := range p.files {
		group.Go(func() error {
			output, err := p.run(ctx, pkg, p.tests[pkg], 0, "-test.timeout=20m")
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				fail[pkg] = fmt.Errorf("%s: the tests fail without a bug: %w:\n%s", pkg, err, output)
			}
			return ctx.Err()
		})
	}
	return fail, group.Wait()
}

// test switches a bug on. It returns the first test that failed, or "" if none failed.
func (p *programs) test(ctx context.Context, m mutant) (caught string, err error) {
	for _, pkg := range strings.Fields(m.packages) {
		output, err := p.run(ctx, pkg, m.run, p.number[m.name], "-test.timeout=2m", "-test.failfast")
		if caught, err := firstFailure(ctx, output, err); err != nil || caught != "" {
			return caught, err
		}
	}
	return "", nil
}

// run runs the tests of a package in its directory, as go test does.
func (p *programs) run(ctx context.Context, pkg, tests string, bug int, args ...string) ([]byte, error) {
	test := exec.CommandContext(ctx, p.files[pkg], append(args, "-test.paniconexit0", "-test.run="+tests)...)
	test.Dir = filepath.Join(p.root, pkg)
	test.Env = append(os.Environ(), fmt.Sprintf("%s=%d", bugVariable, bug))
	var output bytes.Buffer
	test.Stdout, test.Stderr = &output, &output
	err := test.Run()
	return output.Bytes(), err
}
