package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/configfile"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/cron"
	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/crons"
	"github.com/progressor-engine/progressor/engine/flows"
	"github.com/progressor-engine/progressor/engine/jobs"
	"github.com/progressor-engine/progressor/engine/rpc"
	"github.com/progressor-engine/progressor/engine/secrets"
	"github.com/progressor-engine/progressor/engine/sinks"
	"github.com/progressor-engine/progressor/engine/sinks/targets"
	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor/remote"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// checkFile returns the error that the engine would return for the namespaces, templates, crons and
// sinks of the file.
func checkFile(f *configfile.File) error {
	// The vault is not used, because the secrets of the file are not read.
	node := engine.Config{Builtins: builtins(), Dial: remote.Dial, Secrets: &secrets.Vault{}}
	for _, ns := range f.Namespaces {
		err := rpc.CheckRules(&progressorv1.PutNamespaceRequest{Namespace: ns.Namespace})
		if err == nil {
			err = cmp.Or(node.CheckProcessor(ns.Namespace), jobs.CheckFairnessKey(ns.Namespace))
		}
		if err != nil {
			return fmt.Errorf("configuration file %s: %w", f.Path, ns.Wrong("namespace", err))
		}
	}
	for _, c := range f.Crons {
		if err := checkFileCron(c); err != nil {
			return fmt.Errorf("configuration file %s: %w", f.Path, err)
		}
	}
	for _, t := range f.Templates {
		if err := checkFileTemplate(t); err != nil {
			return fmt.Errorf("configuration file %s: %w", f.Path, err)
		}
	}
	for _, m := range f.Sinks {
		if err := checkFileSink(m); err != nil {
			return fmt.Errorf("configuration file %s: %w", f.Path, err)
		}
	}
	return nil
}

// byFile is the actor of changes that the configuration file makes.
var byFile = process.Actor{Name: "configuration file"}

// putNamespaces creates the namespaces of the file, or replaces their configuration. It skips those
// that are being deleted, so that the node can serve the others.
func putNamespaces(ctx context.Context, eng *engine.Engine, f *configfile.File, log *slog.Logger) error {
	for _, ns := range f.Namespaces {
		if err := eng.DeclareNamespace(ctx, ns.Namespace, byFile); isDeleting(err) {
			log.Error("a namespace of the configuration file is being deleted: remove it from the file",
				"namespace", ns.GetNamespace(), "file", f.Path)
		} else if err != nil {
			return fmt.Errorf("namespace %s of %s: %w", ns.GetNamespace(), f.Path, err)
		}
	}
	return nil
}

func isDeleting(err error) bool { return errors.Is(err, process.ErrNamespaceDeleting) }

// fileNamespaces returns the names of the namespaces in the file.
func fileNamespaces(f *configfile.File) (names []string) {
	for _, ns := range f.Namespaces {
		names = append(names, ns.GetNamespace())
	}
	return names
}

// putTimeout is how long the engine tries to store a cron of the file at startup. If its namespace
// is paused, the cron is created later.
const putTimeout = 10 * time.Second

// putCrons creates the crons of the file, and updates those that differ.
func putCrons(ctx context.Context, all *crons.Crons, f *configfile.File, log *slog.Logger) error {
	for _, c := range f.Crons {
		limited, cancel := context.WithTimeout(ctx, putTimeout)
		err := putCron(limited, all, c)
		late := limited.Err() != nil
		cancel()
		var held *process.WrongStatusError
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the program ends
		case late || errors.Is(err, process.ErrWaitTimeout) || errors.As(err, &held) || isDeleting(err):
			log.Warn("cannot store a cron of the configuration file now", "namespace", c.GetNamespace(), "cron",
				c.GetCronId(), "cause", err)
		default:
			return fmt.Errorf("configuration file %s: %w", f.Path, err)
		}
	}
	return nil
}

// checkFileCron returns the error that the engine would return for a cron of the file.
func checkFileCron(c configfile.Cron) error {
	if err := cron.CheckCron(c.Cron); err != nil {
		return c.Wrong("cron", err)
	}
	return nil
}

