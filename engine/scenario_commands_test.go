package engine_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// commands contains the commands of scenarios. Each command returns its result.
var commands = map[string]func(s *scenario, n *scenarioNode, args string) (string, error){
	"node":  (*scenario).start,
	"stop":  func(_ *scenario, n *scenarioNode, _ string) (string, error) { n.stop(); return "", nil },
	"crash": func(_ *scenario, n *scenarioNode, _ string) (string, error) { n.crash(); return "", nil },
	"away":  func(_ *scenario, n *scenarioNode, _ string) (string, error) { n.line.away(); return "", nil },
	"back":  func(_ *scenario, n *scenarioNode, _ string) (string, error) { n.line.back(); return "", nil },
	"drain": func(_ *scenario, n *scenarioNode, _ string) (string, error) {
		_, err := n.DrainNode(context.Background(), fmt.Sprint(n.store.NodeID()), process.Actor{})
		return "", err
	},
	"ready": func(_ *scenario, n *scenarioNode, _ string) (string, error) {
		if err := n.Ready(); err != nil {
			why, _, _ := strings.Cut(err.Error(), " for ")
			return "", errors.New(why)
		}
		return "", nil
	},
	"metric": func(s *scenario, n *scenarioNode, name string) (string, error) {
		return fmt.Sprint(n.value(s.t, name)), nil
	},
	"namespace": func(s *scenario, n *scenarioNode, fields string) (string, error) {
		ns := &progressorv1.Namespace{}
		if err := protojson.Unmarshal([]byte(fields), ns); err != nil {
			return "", err
		}
		ns.Namespace = "ns"
		n.put(s.t, ns)
		return "", nil
	},
	"on": func(s *scenario, _ *scenarioNode, args string) (string, error) {
		tasks, programs, _ := strings.Cut(args, " ")
		s.mu.Lock()
		defer s.mu.Unlock()
		s.programs[tasks] = strings.Split(programs, ";")
		return "", nil
	},

	"start": func(_ *scenario, n *scenarioNode, args string) (string, error) {
		r := parseRequest(args)
		return r.answer(n.Start(context.Background(), engine.StartParams{
			Key: r.key, Args: r.args, Context: r.context, IdempotencyKey: r.idempotencyKey, Accepted: r.accepted,
			Timeout: longWait,
		}))
	},
	"call": func(_ *scenario, n *scenarioNode, args string) (string, error) {
		r := parseRequest(args)
		return r.answer(n.Call(context.Background(), engine.CallParams{
			Key: r.key, Args: r.args, Context: r.context, IdempotencyKey: r.idempotencyKey, Accepted: r.accepted,
			Timeout: longWait,
		}))
	},
	"repair":        func(_ *scenario, n *scenarioNode, args string) (string, error) { return n.repair(args, false) },
	"simple-repair": func(_ *scenario, n *scenarioNode, args string) (string, error) { return n.repair(args, true) },
	"suspend": func(_ *scenario, n *scenarioNode, id string) (string, error) {
		return processText(n.SuspendProcess(context.Background(), parseKey(id), "looking into it", process.Actor{}))
	},
	"resume": func(_ *scenario, n *scenarioNode, id string) (string, error) {
		return processText(n.ResumeProcess(context.Background(), parseKey(id), process.Actor{}))
	},
	"cancel": func(_ *scenario, n *scenarioNode, args string) (string, error) {
		id, grace, limited := strings.Cut(args, " ")
		p := engine.CancelParams{Key: parseKey(id), Reason: "no more"}
		if limited {
			d, err := time.ParseDuration(grace)
			if err != nil {
				return "", err
			}
			p.Grace = &d
		}
		return processText(n.CancelProcess(context.Background(), p))
	},

	"held":     (*scenario).held,
	"deadline": (*scenario).deadline,
	"release":  func(s *scenario, _ *scenarioNode, _ string) (string, error) { s.gate.release(); return "", nil },
	"idle":     (*scenario).idle,
	"attempts": (*scenario).attempts,
	"show": func(_ *scenario, n *scenarioNode, id string) (string, error) {
		return processText(n.GetProcess(context.Background(), parseKey(id), nil, 0))
	},
	"status": func(s *scenario, n *scenarioNode, id string) (string, error) { return n.status(s.t, id), nil },
	"tasks":  func(_ *scenario, n *scenarioNode, id string) (string, error) { return n.tasks(id) },
	"sql":    (*scenario).sql,
	"lock": func(s *scenario, _ *scenarioNode, id string) (string, error) {
		s.lock = storagetest.Begin(s.t, s.db.Pool, "SELECT 1 FROM processes WHERE process_id = $1 FOR UPDATE", id)
		return "", nil
	},
	"unlock": func(s *scenario, _ *scenarioNode, _ string) (string, error) {
		return "", s.lock.Rollback(context.Background())
	},
}

