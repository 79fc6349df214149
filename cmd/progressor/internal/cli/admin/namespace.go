package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/protoyaml"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type namespaceCmd struct {
	Put    namespacePutCmd    `cmd:"" help:"Create a namespace, or replace its configuration."`
	Get    namespaceGetCmd    `cmd:"" help:"Show a namespace."`
	List   namespaceListCmd   `cmd:"" help:"List the namespaces."`
	Health namespaceHealthCmd `cmd:"" help:"Show whether the tasks of namespaces run."`
	Pause  namespacePauseCmd  `cmd:"" help:"Pause a namespace: no task starts; requests are accepted, and wait."`
	Resume namespaceResumeCmd `cmd:"" help:"Resume a paused namespace."`
	Delete namespaceDeleteCmd `cmd:"" help:"Delete a namespace, if it is empty or with all its data."`
}

type namespacePutCmd struct {
	NS string `arg:"" name:"ns" help:"Namespace."`

	cli.ClientFlags
	File       string   `short:"f" placeholder:"FILE|-" help:"A Namespace as YAML or JSON; flags replace its values."`
	ConnectURL []string `field:"processor.connect.url,processor.connect.more_urls" name:"connect-url" sep:"none" xor:"processor" placeholder:"URL" help:"The processor is a ProcessorService at this URL; can be repeated for several URLs."`
	connectFlags
	Builtin      string         `field:"processor.builtin.name" xor:"processor" placeholder:"NAME" help:"The processor is built into the engine, under this name (orders, echo)."`
	Pull         bool           `field:"processor.pull" xor:"processor" help:"Workers poll for tasks."`
	StepTimeout  *time.Duration `placeholder:"DURATION" help:"Timeout of an attempt. Default: 60s."`
	MaxRunning   *int32         `placeholder:"N" help:"Maximum number of running tasks per node. Default: 1000."`
	MaxBacklog   *int32         `placeholder:"N" help:"Tasks that may wait for a slot before requests are rejected. Default: 10 times --max-running."`
	MaxWaiting   *int32         `placeholder:"N" help:"Maximum number of waiting requests per process. Default: 1000."`
	HistoryMode  string         `placeholder:"full|none|last" help:"History that the processor receives. Default: full."`
	ZombiePolicy string         `placeholder:"retry|error" help:"What happens to a task whose node has died. Default: retry."`
	MaxAttempts  *int32         `field:"retry_policy.max_attempts" placeholder:"N" help:"Maximum number of attempts of a timer or notification. Default: 3."`
	RetryAfter   *time.Duration `field:"retry_policy.initial_interval" placeholder:"DURATION" help:"Wait before the second attempt. Default: 5s."`
	FairnessKey  *string        `placeholder:"CEL" help:"Jobs of the same priority take turns by the value of this expression, such as job.metadata.tenant."`
	CommandTo    []string       `field:"command_namespaces" placeholder:"PATTERN" help:"Other namespaces to which the processor may send commands: NAME, PREFIX* or *."`
	retentionFlags
	recordFlags
}

// connectFlags describe the requests to a processor at --connect-url.
type connectFlags struct {
	Encoding      string            `field:"processor.connect.encoding" placeholder:"proto|json|msgpack" help:"Encoding of requests to --connect-url. Default: proto."`
	Protocol      string            `field:"processor.connect.protocol" placeholder:"connect|grpc" help:"Protocol of requests to --connect-url. Default: connect."`
	Header        map[string]string `field:"processor.connect.headers" mapsep:"none" placeholder:"NAME=VALUE" help:"Header of requests to --connect-url; can be repeated."`
	SigningSecret []string          `field:"processor.connect.signing_secrets" placeholder:"NAME" help:"Sign the requests to --connect-url with the key in this secret. Set two secrets while a key is replaced."`
	Checkpoints   bool              `field:"processor.connect.checkpoints" help:"Let the processor at --connect-url store checkpoints."`

	ConnectCAFile      string `field:"processor.connect.tls.ca_pem" name:"connect-ca-file" placeholder:"FILE" help:"CA certificates that verify --connect-url, PEM. Default: those of the system."`
	ConnectCertificate string `field:"processor.connect.tls.certificate_secret" placeholder:"NAME" help:"Secret with the client certificate for --connect-url and its private key, PEM."`
}

