package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

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
		return fmt.Errorf("-run %q: no bug has such a name: use -list to see all names", *only)
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
	r := runner{root: root, parallel: *parallel, out: out}
	alone := selected
	if len(selected) >= fewBugs {
		if alone, err = r.plantTogether(ctx, selected); err != nil {
			return err
		}
	}
	if err := r.plantAlone(ctx, alone); err != nil {
		return err
	}
	if len(r.survived) > 0 {
		names := strings.Join(r.survived, ", ")
		return fmt.Errorf("%d of %d were not caught: %s", len(r.survived), len(selected), names)
	}
	fmt.Fprintf(out, "%d planted, all caught\n", len(selected))
	return nil
}

// fewBugs is the number of bugs from which bugs are planted together. Building the tests of each of
// a few bugs takes less time than building all packages of the bugs once.
const fewBugs = 5

// runner plants bugs and reports which of them the tests catch.
type runner struct {
	root     string // root directory of the module
	parallel int    // number of bugs to test at the same time
	out      io.Writer

	mu       sync.Mutex // guards out and survived
	survived []string   // names of the bugs that no test caught
}

// plantAlone plants one bug at a time, and builds the tests that are to catch it.
func (r *runner) plantAlone(ctx context.Context, bugs []mutant) error {
	return r.each(ctx, bugs, func(m mutant) {
		began := time.Now()
		caught, err := m.plant(ctx, r.root)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil:
			caught = "ERROR: " + err.Error()
		case caught == "":
			caught = "SURVIVED"
		}
		r.report(m, caught, err != nil || caught == "SURVIVED", began)
	})
}

// plantTogether builds test programs that contain many bugs, and switches on one bug at a time by
// an environment variable. It returns the bugs to plant alone: those that cannot be switched on by
// a variable, and those that the tests did not catch. A test may miss a bug because it starts
// another program that does not contain the bug.
func (r *runner) plantTogether(ctx context.Context, bugs []mutant) (alone []mutant, err error) {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintln(r.out, "building the tests with all bugs")
	p, err := buildPrograms(ctx, r.root, dir, bugs)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(r.out, "%d of %d bugs are in %d common test programs\n", len(p.bugs), len(bugs), len(p.files))
	failing, err := p.testWithoutBugs(ctx, r.parallel)
	if err != nil {
		return nil, err
	}
	for _, err := range failing {
		fmt.Fprintln(r.out, err)
	}
	fmt.Fprintf(r.out, "without a bug, the tests of %d packages pass\n", len(p.files)-len(failing))
	alone = p.others
	err = r.each(ctx, p.bugs, func(m mutant) {
		began := time.Now()
		if slices.ContainsFunc(strings.Fields(m.packages), func(pkg string) bool { return failing[pkg] != nil }) {
			r.report(m, "ERROR: the tests fail without a bug", true, began)
			return
		}
		caught, err := p.test(ctx, m)
		switch {
		case ctx.Err() != nil:
		case err != nil || caught == "":
			r.mu.Lock()
			defer r.mu.Unlock()
			alone = append(alone, m)
		default:
			r.report(m, caught, false, began)
		}
	})
	return alone, err
}

// each calls plant with each bug, at most r.parallel at the same time.
func (r *runner) each(ctx context.Context, bugs []mutant, plant func(mutant)) error {
	var group errgroup.Group
	group.SetLimit(r.parallel)
	for _, m := range bugs {
		group.Go(func() error {
			if ctx.Err() == nil {
				plant(m)
			}
			return ctx.Err()
		})
	}
	return group.Wait()
}

// report prints the result of a bug: caught is the test that caught it, SURVIVED or an error.
func (r *runner) report(m mutant, caught string, survived bool, began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if survived {
		r.survived = append(r.survived, m.name)
	}
	fmt.Fprintf(r.out, "%-24s %-45s %5.1fs\n", m.name, caught, time.Since(began).Seconds())
}

// all returns the bugs of all subjects.
func all() []mutant {
	return slices.Concat(mutants, fencedMutants, changeMutants, sinkMutants, doctorMutants, kafkaMutants,
		cronMutants, metricMutants, jobMutants, jobEventMutants, flowMutants, advanceMutants, schedulingMutants,
		failoverMutants, livenessMutants, connectionMutants, limitMutants, namespaceMutants, securityMutants,
		secretMutants, codecMutants, oidcMutants, loginMutants, erasureMutants, workerMutants, startMutants,
		commandMutants, accessMutants, durableMutants, earlyMutants, parkedMutants, txMutants, replyMutants, runMutants,
		sdkMutants, cliMutants, errorMutants, userMutants, idMutants, bulkMutants, pushedMutants,
		capturedMutants)
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
