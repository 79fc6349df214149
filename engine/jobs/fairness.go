package jobs

import (
	"context"
	"sync"

	"cel.dev/cel-go/cel"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// maxFairnessPrograms limits the compiled expressions that a node keeps. At the limit, the node
// drops all of them and compiles them again when they are needed.
const maxFairnessPrograms = 1000

// fairness caches the compiled expressions of fairness keys. Its zero value is ready to use. It is
// safe for concurrent use.
type fairness struct {
	mu       sync.Mutex
	programs map[string]cel.Program // by text; nil if the text is not valid
}

// program returns the compiled form of an expression, or nil if it is not valid.
func (f *fairness) program(text string) cel.Program {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p, known := f.programs[text]; known {
		return p
	}
	p, err := compileKey("namespace.fairness_key", text)
	if err != nil {
		p = nil // a node with another version accepted it
	}
	if f.programs == nil || len(f.programs) >= maxFairnessPrograms {
		f.programs = map[string]cel.Program{}
	}
	f.programs[text] = p
	return p
}

// CheckFairnessKey validates the expression for the fairness key of a namespace.
func CheckFairnessKey(m *progressorv1.Namespace) error {
	if m.GetFairnessKey() == "" {
		return nil
	}
	_, err := compileKey("namespace.fairness_key", m.GetFairnessKey())
	return err
}

// fairnessKey returns the fairness key of a job, or nil if its namespace has none. If the
// expression fails, for example because the job does not have the argument, the key is "".
func (q *Jobs) fairnessKey(namespace string, s jobs.Subject) *string {
	text := q.engine.FairnessKey(namespace)
	if text == "" {
		return nil
	}
	key := ""
	if p := q.fairness.program(text); p != nil {
		if v, _, err := p.Eval(variables(s)); err == nil {
			key = keyText(v)
		}
	}
	return &key
}

// keyStarts adds the fairness keys to the start messages of jobs that SQL functions have sent to a
// process ID. These messages have no fairness keys, because SQL cannot evaluate the expression.
func (q *Jobs) keyStarts(ctx context.Context, target process.Key) error {
	return jobs.KeyStarts(ctx, q.store, target, func(s jobs.Subject) string {
		if key := q.fairnessKey(target.Namespace, s); key != nil {
			return *key
		}
		return ""
	})
}