// setFlags returns the names of the flags that are set.
func (c *connectFlags) setFlags() []string {
	return cli.SetFlags(
		cli.Given{Flag: "--encoding", Set: c.Encoding != ""},
		cli.Given{Flag: "--protocol", Set: c.Protocol != ""},
		cli.Given{Flag: "--header", Set: len(c.Header) > 0},
		cli.Given{Flag: "--signing-secret", Set: len(c.SigningSecret) > 0},
		cli.Given{Flag: "--checkpoints", Set: c.Checkpoints},
		cli.Given{Flag: "--connect-ca-file", Set: c.ConnectCAFile != ""},
		cli.Given{Flag: "--connect-certificate", Set: c.ConnectCertificate != ""})
}

// recordFlags configure what is recorded about jobs and processes.
type recordFlags struct {
	JobEvents       string         `placeholder:"all|ends|none" help:"Events of jobs and runs to keep. Default: all."`
	Changes         []string       `field:"changes,changes.kinds" placeholder:"KIND|none" complete:"event,lifecycle,job,step,run,fire,none" help:"Record changes of these kinds: event, lifecycle, job, step, run, fire. Default: none."`
	ChangePayloads  *bool          `field:"changes.payloads" help:"Record the payloads of events in the change stream."`
	ChangeRetention *time.Duration `field:"changes.retention" placeholder:"DURATION" help:"Minimum time for which changes are kept. Default: 168h."`
}

// applyChanges sets the changes that the namespace records.
func (c *recordFlags) applyChanges(ns *progressorv1.Namespace) error {
	if len(c.Changes) == 0 && c.ChangePayloads == nil && c.ChangeRetention == nil {
		return nil
	}
	if ns.Changes == nil {
		ns.Changes = &progressorv1.ChangeSettings{}
	}
	if len(c.Changes) > 0 {
		ns.Changes.Kinds = nil
	}
	for _, name := range c.Changes {
		if name == "none" && len(c.Changes) == 1 {
			break
		}
		err := cli.SetEnum("--changes", name, func(kind progressorv1.ChangeKind) {
			ns.Changes.Kinds = append(ns.Changes.Kinds, kind)
		})
		if err != nil {
			return err
		}
	}
	cli.Set(&ns.Changes.Payloads, c.ChangePayloads)
	cli.SetDuration(&ns.Changes.Retention, c.ChangeRetention)
	if len(ns.Changes.GetKinds()) > 0 {
		return nil
	}
	ns.Changes = nil
	if c.ChangePayloads != nil || c.ChangeRetention != nil {
		return errors.New("--change-payloads and --change-retention require --changes KIND")
	}
	return nil
}

// retentionFlags configure how long processes are kept after their end.
type retentionFlags struct {
	Retention          *time.Duration `placeholder:"DURATION" help:"How long ended processes are kept. Default: without limit."`
	FailedRetention    *time.Duration `placeholder:"DURATION" help:"How long failed jobs and runs are kept. Default: --retention."`
	CancelledRetention *time.Duration `placeholder:"DURATION" help:"How long cancelled processes and jobs are kept. Default: --retention."`
}

func (namespacePutCmd) Help() string {
	return `Put creates a namespace, or replaces the whole configuration of an existing one. Settings that
neither the file nor the flags contain are reset to their defaults.

    progressor namespace put orders --connect-url http://127.0.0.1:9000 --step-timeout 10s
    progressor namespace put orders --connect-url http://127.0.0.1:9000/process --encoding json
    progressor namespace put play --builtin orders --history-mode none
    progressor namespace put mail --pull --retention 24h --failed-retention 720h
    progressor namespace put mail --pull --fairness-key job.metadata.tenant
    progressor namespace put orders --builtin orders --changes event,lifecycle --change-payloads
    progressor namespace put orders -f orders.yaml

To change one setting and keep the others, pass the output of get to put:

    progressor namespace get orders -o json | progressor namespace put orders -f - --retention 24h`
}

