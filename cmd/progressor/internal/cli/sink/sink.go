package sink

import (
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/protoyaml"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Commands are the commands that manage sinks.
type Commands struct {
	Sink sinkCmd `cmd:"" group:"namespace" help:"Manage sinks, which deliver changes to webhooks and Kafka."`
}

type sinkCmd struct {
	Put    sinkPutCmd    `cmd:"" help:"Create a sink, or replace its settings."`
	Get    sinkGetCmd    `cmd:"" help:"Show a sink: its settings, state, lag, last error and dead letters."`
	List   sinkListCmd   `cmd:"" help:"List sinks with their state and lag."`
	Pause  sinkPauseCmd  `cmd:"" help:"Pause a sink. It keeps its position."`
	Resume sinkResumeCmd `cmd:"" help:"Resume a paused, broken or disabled sink, or retry a failed delivery now."`
	Rewind sinkRewindCmd `cmd:"" help:"Move a sink to a time, to deliver changes again or to skip them."`
	Retry  sinkRetryCmd  `cmd:"" help:"Deliver dead letters again."`
	Delete sinkDeleteCmd `cmd:"" help:"Delete a sink with its dead letters."`
}

// sinkArgs identify a sink.
type sinkArgs struct {
	NS string `arg:"" name:"ns" help:"Namespace."`
	ID string `arg:"" name:"id" complete:"sink" help:"Sink id."`
}

type sinkPutCmd struct {
	NS string `arg:"" name:"ns" help:"Namespace."`
	ID string `arg:"" optional:"" name:"id" complete:"sink" help:"Sink id. Default: sink_id of the file."`

	cli.ClientFlags
	File string `short:"f" required:"" placeholder:"FILE|-" help:"A Sink as YAML or JSON, or the output of get -o json."`
	From string `field:"from_time" placeholder:"TIME|DURATION" help:"A new sink begins with the changes since this time, such as 2026-11-26T10:00:00Z, -2h or 1970-01-01 (all). Default: now."`
}

func (sinkPutCmd) Help() string {
	return `Put creates a sink, or replaces the settings of an existing one, which continues at its
position. The namespace must record changes: see progressor namespace put --changes. See
docs/changes.md for the settings.

    progressor sink put orders -f sink.yaml
    progressor sink put orders audit -f sink.yaml --from -2h

The file for a webhook:

    sink_id: audit
    kinds: [lifecycle]
    filter: change.type in ["failed", "completed"]
    webhook:
      url: https://example.com/progressor
      secrets: [whsec_c2VjcmV0LWtleS1mb3ItdGhlLWV4YW1wbGU=]

The file for Kafka:

    sink_id: stream
    kafka:
      brokers: ["kafka-1:9092", "kafka-2:9092"]
      topic: progressor.{namespace}

Secrets are never shown. Without secrets, put keeps the stored ones:

    progressor sink get orders audit -o json > audit.json
    progressor sink put orders -f audit.json`
}

func (c *sinkPutCmd) Run(a *cli.App) error {
	m, err := c.read(a)
	if err != nil {
		return err
	}
	req := &progressorv1.PutSinkRequest{Sink: m}
	if req.FromTime, err = cli.TimeFrom("--from", c.From); err != nil {
		return err
	}
	err = cli.Show(a, c, c.Client().Change.PutSink, req, printSink)
	return inFile(err)
}

// read reads the file.
func (c *sinkPutCmd) read(a *cli.App) (*progressorv1.Sink, error) {
	text, err := a.ReadFile("--file", c.File)
	if err != nil {
		return nil, err
	}
	m := &progressorv1.Sink{}
	if answer := new(progressorv1.GetSinkResponse); protoyaml.Unmarshal(text, answer) == nil && answer.Sink != nil {
		m = answer.Sink // the output of get -o json
	} else if err := protoyaml.Unmarshal(text, m); err != nil {
		return nil, cli.UsageError(fmt.Errorf("--file %s: %w", c.File, err))
	}
	switch {
	case m.GetNamespace() != "" && m.GetNamespace() != c.NS:
		err = fmt.Errorf("--file %s contains a sink of namespace %s, not %s", c.File, m.GetNamespace(), c.NS)
	case c.ID != "" && m.GetSinkId() != "" && m.GetSinkId() != c.ID:
		err = fmt.Errorf("--file %s contains sink %s, not %s", c.File, m.GetSinkId(), c.ID)
	case c.ID == "" && m.GetSinkId() == "":
		err = fmt.Errorf("<id>: is required, unless --file %s contains sink_id", c.File)
	}
	if err != nil {
		return nil, cli.UsageError(err)
	}
	m.Namespace = c.NS
	if c.ID != "" {
		m.SinkId = c.ID
	}
	m.Status = nil
	return m, nil
}

// inFile converts an error about a field of the request to one about the field of the file: it
// removes the prefix "sink.".
func inFile(err error) error {
	d := client.Detail(err)
	field, ok := strings.CutPrefix(d.GetField(), "sink.")
	connected, isConnect := errors.AsType[*connect.Error](err)
	if !ok || !isConnect || d.GetReason() != progressorv1.ErrorDetail_REASON_INVALID {
		return err
	}
	return cli.UsageError(errors.New(field + strings.TrimPrefix(connected.Message(), d.GetField())))
}

type sinkGetCmd struct {
	sinkArgs
	cli.ClientFlags
}

func (sinkGetCmd) Help() string {
	return `Get shows a sink: its settings without secrets, its state, how far it lags, its last error and its
newest dead letters. The output of get -o json can be edited and passed to put -f.

    progressor sink get orders audit
    progressor sink get orders audit -o json`
}

func (c *sinkGetCmd) Run(a *cli.App) error {
	return cli.Show(a, c, c.Client().Change.GetSink,
		&progressorv1.GetSinkRequest{Namespace: c.NS, SinkId: c.ID}, printSink)
}

type sinkListCmd struct {
	NS string `arg:"" optional:"" name:"ns" help:"Namespace. Default: all."`

	cli.ClientFlags
	cli.PageFlags `set:"rows=sinks"`
}

func (sinkListCmd) Help() string {
	return `List shows the sinks of a namespace, or of all namespaces. For each sink it shows the state, the
number of changes that are not delivered, and the age of the oldest of these changes.

    progressor sink list
    progressor sink list orders -o json`
}

func (c *sinkListCmd) Run(a *cli.App) error {
	return cli.PrintPages(a, c, c.Client().Change.ListSinks,
		&progressorv1.ListSinksRequest{Namespace: c.NS},
		func(all *progressorv1.ListSinksResponse) error {
			var rows []table.Row
			for _, m := range all.GetSinks() {
				s := m.GetStatus()
				rows = append(rows, table.Row{
					m.GetNamespace(), m.GetSinkId(), stateName(s), output.Thousands(s.GetLagChanges()),
					output.Duration(s.GetLag().AsDuration()), output.Thousands(s.GetDeliveredChanges()),
					output.Thousands(s.GetStoredDeadLetters()), target(m),
				})
			}
			none := cli.None("sinks", c.NS, false, "store one with progressor sink put NS -f FILE")
			return output.PrintList(a.Stdout, none,
				table.Row{output.MinorIf(c.NS != "", "namespace"), "sink", "state", "lag", output.Minor("age"),
					output.Minor("delivered"), "dead letters", "target"}, rows)
		})
}

func stateName(s *progressorv1.SinkStatus) string { return strings.ToLower(output.Enum(s.GetState())) }

func target(m *progressorv1.Sink) string {
	if k := m.GetKafka(); k != nil {
		return output.OneLine("topic " + k.GetTopic() + " at " + strings.Join(k.GetBrokers(), ", "))
	}
	return output.OneLine(m.GetWebhook().GetUrl())
}

// printSink prints the sink of a response.
func printSink[P interface{ GetSink() *progressorv1.Sink }](a *cli.App, resp P) error {
	m := resp.GetSink()
	s := m.GetStatus()
	var kinds []string
	for _, kind := range m.GetKinds() {
		kinds = append(kinds, strings.ToLower(output.Enum(kind)))
	}
	signed := ""
	if hook := m.GetWebhook(); hook != nil {
		signed = map[bool]string{false: "no", true: "yes"}[hook.GetSigned()]
	}
	err := output.PrintFields(a.Stdout,
		output.Field{"sink", m.GetNamespace() + "/" + m.GetSinkId()},
		output.Field{"state", stateName(s)},
		output.Field{"lag", lag(s)},
		output.Field{"delivered", output.Thousands(s.GetDeliveredChanges())},
		output.Field{"last delivery", output.Time(s.GetDeliveredTime())},
		output.Field{"failures", output.ID(int64(s.GetFailures()))},
		output.Field{"last error", output.OneLine(s.GetLastError())},
		output.Field{"error time", output.Time(s.GetLastErrorTime())},
		output.Field{"next attempt", output.Time(s.GetNextAttemptTime())},
		output.Field{"node", output.ID(s.GetNodeId())},
		output.Field{"kinds", strings.Join(kinds, ", ")},
		output.Field{"filter", output.OneLine(m.GetFilter())},
		output.Field{"target", target(m)},
		output.Field{"signed", signed},
		output.Field{"format", strings.ToLower(output.Enum(m.GetFormat()))},
		output.Field{"max lag", output.Duration(m.GetMaxLag().AsDuration())},
		output.Field{"dead letters", showDeadLetters(s)},
		output.Field{"created", output.Time(m.GetCreatedTime())},
		output.Field{"updated", output.Time(m.GetUpdatedTime())},
	)
	if err != nil || len(s.GetRecentDeadLetters()) == 0 {
		return err
	}
	fmt.Fprintln(a.Stdout)
	return printDeadLetters(a, s.GetRecentDeadLetters())
}

func lag(s *progressorv1.SinkStatus) string {
	if s.GetLagChanges() == 0 {
		return "none"
	}
	return fmt.Sprintf("%s changes, the oldest %s old", output.Thousands(s.GetLagChanges()),
		output.Duration(s.GetLag().AsDuration()))
}

type sinkPauseCmd struct {
	sinkArgs
	cli.ClientFlags
}

func (sinkPauseCmd) Help() string {
	return `Pause stops the deliveries of a sink. The engine keeps its changes, but for at most max_lag.

    progressor sink pause orders audit`
}

func (c *sinkPauseCmd) Run(a *cli.App) error {
	return cli.Show(a, c, c.Client().Change.PauseSink,
		&progressorv1.PauseSinkRequest{Namespace: c.NS, SinkId: c.ID}, printSink)
}

type sinkResumeCmd struct {
	sinkArgs
	cli.ClientFlags
}

func (sinkResumeCmd) Help() string {
	return `Resume activates a sink that is paused, broken or disabled. If the sink is failing, the engine
retries the delivery now.

    progressor sink resume orders audit`
}

func (c *sinkResumeCmd) Run(a *cli.App) error {
	return cli.Show(a, c, c.Client().Change.ResumeSink,
		&progressorv1.ResumeSinkRequest{Namespace: c.NS, SinkId: c.ID}, printSink)
}

type sinkRewindCmd struct {
	sinkArgs
	To string `arg:"" name:"time" help:"A time such as 2026-11-26T10:00:00Z, or a duration before now such as -2h. 1970-01-01 means the oldest change, 0s skips all changes."`

	cli.ClientFlags
}

func (sinkRewindCmd) Help() string {
	return `Rewind moves a sink to a time. It then delivers all changes since this time again. With
a time after its position, it skips the changes in between. The sink keeps its state.

    progressor sink rewind orders audit 2026-11-26T10:00:00Z
    progressor sink rewind orders audit -- -2h
    progressor sink rewind orders audit 1970-01-01
    progressor sink rewind orders audit 0s`
}

func (c *sinkRewindCmd) Run(a *cli.App) error {
	to, err := cli.TimeFrom("<time>", c.To)
	if err != nil {
		return err
	}
	return cli.Show(a, c, c.Client().Change.RewindSink,
		&progressorv1.RewindSinkRequest{Namespace: c.NS, SinkId: c.ID, ToTime: to}, printSink)
}

type sinkDeleteCmd struct {
	sinkArgs
	cli.ClientFlags
}

func (sinkDeleteCmd) Help() string {
	return `Delete deletes a sink with its dead letters. Its target receives no more changes.

    progressor sink delete orders audit`
}

func (c *sinkDeleteCmd) Run(a *cli.App) error {
	return cli.Ask(a, c.OutputFlag, c.Client().Change.DeleteSink,
		&progressorv1.DeleteSinkRequest{Namespace: c.NS, SinkId: c.ID},
		func(*progressorv1.DeleteSinkResponse) error {
			return output.PrintFields(a.Stdout, output.Field{"sink", c.NS + "/" + c.ID},
				output.Field{"state", "deleted"})
		})
}
