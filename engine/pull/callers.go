package pull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/pull"
)

// Caller is the client of a request, with its limits as a worker. The zero value has no limits.
type Caller struct {
	Name  string // for errors, such as key:ID
	Owner string // owner of the worker IDs that the client uses; "" without authentication

	Address   string // IP address of the client, or of its proxy
	UserAgent string // valid UTF-8
	// Jobs returns the patterns of the names of jobs that the client may take in a namespace, or
	// nil if it may take all tasks. A nil function means that there are no limits.
	Jobs func(namespace string) process.Patterns
}

type callerKey struct{}

// WithCaller returns a context with the client of a request.
func WithCaller(ctx context.Context, c *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// callerOf returns the client of a request.
func callerOf(ctx context.Context) *Caller {
	if c, ok := ctx.Value(callerKey{}).(*Caller); ok {
		return c
	}
	return &Caller{}
}

func (c *Caller) sender() pull.Sender {
	return pull.Sender{Owner: c.Owner, Address: c.Address, UserAgent: c.UserAgent}
}

// jobs returns the patterns of the jobs that the client may take, or nil for all tasks.
func (c *Caller) jobs(namespace string) process.Patterns {
	if c.Jobs == nil {
		return nil
	}
	return c.Jobs(namespace)
}

// shownPatterns is the maximum number of patterns that an error lists.
const shownPatterns = 5

// denied returns the error of a request for a task that the client may not take.
func (c *Caller) denied(field, namespace, task string, may process.Patterns) error {
	shown := slices.Clone(may[:min(len(may), shownPatterns)])
	if len(may) > shownPatterns {
		shown = append(shown, "…")
	}
	return &process.DeniedError{Field: field, Namespace: namespace, Message: fmt.Sprintf(
		"%s in namespace %s needs the permission job.work, and %s has it only for the jobs %s", task, namespace,
		cmp.Or(c.Name, "the client"), cmp.Or(strings.Join(shown, ", "), "(none)"))}
}

// polls returns the names of the jobs that a poll of the client takes in a namespace. The name ""
// means any task. jobsOnly reports whether the poll takes only jobs. A poll without names takes the
// jobs that the client may take. A poll cannot search for prefixes, so polls returns an error if
// the client may take jobs by prefix.
func (c *Caller) polls(p *PollParams, namespace string) (names []string, jobsOnly bool, err error) {
	may := c.jobs(namespace)
	switch {
	case len(p.JobNames) > 0:
		for n, name := range p.JobNames {
			if !may.Match(name) {
				field := fmt.Sprintf("job_names[%d]", n)
				return nil, false, c.denied(field, namespace, fmt.Sprintf("job %q", name), may)
			}
		}
		return p.JobNames, p.JobsOnly, nil
	case may == nil:
		return []string{""}, p.JobsOnly, nil
	case slices.Contains(may, "*"):
		return []string{""}, true, nil
	case slices.ContainsFunc(may, func(pattern string) bool { return strings.HasSuffix(pattern, "*") }):
		return nil, false, c.denied("job_names", namespace, "a poll without job_names", may)
	}
	return may, true, nil
}

// CheckNext returns an error if the caller may not send the poll in the field next of a request.
func (s *Server) CheckNext(ctx context.Context, next PollParams) error {
	c := callerOf(ctx)
	for _, namespace := range next.Namespaces {
		_, _, err := c.polls(&next, namespace)
		if denied, ok := errors.AsType[*process.DeniedError](err); ok {
			denied.Field = "next." + denied.Field
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkJob returns an error if the client may not take the tasks of a job. The name is "" for a
// task that does not belong to a job.
func (c *Caller) checkJob(field, namespace, name string) error {
	may := c.jobs(namespace)
	switch {
	case may == nil:
		return nil
	case name == "":
		return c.denied(field, namespace, "a task of a process that is not a job", may)
	case !may.Match(name):
		return c.denied(field, namespace, fmt.Sprintf("job %q", name), may)
	}
	return nil
}

// checkAnswer returns an error if the caller may not answer a lease or store its checkpoints. The
// caller must be allowed to work on the task, and the lease must not belong to a worker of another
// client.
func (s *Server) checkAnswer(ctx context.Context, field string, l *storage.Lease) error {
	c := callerOf(ctx)
	if err := c.checkJob(field, l.Claim.Namespace, l.Claim.KindName); err != nil || c.Owner == "" {
		return err
	}
	return s.workers.own(ctx, func(int) string { return field },
		pull.WorkerKey{Namespace: l.Claim.Namespace, WorkerID: l.WorkerID})
}
