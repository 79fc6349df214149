package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// mutant is one planted bug.
type mutant struct {
	name     string
	breaks   string // the rule that it breaks
	file     string // Go, a migration, or a statement in sql
	old      string // occurs in file exactly once
	planted  string
	packages string // whose tests are to catch it, as for go test
	run      string // -run; if empty, all tests of the packages
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := start(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	only := flags.String("run", "", "plant only bugs whose name contains `TEXT`")
	list := flags.Bool("list", false, "list the bugs")
	parallel := flags.Int("parallel", 1, "test `N` bugs at the same time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *parallel < 1 {
		return fmt.Errorf("-parallel %d: must be at least 1", *parallel)
	}
	selected := slices.DeleteFunc(all(), func(m mutant) bool { return !strings.Contains(m.name, *only) })
	if len(selected) == 0 {
		return fmt.Errorf("-run %q: there is no such bug; -list names all", *only)
	}
	if *list {
		for _, m := range selected {
			fmt.Fprintf(out, "%-24s %s\n", m.name, m.breaks)
		}
		return nil
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	var (
		group    errgroup.Group
		mu       sync.Mutex // guards out and survived
		survived []string
	)
	group.SetLimit(*parallel)
	for _, m := range selected {
		group.Go(func() error {
			began := time.Now()
			caught, err := m.plant(ctx, root)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				survived = append(survived, m.name)
				caught = "ERROR: " + err.Error()
			case caught == "":
				survived = append(survived, m.name)
				caught = "SURVIVED"
			}
			fmt.Fprintf(out, "%-24s %-45s %5.1fs\n", m.name, caught, time.Since(began).Seconds())
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if len(survived) > 0 {
		return fmt.Errorf("%d of %d were not caught: %s", len(survived), len(selected), strings.Join(survived, ", "))
	}
	fmt.Fprintf(out, "%d planted, all caught\n", len(selected))
	return nil
}

// all returns the bugs of all subjects.
func all() []mutant {
	return slices.Concat(mutants, fencedMutants, changeMutants, sinkMutants, doctorMutants, kafkaMutants,
		cronMutants, jobMutants, jobEventMutants, flowMutants, schedulingMutants, failoverMutants,
		livenessMutants, connectionMutants, limitMutants, namespaceMutants, securityMutants, secretMutants,
		codecMutants, oidcMutants, loginMutants, erasureMutants, workerMutants, startMutants, commandMutants,
		accessMutants, sdkMutants, cliMutants, errorMutants, userMutants)
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// plant runs the tests over the planted bug. It returns the first test that failed, or "" if none
// failed.
func (m *mutant) plant(ctx context.Context, root string) (caught string, err error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file, changed, err := m.change(root)
	if err != nil {
		return "", err
	}
	over, overlay := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, file): over}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.WriteFile(over, changed, 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
		return "", err
	}
	args := []string{"test", "-overlay", overlay, "-count=1", "-failfast", "-timeout", "2m", "-vet=off"}
	if m.run != "" {
		args = append(args, "-run", m.run)
	}
	test := exec.CommandContext(ctx, "go", append(args, strings.Fields(m.packages)...)...)
	test.Dir = root
	output, err := test.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err == nil:
		return "", nil
	case bytes.Contains(output, []byte("[build failed]")) || bytes.Contains(output, []byte("[setup failed]")):
		return "", fmt.Errorf("what is planted does not compile:\n%s", output)
	}
	if name := failed.FindSubmatch(output); name != nil {
		return string(name[1]), nil
	}
	if bytes.Contains(output, []byte("panic: test timed out")) {
		return "a test that never ended", nil
	}
	return "", fmt.Errorf("go test: %w:\n%s", err, output)
}

// change returns a file of the module with the bug in it. For a statement in sql, this is the code
// that sqlc has generated.
func (m *mutant) change(root string) (file string, changed []byte, err error) {
	source, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", nil, err
	}
	if n := bytes.Count(source, []byte(m.old)); n != 1 {
		return "", nil, fmt.Errorf("%q occurs %d times in %s, want once: the source has changed", m.old, n, m.file)
	}
	if path.Dir(m.file) != "sql" {
		return m.file, bytes.Replace(source, []byte(m.old), []byte(m.planted), 1), nil
	}
	file = "storage/internal/dbsqlc/" + path.Base(m.file) + ".go"
	code, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return "", nil, err
	}
	changed, err = m.changeStatement(string(source), string(code))
	return file, changed, err
}

var (
	statementName   = regexp.MustCompile(`(?m)^-- name: .*`)
	sqlComment      = regexp.MustCompile(`--.*`)
	namedParameter  = regexp.MustCompile(`@\w+`)
	numberParameter = regexp.MustCompile(`\$\d+`)
)

// changeStatement returns the code that sqlc has generated from a source, with the bug in it. sqlc
// removes comments and numbers the parameters, but changes little else.
func (m *mutant) changeStatement(source, code string) ([]byte, error) {
	above, _, _ := strings.Cut(source, m.old)
	names := statementName.FindAllStringIndex(above, -1)
	if names == nil {
		return nil, fmt.Errorf("%s: %q is not in a statement", m.file, m.old)
	}
	begin, end := names[len(names)-1][0], names[len(names)-1][1]
	name := source[begin:end] + "\n"
	from, _, _ := strings.Cut(source[end:], "\n-- name: ")
	before, rest, found := strings.Cut(code, name)
	to, after, _ := strings.Cut(rest, "`")
	named := namedParameter.FindAllString(sqlComment.ReplaceAllString(from, ""), -1)
	numbered := numberParameter.FindAllString(to, -1)
	if !found || len(named) != len(numbered) {
		return nil, fmt.Errorf("%s: the generated code is not of this source: %q", m.file, name)
	}
	numbers := map[string]string{}
	for n, parameter := range named {
		numbers[parameter] = numbered[n]
	}
	generated := func(text string) string {
		return namedParameter.ReplaceAllStringFunc(text, func(p string) string { return numbers[p] })
	}
	if n := strings.Count(to, generated(m.old)); n != 1 {
		return nil, fmt.Errorf("%q occurs %d times in the code of %q, want once", generated(m.old), n, name)
	}
	to = strings.Replace(to, generated(m.old), generated(m.planted), 1)
	return []byte(before + name + to + "`" + after), nil
}
