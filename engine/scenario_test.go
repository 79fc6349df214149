package engine_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestSuspendScenarios(t *testing.T) { runScenarios(t, "suspend") }
func TestCancelScenarios(t *testing.T)  { runScenarios(t, "cancel") }
func TestRetryScenarios(t *testing.T)   { runScenarios(t, "retry") }
func TestZombieScenarios(t *testing.T)  { runScenarios(t, "zombie") }
func TestDrainScenarios(t *testing.T)   { runScenarios(t, "drain") }

// runScenarios runs the scenarios of a file in testdata; suspend.txt describes the format. Each
// scenario has its own database.
func runScenarios(t *testing.T, name string) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(text), "\n== ")[1:] {
		title, body, _ := strings.Cut(part, "\n")
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			s := newScenario(t)
			defer s.gate.release()
			for line := range strings.Lines(strings.ReplaceAll(body, "\n  ", " ")) {
				if line, _, _ = strings.Cut(line, "# "); strings.TrimSpace(line) != "" {
					s.step(strings.TrimSpace(line))
				}
			}
		})
	}
}

// scenario is a running scenario. It is also the processor of its nodes.
type scenario struct {
	t       testing.TB
	dsn     string
	db      db
	gate    *gate                        // closed until the step "release"
	request *progressorv1.ProcessRequest // the newest task that the step "held" has returned
	nodes   map[string]*scenarioNode
	first   *scenarioNode
	pending map[string]<-chan outcome // results of steps in the background
	lock    pgx.Tx

	mu       sync.Mutex
	programs map[string][]string // programs that the step "on" has set, by TYPE or TYPE/ID
	ran      map[string][]*progressorv1.ProcessRequest
}

// scenarioNode is a node of a scenario, with its metrics.
type scenarioNode struct {
	*node
	registry
	line *proxy // to its database; nil if it has a direct connection
}

// outcome is the result of a step.
type outcome struct {
	text string
	err  error
}

func newScenario(t testing.TB) *scenario {
	dsn := storagetest.DSN(t)
	return &scenario{
		t: t, dsn: dsn, db: openDB(t, dsn), gate: newGate(), nodes: map[string]*scenarioNode{},
		pending: map[string]<-chan outcome{}, programs: map[string][]string{},
		ran: map[string][]*progressorv1.ProcessRequest{},
	}
}

// stepForm matches the name of a step in the background, until, the node, the command and its args.
var stepForm = regexp.MustCompile(`^(?:(\w+) = )?(until )?(?:(\w+): )?(\S+) ?(.*)$`)

func (s *scenario) step(line string) {
	s.t.Helper()
	todo, want, checked := strings.Cut(line, " ->")
	m := stepForm.FindStringSubmatch(todo)
	background, until, node, name, args := m[1], m[2] != "", m[3], m[4], m[5]
	n, command := s.first, commands[name]
	if node != "" {
		n = s.nodes[node]
	}
	if c := s.pending[name]; c != nil {
		done := receive(s.t, line, c)
		command = func(*scenario, *scenarioNode, string) (string, error) { return done.text, done.err }
	}
	if command == nil || node != "" && n == nil {
		s.t.Fatalf("%s: unknown command or node", line)
	}
	if background != "" {
		c := make(chan outcome, 1)
		s.pending[background] = c
		go func() {
			text, err := command(s, n, args)
			c <- outcome{text, err}
		}()
		return
	}
	var got string
	fits := func() bool {
		text, err := command(s, n, args)
		if err != nil {
			text = errorText(err)
		}
		got = strings.Join(strings.Fields(text), " ")
		return err == nil && !checked || checked && got == strings.Join(strings.Fields(want), " ")
	}
	if until {
		defer func() {
			if s.t.Failed() {
				s.t.Logf("%s\ngot: %s", line, got)
			}
		}()
		eventually(s.t, line, fits)
	} else if !fits() {
		s.t.Errorf("%s\ngot: %s", line, got)
	}
}

// Process runs the program that the step "on" has set for this task or, if there is none, the args.
// A program without actions echoes.
func (s *scenario) Process(
	ctx context.Context, r *progressorv1.ProcessRequest,
) (*progressorv1.ProcessResponse, error) {
	b, echo := processor.Result().Response(r.GetArgs()), true
	for sentence := range strings.SplitSeq(s.program(r), ",") {
		word := strings.Fields(sentence)
		if len(word) == 0 {
			continue
		}
		switch word[0] {
		case "hold", "hang":
			if err := s.gate.pass(ctx, r, word[0] == "hold"); err != nil {
				return nil, err
			}
			continue
		case "panic":
			panic("as asked")
		}
		known, err := follow(b, word)
		if err != nil {
			return nil, err
		}
		echo = echo && !known
	}
	if echo {
		return processor.Echo().Process(ctx, r)
	}
	return b.Done()
}

// program records a request and returns its program. The nth task of a type and a process gets the
// nth program of a rule, and the last program is repeated.
func (s *scenario) program(r *progressorv1.ProcessRequest) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, taskType := r.GetProcess().GetProcessId(), taskTypeName(r.GetType())
	n := 0
	for _, earlier := range s.ran[id] {
		if earlier.GetType() == r.GetType() {
			n++
		}
	}
	s.ran[id] = append(s.ran[id], r)
	programs := s.programs[taskType+"/"+id]
	if programs == nil {
		programs = s.programs[taskType]
	}
	if programs == nil {
		return string(r.GetArgs())
	}
	return programs[min(n, len(programs)-1)]
}

func taskTypeName(t progressorv1.TaskType) string {
	return strings.TrimPrefix(t.String(), "TASK_TYPE_")
}
