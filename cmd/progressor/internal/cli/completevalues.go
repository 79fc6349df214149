package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	// completeTimeout limits the request for the values, because the user is waiting at a prompt.
	completeTimeout = time.Second
	// completePage is the maximum number of values. More would not help the user.
	completePage = 100
)

// lookup finds the objects of a kind in a namespace by the beginning of their IDs.
type lookup func(ctx context.Context, c *client.Client, namespace, typed string) ([]completion, error)

// lookups contains a lookup for each kind of object that can be completed, by the value of the tag
// complete.
var lookups = map[string]lookup{
	"namespace": findNamespaces, "process": findProcesses, "job": findJobs, "run": findRuns, "cron": findCrons,
	"template": findTemplates, "worker": findWorkers, "sink": findSinks, "bulk": findBulks,
	"constraint": findConstraints,
}

// objects asks the engine for objects. It returns none if the engine does not answer in time.
func (c *completing) objects(kind, typed string) []completion {
	flags := struct{ ClientFlags }{}
	parser, err := kong.New(&flags, kong.Exit(func(int) {}), kong.PostBuild(requireValues),
		kong.Resolvers(c.app.settings))
	if err != nil {
		panic(err)
	}
	var connection []string
	for _, word := range c.flags {
		name, _, _ := strings.Cut(word, "=")
		if slices.ContainsFunc(parser.Model.Flags, func(f *kong.Flag) bool { return "--"+f.Name == name }) {
			connection = append(connection, word)
		}
	}
	if _, err := parser.Parse(connection); err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.app.ctx, completeTimeout)
	defer cancel()
	namespace := "" // the first argument of all commands with IDs
	if len(c.args) > 0 {
		namespace = c.args[0]
	}
	found, err := lookups[kind](ctx, flags.clientWith(client.Retry{MaxAttempts: 1}), namespace, typed)
	if err != nil {
		return nil
	}
	return found
}

// idFilter returns a filter for the IDs that begin with a text, or "" for all IDs.
func idFilter(field, typed string) string {
	if typed == "" {
		return ""
	}
	return field + ` = "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `*`, `\*`).Replace(typed) + `*"`
}

func listed[T any](list []T, err error, one func(T) completion) ([]completion, error) {
	found := make([]completion, len(list))
	for n, object := range list {
		found[n] = one(object)
	}
	return found, err
}

func findNamespaces(ctx context.Context, c *client.Client, _, typed string) (found []completion, err error) {
	req := &progressorv1.ListNamespacesRequest{}
	for {
		resp, err := c.Namespace.ListNamespaces(ctx, req)
		for _, ns := range resp.GetNamespaces() {
			if strings.HasPrefix(ns.GetNamespace(), typed) {
				found = append(found, completion{ns.GetNamespace(), output.ShowProcessor(ns.GetProcessor())})
			}
		}
		if req.PageToken = resp.GetNextPageToken(); err != nil || req.PageToken == "" || len(found) >= completePage {
			return found, err
		}
	}
}

func findProcesses(ctx context.Context, c *client.Client, namespace, typed string) ([]completion, error) {
	resp, err := c.Process.ListProcesses(ctx, &progressorv1.ListProcessesRequest{Namespace: namespace,
		Filter: idFilter("process_id", typed), PageSize: completePage})
	return listed(resp.GetProcesses(), err, func(p *progressorv1.Process) completion {
		return completion{p.GetProcessId(), output.Enum(p.GetStatus())}
	})
}

func findJobs(ctx context.Context, c *client.Client, namespace, typed string) ([]completion, error) {
	resp, err := c.Job.ListJobs(ctx, &progressorv1.ListJobsRequest{Namespace: namespace,
		Filter: idFilter("job_id", typed), PageSize: completePage})
	return listed(resp.GetJobs(), err, func(j *progressorv1.Job) completion {
		return completion{j.GetJobId(), j.GetName() + ", " + output.Enum(j.GetState())}
	})
}

func findRuns(ctx context.Context, c *client.Client, namespace, typed string) ([]completion, error) {
	resp, err := c.Flow.ListRuns(ctx, &progressorv1.ListRunsRequest{Namespace: namespace,
		Filter: idFilter("run_id", typed), PageSize: completePage})
	return listed(resp.GetRuns(), err, func(r *progressorv1.Run) completion {
		return completion{r.GetRunId(), r.GetTemplateType() + ", " + output.Enum(r.GetStatus())}
	})
}

func findCrons(ctx context.Context, c *client.Client, namespace, typed string) ([]completion, error) {
	resp, err := c.Cron.ListCrons(ctx, &progressorv1.ListCronsRequest{Namespace: namespace,
		Filter: idFilter("cron_id", typed), PageSize: completePage})
	return listed(resp.GetCrons(), err, func(r *progressorv1.Cron) completion {
		return completion{r.GetCronId(), strings.Join(r.GetSpec().GetExpressions(), "; ")}
	})
}

func findTemplates(ctx context.Context, c *client.Client, namespace, _ string) ([]completion, error) {
	resp, err := c.Flow.ListTemplates(ctx,
		&progressorv1.ListTemplatesRequest{Namespace: namespace, PageSize: completePage})
	return listed(resp.GetTemplates(), err, func(t *progressorv1.Template) completion {
		return completion{t.GetType(), t.GetName()}
	})
}

func findWorkers(ctx context.Context, c *client.Client, namespace, _ string) ([]completion, error) {
	resp, err := c.Worker.ListWorkers(ctx,
		&progressorv1.ListWorkersRequest{Namespace: namespace, PageSize: completePage})
	return listed(resp.GetWorkers(), err, func(w *progressorv1.Worker) completion {
		return completion{w.GetWorkerId(), output.Counted(int(w.GetLeases()), "lease")}
	})
}

func findSinks(ctx context.Context, c *client.Client, namespace, _ string) ([]completion, error) {
	resp, err := c.Change.ListSinks(ctx, &progressorv1.ListSinksRequest{Namespace: namespace, PageSize: completePage})
	return listed(resp.GetSinks(), err, func(s *progressorv1.Sink) completion {
		return completion{s.GetSinkId(), output.Enum(s.GetStatus().GetState())}
	})
}

func findBulks(ctx context.Context, c *client.Client, namespace, _ string) ([]completion, error) {
	resp, err := c.Bulk.ListBulks(ctx, &progressorv1.ListBulksRequest{Namespace: namespace, PageSize: completePage})
	return listed(resp.GetBulks(), err, func(b *progressorv1.Bulk) completion {
		return completion{b.GetBulkId(), b.GetFilter()}
	})
}

func findConstraints(ctx context.Context, c *client.Client, namespace, _ string) ([]completion, error) {
	resp, err := c.Job.ListConstraints(ctx, &progressorv1.ListConstraintsRequest{Namespace: namespace})
	return listed(resp.GetConstraints(), err, func(s *progressorv1.ConstraintState) completion {
		return completion{s.GetConstraint().GetName(), s.GetConstraint().GetMatch()}
	})
}