func (c *namespacePutCmd) Run(a *cli.App) error {
	ns := &progressorv1.Namespace{}
	if c.File != "" {
		text, err := a.ReadFile("--file", c.File)
		if err != nil {
			return err
		}
		if answer := new(progressorv1.GetNamespaceResponse); protoyaml.Unmarshal(text, answer) == nil &&
			answer.Namespace != nil {
			ns = answer.Namespace // the output of namespace get -o json
		} else if err := protoyaml.Unmarshal(text, ns); err != nil {
			return cli.UsageError(fmt.Errorf("--file %s: %w", c.File, err))
		}
		if ns.GetNamespace() != "" && ns.GetNamespace() != c.NS {
			return cli.UsageError(
				fmt.Errorf("--file %s contains namespace %s, not %s", c.File, ns.GetNamespace(), c.NS))
		}
	}
	ns.Namespace = c.NS
	if err := c.apply(a, ns); err != nil {
		return cli.UsageError(err)
	}
	if ns.GetProcessor() == nil {
		return cli.UsageError(
			errors.New("processor: is required: set --connect-url URL, --builtin NAME, --pull (workers poll for " +
				"tasks), or a --file with one"))
	}
	return cli.Show(a, c, c.Client().Namespace.PutNamespace,
		&progressorv1.PutNamespaceRequest{Namespace: ns}, printNamespace)
}

// apply sets the values of the flags in the namespace.
func (c *namespacePutCmd) apply(a *cli.App, ns *progressorv1.Namespace) error {
	if err := c.applyProcessor(a, ns); err != nil {
		return err
	}
	err := cmp.Or(
		cli.SetEnum("--history-mode", c.HistoryMode, func(m progressorv1.HistoryMode) { ns.HistoryMode = m }),
		cli.SetEnum("--job-events", c.JobEvents, func(e progressorv1.JobEvents) { ns.JobEvents = e }),
		cli.SetEnum("--zombie-policy", c.ZombiePolicy, func(p progressorv1.ZombiePolicy) { ns.ZombiePolicy = p }),
		c.applyChanges(ns),
	)
	if err != nil {
		return err
	}
	cli.SetDuration(&ns.StepTimeout, c.StepTimeout)
	cli.SetDuration(&ns.Retention, c.Retention)
	cli.SetDuration(&ns.FailedRetention, c.FailedRetention)
	cli.SetDuration(&ns.CancelledRetention, c.CancelledRetention)
	cli.Set(&ns.MaxRunning, c.MaxRunning)
	cli.Set(&ns.MaxBacklog, c.MaxBacklog)
	cli.Set(&ns.MaxWaiting, c.MaxWaiting)
	cli.Set(&ns.FairnessKey, c.FairnessKey)
	if c.CommandTo != nil {
		ns.CommandNamespaces = c.CommandTo
	}
	if (c.MaxAttempts != nil || c.RetryAfter != nil) && ns.RetryPolicy == nil {
		ns.RetryPolicy = &progressorv1.RetryPolicy{}
	}
	if ns.RetryPolicy != nil {
		cli.Set(&ns.RetryPolicy.MaxAttempts, c.MaxAttempts)
		cli.SetDuration(&ns.RetryPolicy.InitialInterval, c.RetryAfter)
	}
	return nil
}