// start starts a node.
func (s *scenario) start(_ *scenarioNode, args string) (string, error) {
	words := strings.Fields(args)
	n, dsn := &scenarioNode{registry: newRegistry()}, s.dsn
	change := []func(*engine.Config){n.use}
	for _, option := range words[1:] {
		timeout, drain := strings.CutPrefix(option, "drain=")
		switch {
		case option == "brief":
			change = append(change, brief)
		case option == "proxied":
			n.line, dsn = through(s.t, s.dsn)
		case drain:
			d, err := time.ParseDuration(timeout)
			if err != nil {
				return "", err
			}
			change = append(change, drains(d))
		default:
			return "", fmt.Errorf("unknown option %s", option)
		}
	}
	n.node = start(s.t, dsn, s, change...)
	s.nodes[words[0]] = n
	if s.first == nil {
		s.first = n
	}
	return "", nil
}

// taskRequest contains the arguments of start, call and repair.
type taskRequest struct {
	key            process.Key
	args, context  []byte
	idempotencyKey string
	accepted       bool
}

var argument = regexp.MustCompile(`"[^"]*"|\S+`)

func parseRequest(text string) (r taskRequest) {
	for n, word := range argument.FindAllString(text, -1) {
		name, value, _ := strings.Cut(word, "=")
		switch {
		case n == 0:
			r.key = parseKey(word)
		case word == "accepted":
			r.accepted = true
		case name == "key":
			r.idempotencyKey = value
		case name == "context":
			r.context = []byte(value)
		default:
			r.args = []byte(strings.Trim(word, `"`))
		}
	}
	return r
}

// parseKey returns the key of a process of the namespace ns, or of NAMESPACE/ID.
func parseKey(id string) process.Key {
	if namespace, rest, other := strings.Cut(id, "/"); other {
		return process.Key{Namespace: namespace, ProcessID: rest}
	}
	return key(id)
}

// answer returns the response to a request, or "accepted" if the request was only accepted.
func (r *taskRequest) answer(ans engine.Answer, err error) (string, error) {
	if err == nil && r.accepted && ans.TaskID != 0 {
		return "accepted", nil
	}
	return string(ans.Response), err
}

func (n *scenarioNode) repair(args string, simple bool) (string, error) {
	r := parseRequest(args)
	ans, err := n.Repair(context.Background(), engine.RepairParams{
		Key: r.key, Args: r.args, IdempotencyKey: r.idempotencyKey, Accepted: r.accepted, Simple: simple,
		Timeout: longWait,
	})
	if simple && err == nil && ans.TaskID != 0 {
		return "with a timer", nil
	}
	return r.answer(ans, err)
}

// held waits for the next task that reaches hold or hang, and describes the request.
func (s *scenario) held(*scenarioNode, string) (string, error) {
	select {
	case s.request = <-s.gate.entered:
	case <-time.After(longWait):
		return "", errors.New("no task is held")
	}
	r := s.request
	text := []string{taskTypeName(r.GetType()), r.GetProcess().GetProcessId(), string(r.GetArgs())}
	if r.GetAttempt() > 1 {
		text = append(text, fmt.Sprint("attempt ", r.GetAttempt()))
	}
	if reason := r.GetCancelReason(); reason != "" && reason == r.GetProcess().GetCancelReason() {
		text = append(text, "because "+reason)
	}
	if p := r.GetProcess(); p.GetStatus() == progressorv1.ProcessStatus_PROCESS_STATUS_ERROR {
		text = append(text, fmt.Sprintf("in %s: %s", statusName(p.GetStatus()), p.GetDetail()))
	}
	return strings.Join(text, " "), nil
}

