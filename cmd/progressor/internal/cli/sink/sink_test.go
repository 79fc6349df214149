package sink

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func newCommands(string) any { return new(Commands) }

func shown() *progressorv1.Sink {
	return &progressorv1.Sink{
		Namespace: "orders", SinkId: "audit",
		Kinds: []progressorv1.ChangeKind{progressorv1.ChangeKind_CHANGE_KIND_EVENT},
		Target: &progressorv1.Sink_Webhook{
			Webhook: &progressorv1.WebhookTarget{Url: "https://example.com/x", Signed: true},
		},
		Status: &progressorv1.SinkStatus{
			State: progressorv1.SinkState_SINK_STATE_FAILING, LagChanges: 1234, Lag: durationpb.New(90 * time.Second),
			DeliveredChanges: 5, LastError: "HTTP 500", Failures: 3, DeadLetters: 1,
			RecentDeadLetters: []*progressorv1.SinkDeadLetter{{
				ChangeId: 7, ProcessId: "p", Kind: progressorv1.ChangeKind_CHANGE_KIND_EVENT, Type: "stored",
				Error: "HTTP 413", Attempts: 2,
			}},
			StoredDeadLetters: 1, Retries: 1,
		},
	}
}

// Put reads a file or the output of get -o json. The arguments and the file must agree.
func TestPut(t *testing.T) {
	f := &clitest.Engine{Sink: shown()}
	p := clitest.Serve(t, newCommands, f)
	file := filepath.Join(t.TempDir(), "sink.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("sink_id: audit\nkinds: [event]\nfilter: change.event_id > 1\nmax_lag: 1h\n" +
		"webhook: {url: 'https://example.com/x', secrets: [whsec_x]}\n")
	out := p.OK(t, "sink", "put", "orders", "-f", file, "--from", "1970-01-01")
	clitest.WantLines(t, out, "sink orders/audit", "state failing", "lag 1,234 changes, the oldest 1m30s old",
		"signed yes")
	wanted := &progressorv1.PutSinkRequest{FromTime: timestamppb.New(time.Unix(0, 0)), Sink: &progressorv1.Sink{
		Namespace: "orders", SinkId: "audit", Kinds: shown().GetKinds(), Filter: "change.event_id > 1",
		MaxLag: durationpb.New(time.Hour), Target: &progressorv1.Sink_Webhook{
			Webhook: &progressorv1.WebhookTarget{Url: "https://example.com/x", Secrets: []string{"whsec_x"}},
		},
	}}
	clitest.WantRequest(t, f.Last, wanted)
	got := p.OK(t, "sink", "get", "orders", "audit", "-o", "json")
	write(got)
	p.OK(t, "sink", "put", "orders", "-f", file)
	again := shown()
	again.Status = nil
	clitest.WantRequest(t, f.Last, &progressorv1.PutSinkRequest{Sink: again})
	nameless := filepath.Join(t.TempDir(), "nameless.yaml")
	if err := os.WriteFile(nameless, []byte("kinds: [event]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, wanted := range map[string]string{
		"put other -f " + file:      "contains a sink of namespace orders, not other",
		"put orders x -f " + file:   "contains sink audit, not x",
		"put orders -f " + nameless: "<id>: is required",
	} {
		r := p.Run(t, append([]string{"sink"}, strings.Fields(args)...)...)
		if r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, wanted) {
			t.Errorf("%s: %+v", args, r)
		}
	}
	f.Err = clitest.EngineError(connect.CodeInvalidArgument, "sink.webhook.url: must be http://HOST/PATH",
		&progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_INVALID, Field: "sink.webhook.url"})
	r := p.Run(t, "sink", "put", "orders", "-f", file)
	if r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, "webhook.url: must be http") ||
		strings.Contains(r.Stderr, "sink.webhook") {
		t.Errorf("%+v", r)
	}
}

// The other commands send their request and show the sink.
func TestCommands(t *testing.T) {
	f := &clitest.Engine{Sink: shown()}
	p := clitest.Serve(t, newCommands, f)
	at := time.Date(2026, 11, 26, 10, 0, 0, 0, time.UTC)
	const ns, id = "orders", "audit"
	for args, wanted := range map[string]proto.Message{
		"get orders audit":    &progressorv1.GetSinkRequest{Namespace: ns, SinkId: id},
		"pause orders audit":  &progressorv1.PauseSinkRequest{Namespace: ns, SinkId: id},
		"resume orders audit": &progressorv1.ResumeSinkRequest{Namespace: ns, SinkId: id},
		"rewind orders audit 2026-11-26T10:00:00Z": &progressorv1.RewindSinkRequest{
			Namespace: ns, SinkId: id, ToTime: timestamppb.New(at),
		},
	} {
		out := p.OK(t, append([]string{"sink"}, strings.Fields(args)...)...)
		clitest.WantLines(t, out, "sink orders/audit", "last error HTTP 500")
		clitest.WantRequest(t, f.Last, wanted)
	}
	clitest.WantLines(t, p.OK(t, "sink", "get", "orders", "audit"), "7 p event stored 2 HTTP 413",
		"dead letters 1, 1 to be delivered again")
	clitest.WantLines(t, p.OK(t, "sink", "list"),
		"orders audit failing 1,234 1m30s 5 1 https://example.com/x")
	clitest.WantRequest(t, f.Last, &progressorv1.ListSinksRequest{})
	clitest.WantLines(t, p.OK(t, "sink", "delete", "orders", "audit"), "state deleted")
	clitest.WantRequest(t, f.Last, &progressorv1.DeleteSinkRequest{Namespace: "orders", SinkId: "audit"})
}