func (c *namespacePutCmd) applyProcessor(a *cli.App, ns *progressorv1.Namespace) error {
	p := &progressorv1.ConnectProcessor{Headers: c.Header, SigningSecrets: c.SigningSecret, Checkpoints: c.Checkpoints}
	err := cmp.Or(
		cli.SetEnum("--encoding", c.Encoding, func(e progressorv1.ConnectProcessor_Encoding) { p.Encoding = e }),
		cli.SetEnum("--protocol", c.Protocol, func(v progressorv1.ConnectProcessor_Protocol) { p.Protocol = v }),
	)
	if err == nil && len(c.ConnectURL) == 0 {
		err = cli.Requires("--connect-url", c.setFlags())
	}
	if err != nil {
		return err
	}
	switch {
	case len(c.ConnectURL) > 0:
		p.Url, p.MoreUrls = c.ConnectURL[0], c.ConnectURL[1:]
		if p.Tls, err = a.TargetTLS("--connect-ca-file", c.ConnectCAFile, c.ConnectCertificate); err != nil {
			return err
		}
		ns.Processor = &progressorv1.ProcessorConfig{Transport: &progressorv1.ProcessorConfig_Connect{Connect: p}}
	case c.Builtin != "":
		ns.Processor = builtinProcessor(c.Builtin)
	case c.Pull:
		ns.Processor = &progressorv1.ProcessorConfig{
			Transport: &progressorv1.ProcessorConfig_Pull{Pull: &progressorv1.PullProcessor{}}}
	}
	return nil
}

func builtinProcessor(name string) *progressorv1.ProcessorConfig {
	return &progressorv1.ProcessorConfig{Transport: &progressorv1.ProcessorConfig_Builtin{
		Builtin: &progressorv1.BuiltinProcessor{Name: name},
	}}
}

type namespaceGetCmd struct {
	NS string `arg:"" name:"ns" help:"Namespace."`
	cli.ClientFlags
}

func (namespaceGetCmd) Help() string {
	return `Get shows the configuration of a namespace, without defaults.

    progressor namespace get demo`
}

func (c *namespaceGetCmd) Run(a *cli.App) error {
	return cli.Show(a, c, c.Client().Namespace.GetNamespace,
		&progressorv1.GetNamespaceRequest{Namespace: c.NS}, printNamespace)
}

type namespaceListCmd struct{ cli.ClientFlags }

func (namespaceListCmd) Help() string {
	return `List shows the namespaces, each with its processor, and whether it is paused.

    progressor namespace list
    progressor namespace list -o json`
}

func (c *namespaceListCmd) Run(a *cli.App) error {
	return cli.Ask(a, c.OutputFlag, c.all, &progressorv1.ListNamespacesRequest{},
		func(resp *progressorv1.ListNamespacesResponse) error {
			var rows []table.Row
			for _, ns := range resp.GetNamespaces() {
				rows = append(rows, table.Row{
					output.OneLine(ns.GetNamespace()), output.ShowProcessor(ns.GetProcessor()),
					output.Enum(ns.GetHistoryMode()),
					output.Duration(ns.GetStepTimeout().AsDuration()), showPaused(ns), output.Time(ns.GetCreatedTime()),
				})
			}
			none := cli.None("namespaces", "", false, "create one with progressor namespace put NAME")
			return output.PrintList(a.Stdout, none, table.Row{"namespace", "processor", output.Minor("history"),
				output.Minor("step timeout"), "paused", output.Minor("created")}, rows)
		})
}

// all reads all pages.
func (c *namespaceListCmd) all(
	ctx context.Context, r *progressorv1.ListNamespacesRequest,
) (*progressorv1.ListNamespacesResponse, error) {
	all, client := &progressorv1.ListNamespacesResponse{}, c.Client()
	for {
		page, err := client.Namespace.ListNamespaces(ctx, r)
		if err != nil {
			return nil, err
		}
		all.Namespaces = append(all.Namespaces, page.GetNamespaces()...)
		if r.PageToken = page.GetNextPageToken(); r.GetPageToken() == "" {
			return all, nil
		}
	}
}

type namespacePauseCmd struct {
	NS string `arg:"" name:"ns" help:"Namespace."`
	cli.ClientFlags
}

func (namespacePauseCmd) Help() string {
	return `Pause pauses a namespace: no task starts. Running tasks finish. Requests are accepted, and wait.

    progressor namespace pause demo`
}