// putTries limits how often putCron is retried if other nodes or users change the cron at the same
// time.
const putTries = 5

// putCron creates the cron if it is missing, and updates it if it differs. It sets paused only when
// it creates the cron, because an operator may have paused or resumed the cron since.
func putCron(ctx context.Context, all *crons.Crons, c configfile.Cron) error {
	for try := 1; ; try++ {
		same, etag, err := all.IsStored(ctx, c.Cron)
		switch {
		case errors.Is(err, process.ErrCronNotFound):
			_, err = all.Create(ctx, &progressorv1.CreateCronRequest{Cron: c.Cron}, byFile)
		case err == nil && !same:
			wanted := proto.CloneOf(c.Cron)
			wanted.Etag = etag
			_, err = all.Update(ctx, &progressorv1.UpdateCronRequest{Cron: wanted}, byFile)
		}
		switch {
		case err == nil:
			return nil
		case try < putTries && (errors.Is(err, process.ErrCronExists) || errors.Is(err, process.ErrStaleEtag)):
			continue
		}
		return c.Wrong("cron", err)
	}
}

// redactCron hides the parts of a target that may be secret.
func redactCron(c *progressorv1.Cron) *progressorv1.Cron {
	c = proto.CloneOf(c)
	if target := c.GetTarget().GetHttp(); target != nil {
		target.Url = redactURL(target.GetUrl())
		for name := range target.GetHeaders() {
			target.Headers[name] = redacted
		}
	}
	return c
}

// checkFileTemplate returns the error that the engine would return for a template of the file.
func checkFileTemplate(t configfile.Template) error {
	if _, problems := flow.Compile(t.Template); len(problems) > 0 {
		return t.WrongAt(problems[0].Path, problems[0].String())
	}
	return nil
}

// putTemplate stores the template if it differs from its newest version.
func putTemplate(ctx context.Context, all *flows.Flows, t configfile.Template) error {
	if _, err := all.PutTemplate(ctx, &progressorv1.PutTemplateRequest{Template: t.Template}, byFile); err != nil {
		return t.Wrong("template", err)
	}
	return nil
}

// putTemplates stores the templates of the file, except those of namespaces that are being deleted.
func putTemplates(ctx context.Context, all *flows.Flows, f *configfile.File) error {
	for _, t := range f.Templates {
		if err := putTemplate(ctx, all, t); err != nil && !isDeleting(err) {
			return fmt.Errorf("configuration file %s: %w", f.Path, err)
		}
	}
	return nil
}

// checkFileSink returns the error that the engine would return for a sink of the file.
func checkFileSink(m configfile.Sink) error {
	err := rpc.CheckRules(&progressorv1.PutSinkRequest{Sink: m.Sink})
	if err == nil {
		err = sinks.Check(m.Sink, targets.Open(&remote.Egress{}))
	}
	if err != nil {
		return m.Wrong("sink", err)
	}
	return nil
}

// putSinks stores the sinks of the file that are missing or differ, except those of namespaces that
// are being deleted.
func putSinks(ctx context.Context, all *sinks.Sinks, f *configfile.File, log *slog.Logger) error {
	for _, m := range f.Sinks {
		if err := all.Declare(ctx, m.Sink, byFile); isDeleting(err) {
			log.Warn("cannot store a sink of the configuration file", "namespace", m.GetNamespace(), "sink_id",
				m.GetSinkId(), "cause", err)
		} else if err != nil {
			return fmt.Errorf("configuration file %s: %w", f.Path, m.Wrong("sink", err))
		}
	}
	return nil
}

// redactSink removes the secrets of a target. PutSink without secrets keeps the stored ones.
func redactSink(m *progressorv1.Sink) *progressorv1.Sink {
	m = proto.CloneOf(m)
	if hook := m.GetWebhook(); hook != nil {
		hook.Secrets = nil
	}
	if login := m.GetKafka().GetSasl(); login != nil {
		login.Password = ""
	}
	return m
}