// deadline checks that the deadline of the task of the last held command is at most a given time
// away.
func (s *scenario) deadline(_ *scenarioNode, text string) (string, error) {
	d, err := time.ParseDuration(text)
	if left := time.Until(s.request.GetDeadline().AsTime()); err == nil && left > d {
		err = fmt.Errorf("the deadline is %s away", left)
	}
	return "", err
}

// idle waits until no node runs a task.
func (s *scenario) idle(*scenarioNode, string) (string, error) {
	for _, n := range s.nodes {
		eventually(s.t, "no task runs", func() bool { return n.Attempts() == 0 })
	}
	return "", nil
}

// attempts lists the requests that the processor has received for a process.
func (s *scenario) attempts(_ *scenarioNode, id string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for _, r := range s.ran[id] {
		text := taskTypeName(r.GetType())
		if r.GetAttempt() > 1 {
			text += fmt.Sprint(" ", r.GetAttempt())
		}
		list = append(list, text)
	}
	return strings.Join(list, ", "), nil
}

// sql runs a statement. $NAME is replaced with the ID of the node NAME.
func (s *scenario) sql(_ *scenarioNode, statement string) (string, error) {
	for name, n := range s.nodes {
		statement = strings.ReplaceAll(statement, "$"+name, fmt.Sprint(n.store.NodeID()))
	}
	rows, _ := s.db.Query(context.Background(), statement) // CollectRows returns the error
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		values, err := row.Values()
		return strings.TrimSpace(fmt.Sprintln(values...)), err
	})
	return strings.Join(list, ", "), err
}

// tasks lists the tasks of a process.
func (n *node) tasks(id string) (string, error) {
	page, err := n.TraceProcess(context.Background(), parseKey(id), 0, "")
	var list []string
	for _, task := range page.GetTasks() {
		text := []string{taskTypeName(task.GetType()), task.GetTimerName(), string(task.GetArgs()),
			strings.TrimPrefix(task.GetStatus().String(), "TASK_STATUS_")}
		if task.GetAttempt() != 1 {
			text = append(text, fmt.Sprint("attempt ", task.GetAttempt()))
		}
		text = append(text, task.GetFailure().GetReason(), task.GetRejection().GetReason())
		if len(task.GetContext()) > 0 {
			text = append(text, fmt.Sprintf("(%s)", task.GetContext()))
		}
		if len(task.GetResponse()) > 0 {
			text = append(text, "= "+string(task.GetResponse()))
		}
		list = append(list, strings.Join(slices.DeleteFunc(text, func(s string) bool { return s == "" }), " "))
	}
	return strings.Join(list, ", "), err
}

func statusName(s progressorv1.ProcessStatus) string {
	return strings.TrimPrefix(s.String(), "PROCESS_STATUS_")
}

// processText describes a process.
func processText(p *progressorv1.Process, err error) (string, error) {
	if err != nil {
		return "", err
	}
	text := statusName(p.GetStatus()) + " was " + statusName(p.GetPreviousStatus())
	if p.GetDetail() != "" {
		text += ", " + p.GetDetail()
	}
	if p.GetCorruptedBy() != 0 {
		text += ", corrupted"
	}
	if p.GetCancelRequestedTime() != nil {
		text += ", cancelled: " + p.GetCancelReason()
	}
	text += fmt.Sprintf(", events %d", p.GetLastEventId())
	if len(p.GetAuxState()) > 0 {
		text += ", state " + string(p.GetAuxState())
	}
	for _, timer := range p.GetTimers() {
		text += strings.TrimRight(", timer "+timer.GetName(), " ")
	}
	return text, nil
}

// errorText describes an error.
func errorText(err error) string {
	var wrong *process.WrongStatusError
	var te *engine.TaskError
	switch {
	case errors.As(err, &wrong):
		return "refused: " + string(wrong.Status)
	case !errors.As(err, &te):
	case te.Failure != nil:
		return fmt.Sprintf("failed: %s, %s", te.Failure.GetReason(), te.ProcessStatus)
	case te.Rejection != nil:
		return "rejected: " + te.Rejection.GetReason()
	case te.Cancelled:
		return "cancelled"
	case te.Draining:
		return "draining"
	}
	for _, known := range []error{
		process.ErrNamespaceNotFound, process.ErrProcessNotFound, process.ErrProcessExists, process.ErrDraining,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return err.Error()
}