func (c *namespacePauseCmd) Run(a *cli.App) error {
	return cli.Show(a, c, c.Client().Namespace.PauseNamespace,
		&progressorv1.PauseNamespaceRequest{Namespace: c.NS}, printNamespace)
}

type namespaceResumeCmd struct {
	NS string `arg:"" name:"ns" help:"Namespace."`
	cli.ClientFlags
}

func (namespaceResumeCmd) Help() string {
	return `Resume lets the tasks of a paused namespace start again.

    progressor namespace resume demo`
}

func (c *namespaceResumeCmd) Run(a *cli.App) error {
	return cli.Show(a, c, c.Client().Namespace.ResumeNamespace,
		&progressorv1.ResumeNamespaceRequest{Namespace: c.NS}, printNamespace)
}

// printNamespace prints the namespace of a response.
func printNamespace[P interface {
	GetNamespace() *progressorv1.Namespace
}](a *cli.App, resp P) error {
	ns := resp.GetNamespace()
	retry := ns.GetRetryPolicy()
	number := func(n int32) string { return output.ID(int64(n)) }
	return output.PrintFields(a.Stdout,
		output.Field{"namespace", output.OneLine(ns.GetNamespace())},
		output.Field{"processor", output.ShowProcessor(ns.GetProcessor())},
		output.Field{"paused", showPaused(ns)},
		output.Field{"deleting", showDeletion(ns.GetDeletion())},
		output.Field{"step timeout", output.Duration(ns.GetStepTimeout().AsDuration())},
		output.Field{"max running", number(ns.GetMaxRunning())},
		output.Field{"max backlog", number(ns.GetMaxBacklog())},
		output.Field{"max waiting", number(ns.GetMaxWaiting())},
		output.Field{"history mode", output.Enum(ns.GetHistoryMode())},
		output.Field{"job events", output.Enum(ns.GetJobEvents())},
		output.Field{"fairness key", output.OneLine(ns.GetFairnessKey())},
		output.Field{"commands to", output.OneLine(strings.Join(ns.GetCommandNamespaces(), ", "))},
		output.Field{"changes", showChanges(ns.GetChanges())},
		output.Field{"zombie policy", output.Enum(ns.GetZombiePolicy())},
		output.Field{"retention", output.Duration(ns.GetRetention().AsDuration())},
		output.Field{"  of failed", output.Duration(ns.GetFailedRetention().AsDuration())},
		output.Field{"  of cancelled", output.Duration(ns.GetCancelledRetention().AsDuration())},
		output.Field{"retry after", output.Duration(retry.GetInitialInterval().AsDuration())},
		output.Field{"retry max", output.Duration(retry.GetMaxInterval().AsDuration())},
		output.Field{"retry backoff coefficient", showFactor(retry.GetBackoffCoefficient())},
		output.Field{"retry jitter", showJitter(retry)},
		output.Field{"max attempts", number(retry.GetMaxAttempts())},
		output.Field{"non-retryable", output.OneLine(strings.Join(retry.GetNonRetryableErrors(), ", "))},
		output.Field{"created", output.Time(ns.GetCreatedTime())},
	)
}

// showChanges describes the recorded changes: their kinds, and the other settings.
func showChanges(c *progressorv1.ChangeSettings) string {
	var words []string
	for _, kind := range c.GetKinds() {
		words = append(words, output.Enum(kind))
	}
	text := strings.Join(words, ", ")
	if c.GetPayloads() {
		text += ", with payloads"
	}
	if d := c.GetRetention().AsDuration(); d > 0 {
		text += ", for " + output.Duration(d)
	}
	return text
}

func showFactor(f float64) string {
	if f == 0 {
		return ""
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

func showJitter(r *progressorv1.RetryPolicy) string {
	if r == nil || r.Jitter == nil {
		return ""
	}
	return strconv.FormatFloat(r.GetJitter(), 'g', -1, 64)
}

func showPaused(ns *progressorv1.Namespace) string {
	if ns.GetDeletion() != nil {
		return "deleting"
	}
	if ns.GetPaused() {
		return "yes"
	}
	return ""
}
