package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// limits is an engine whose limits are tested, with a client for each protocol.
type limits struct {
	t       *testing.T
	ctx     context.Context
	api     *client.Client
	console *client.Client // sends JSON over HTTP/1.1, as a browser does
	cli     clitest.Program
	db      *pgxpool.Pool
	n       int // number of IDs that were created
}

// limitsNamespace is a pull namespace with the longest name.
var limitsNamespace = strings.Repeat("n", 128)

func newLimits(t *testing.T) *limits {
	t.Helper()
	dsn := storagetest.DSN(t)
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", dsn)
	l := &limits{t: t, ctx: t.Context(), api: client.New(d.URL), cli: d.Client, db: storagetest.Connect(t, dsn)}
	l.console = client.New(d.URL, client.WithConnectOptions(connect.WithProtoJSON()))
	l.cli.OK(t, "namespace", "put", limitsNamespace, "--pull")
	return l
}

// id returns a new ID.
func (l *limits) id() string {
	l.n++
	return "id-" + strconv.Itoa(l.n)
}

// xs returns a text of n bytes that begins with a prefix.
func xs(prefix string, n int) string { return prefix + strings.Repeat("x", n-len(prefix)) }

// attributesOf returns a JSON object of n bytes, without spaces.
func attributesOf(n int) *structpb.Struct {
	const empty = len(`{"k":""}`)
	return &structpb.Struct{Fields: map[string]*structpb.Value{"k": structpb.NewStringValue(xs("", n-empty))}}
}

// setSize sets a field of a message to a value of n bytes, or of n elements if it is a list. text
// makes the text of a string field; nil means any text. A path has the form of paths in errors,
// such as options.tags[0].
func setSize(m protoreflect.Message, path string, n int, text func(n int) string) {
	name, rest, deeper := strings.Cut(path, ".")
	name, index, element := strings.Cut(name, "[")
	fd := m.Descriptor().Fields().ByName(protoreflect.Name(name))
	if fd == nil {
		panic(fmt.Sprintf("%s has no field %s", m.Descriptor().FullName(), name))
	}
	if element {
		at, _ := strconv.Atoi(strings.TrimSuffix(index, "]"))
		list := m.Mutable(fd).List()
		for list.Len() <= at {
			list.Append(list.NewElement())
		}
		if deeper {
			setSize(list.Get(at).Message(), rest, n, text)
		} else {
			list.Set(at, sized(fd, n, text))
		}
		return
	}
	switch {
	case deeper:
		setSize(m.Mutable(fd).Message(), rest, n, text)
	case fd.IsList():
		list := m.Mutable(fd).List()
		for list.Len() < n {
			if fd.Kind() == protoreflect.MessageKind {
				list.Append(list.NewElement())
			} else {
				list.Append(protoreflect.ValueOfString("e" + strconv.Itoa(list.Len())))
			}
		}
	default:
		m.Set(fd, sized(fd, n, text))
	}
}

// setDepth sets a field of a message to a JSON value of n nested objects.
func setDepth(m protoreflect.Message, path string, n int) {
	name, rest, deeper := strings.Cut(path, ".")
	fd := m.Descriptor().Fields().ByName(protoreflect.Name(name))
	if deeper {
		setDepth(m.Mutable(fd).Message(), rest, n)
		return
	}
	object := &structpb.Struct{}
	for range n - 1 {
		object = &structpb.Struct{Fields: map[string]*structpb.Value{"k": structpb.NewStructValue(object)}}
	}
	var value proto.Message = object
	if fd.Message().FullName() == "google.protobuf.Value" {
		value = structpb.NewStructValue(object)
	}
	m.Set(fd, protoreflect.ValueOfMessage(value.ProtoReflect()))
}

// sized returns a value of n bytes for a field.
func sized(fd protoreflect.FieldDescriptor, n int, text func(n int) string) protoreflect.Value {
	if text == nil {
		text = func(n int) string { return xs("", n) }
	}
	switch fd.Kind() {
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(text(n)))
	case protoreflect.MessageKind:
		if fd.Message().FullName() == "google.protobuf.Struct" {
			return protoreflect.ValueOfMessage(attributesOf(n).ProtoReflect())
		}
		return protoreflect.ValueOfMessage(structpb.NewStringValue(text(n - len(`""`))).ProtoReflect())
	}
	return protoreflect.ValueOfString(text(n))
}

// request is a method with a valid request and the limits of its fields.
type request struct {
	method string
	send   func(context.Context, proto.Message) error
	base   func() proto.Message // valid, with a new ID
	bounds []bound
}

// bound is the largest size of a field, in bytes, or in elements of a list.
type bound struct {
	field string // path of the field
	most  int
	text  func(n int) string           // returns a valid value with the size n; if nil, any text is valid
	fill  func(m proto.Message, n int) // sets a field that setSize cannot set
	deep  bool                         // most is a depth of a JSON value, not a size
	want  string                       // text of the error if the error does not contain field and most
}

// set sets the field to a value of n bytes, elements or levels.
func (b *bound) set(m proto.Message, n int) {
	switch {
	case b.fill != nil:
		b.fill(m, n)
	case b.deep:
		setDepth(m.ProtoReflect(), b.field, n)
	default:
		setSize(m.ProtoReflect(), b.field, n, b.text)
	}
}

// sends adapts a method of the client to request.send. It ignores the response.
func sends[Q, R any](call func(context.Context, *Q) (*R, error)) func(context.Context, proto.Message) error {
	return func(ctx context.Context, m proto.Message) error {
		_, err := call(ctx, any(m).(*Q))
		return err
	}
}

// TestFieldsHaveLimits checks that the largest value of each field is accepted. A value with one
// more byte, element or level must be rejected with an error that names the field and its limit.
func TestFieldsHaveLimits(t *testing.T) {
	t.Parallel()
	l := newLimits(t)
	l.send(t, l.processRequests(), l.otherRequests(), l.listRequests(), l.commandRequests())
}

// TestFieldsFromTheConsoleHaveLimits sends most of these values in the same way as the console.
func TestFieldsFromTheConsoleHaveLimits(t *testing.T) {
	t.Parallel()
	l := newLimits(t)
	l.api = l.console
	l.send(t, l.processRequests(), l.otherRequests(), l.listRequests())
}

func (l *limits) send(t *testing.T, requests ...[]request) {
	for _, r := range slices.Concat(requests...) {
		for _, b := range r.bounds {
			t.Run(r.method+"/"+b.field, func(t *testing.T) {
				m := r.base()
				b.set(m, b.most)
				if err := r.send(t.Context(), m); err != nil {
					t.Errorf("%d is rejected: %v", b.most, err)
				}
				m = r.base()
				b.set(m, b.most+1)
				err := r.send(t.Context(), m)
				if connect.CodeOf(err) != connect.CodeInvalidArgument || !namesLimit(err.Error(), b) {
					t.Errorf("%d: %v", b.most+1, err)
				}
			})
		}
	}
}

// namesLimit reports whether an error names a field and its limit.
func namesLimit(text string, b bound) bool {
	switch {
	case b.want != "":
		return strings.Contains(text, b.want)
	case b.deep:
		return strings.Contains(text, b.field) &&
			strings.Contains(text, fmt.Sprintf("deeper than %d objects and lists", b.most))
	}
	return strings.Contains(text, b.field+": ") && strings.Contains(text, strconv.Itoa(b.most))
}

func (l *limits) processRequests() []request {
	const payload, metadata = 1 << 20, 64 << 10
	start := func() proto.Message {
		return &progressorv1.StartRequest{Namespace: limitsNamespace, ProcessId: l.id(),
			Wait: progressorv1.Wait_WAIT_ACCEPTED}
	}
	put := func(status progressorv1.ProcessStatus) string {
		id := l.id()
		if _, err := l.api.Process.PutProcess(l.ctx,
			&progressorv1.PutProcessRequest{Namespace: limitsNamespace, ProcessId: id, Status: status}); err != nil {
			l.t.Fatal(err)
		}
		return id
	}
	running, broken := progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING,
		progressorv1.ProcessStatus_PROCESS_STATUS_ERROR
	return []request{
		{"PutNamespace", sends(l.api.Namespace.PutNamespace), func() proto.Message {
			return &progressorv1.PutNamespaceRequest{
				Namespace: &progressorv1.Namespace{Namespace: l.id(), Processor: &progressorv1.ProcessorConfig{
					Transport: &progressorv1.ProcessorConfig_Connect{Connect: &progressorv1.ConnectProcessor{Url: "http://127.0.0.1:1"}},
				}}}
		}, []bound{
			{field: "namespace.namespace", most: 128},
			{field: "namespace.processor.connect.url", most: 2048, text: func(n int) string { return xs("http://127.0.0.1:1/", n) }},
			{field: "namespace.fairness_key", most: 16 << 10, text: quoted},
			{field: "namespace.retry_policy.non_retryable_errors", most: 100},
			{field: "namespace.retry_policy.non_retryable_errors[0]", most: 256},
			{field: "namespace.processor.connect.more_urls", most: 15, fill: fillURLs},
			{field: "namespace.processor.connect.headers", most: 100, fill: fillHeaders},
			{field: "namespace.processor.connect.headers", most: 256, fill: fillHeaderName,
				want: "must be at most 256 bytes"},
			{field: "namespace.processor.connect.headers", most: 8 << 10, fill: fillHeaderValue,
				want: `headers["h"]: must be at most 8192 bytes`},
			{field: "namespace.processor.connect.headers", most: 64 << 10, fill: fillAllHeaders},
		}},
		{"Start", sends(l.api.Start), start, []bound{
			{field: "process_id", most: 256, text: func(n int) string { return xs(l.id(), n) }},
			{field: "args", most: payload}, {field: "context", most: payload}, {field: "metadata", most: metadata},
			{field: "metadata", most: 100, deep: true},
			{field: "idempotency_key", most: 256, text: func(n int) string { return xs(l.id(), n) }},
		}},
		{"Call", sends(l.api.Call), func() proto.Message {
			return &progressorv1.CallRequest{Namespace: limitsNamespace, ProcessId: put(running),
				Wait: progressorv1.Wait_WAIT_ACCEPTED}
		}, []bound{{field: "args", most: payload}, {field: "context", most: payload},
			{field: "idempotency_key", most: 256}}},
		{"Repair", sends(l.api.Repair), func() proto.Message {
			return &progressorv1.RepairRequest{
				Namespace: limitsNamespace, ProcessId: put(broken), Wait: progressorv1.Wait_WAIT_ACCEPTED,
				How: &progressorv1.RepairRequest_Processor{Processor: &progressorv1.RepairRequest_ProcessorRepair{}},
			}
		}, []bound{{field: "processor.args", most: payload}, {field: "context", most: payload},
			{field: "idempotency_key", most: 256}}},
		{"PutProcess", sends(l.api.Process.PutProcess), func() proto.Message {
			return &progressorv1.PutProcessRequest{Namespace: limitsNamespace, ProcessId: l.id(), Status: broken}
		}, []bound{
			{field: "detail", most: 64 << 10}, {field: "aux_state", most: payload}, {field: "metadata", most: metadata},
			{field: "context", most: payload},
			{field: "metadata", most: 100, deep: true}, {field: "timers", most: 100, fill: fillTimers},
			{field: "history", most: 100_000, fill: fillHistory},
		}},
		{"PutProcess with an event", sends(l.api.Process.PutProcess), func() proto.Message {
			return &progressorv1.PutProcessRequest{Namespace: limitsNamespace, ProcessId: l.id(), Status: running,
				History: []*progressorv1.Event{{EventId: 1}}}
		}, []bound{{field: "history[0].payload", most: payload}, {field: "history[0].metadata", most: metadata}}},
		{"SuspendProcess", sends(l.api.Process.SuspendProcess), func() proto.Message {
			return &progressorv1.SuspendProcessRequest{Namespace: limitsNamespace, ProcessId: put(running)}
		}, []bound{{field: "reason", most: 4096}}},
		{"CancelProcess", sends(l.api.Process.CancelProcess), func() proto.Message {
			return &progressorv1.CancelProcessRequest{Namespace: limitsNamespace, ProcessId: put(running)}
		}, []bound{{field: "reason", most: 4096}}},
		{"StartBulk", sends(l.api.Bulk.StartBulk), func() proto.Message {
			return &progressorv1.StartBulkRequest{Namespace: limitsNamespace,
				Verb: progressorv1.BulkVerb_BULK_VERB_SUSPEND, Filter: `process_id = "none"`}
		}, []bound{
			{field: "reason", most: 4096},
			{field: "idempotency_key", most: 256, text: func(n int) string { return xs(l.id(), n) }},
			{field: "filter", most: 16 << 10,
				text: func(n int) string { return `process_id = "` + xs("", n-15) + `"` }},
		}},
		{"ListProcesses", sends(l.api.Process.ListProcesses), func() proto.Message {
			return &progressorv1.ListProcessesRequest{Namespace: limitsNamespace, PageSize: 1}
		}, []bound{{field: "filter", most: 16 << 10,
			text: func(n int) string { return `process_id = "` + xs("", n-15) + `"` }}}},
	}
}

// TestSQLFunctionsHaveLimits calls the SQL functions for applications with the largest values, and
// with one more byte.
func TestSQLFunctionsHaveLimits(t *testing.T) {
	t.Parallel()
	l := newLimits(t)
	bytes := func(n int) any { return []byte(xs("", n)) }
	text := func(n int) any { return xs(l.id(), n) }
	object := func(n int) any { return `{"k": "` + xs("", n-len(`{"k": ""}`)) + `"}` } // as PostgreSQL writes it
	value := func(n int) any { return `"` + xs("", n-2) + `"` }
	nested := func(n int) any { return strings.Repeat(`{"k":`, n) + "1" + strings.Repeat("}", n) }
	number := func(n int) any { return n }
	for _, c := range []struct {
		call, want string
		most       int
		value      func(n int) any
	}{
		{"start($1, $2, NULL)", "process_id", 256, text},
		{"start($1, 'args', $2)", "args", 1 << 20, bytes},
		{"start($1, 'metadata', NULL, $2::text::jsonb)", "metadata", 64 << 10, object},
		{"start($1, 'deep', NULL, $2::text::jsonb)", "deeper", 100, nested},
		{"notify($1, $2, NULL)", "process_id", 256, text},
		{"notify($1, 'args', $2)", "args", 1 << 20, bytes},
		{"cancel($1, $2)", "process_id", 256, text},
		{"cancel($1, 'args', $2)", "reason", 4096, text},
		{"enqueue($1, $2)", "name", 256, text},
		{"enqueue($1, 'job', args => $2::text::jsonb)", "args", 1 << 20, value},
		{"enqueue($1, 'job', args => $2::text::jsonb)", "deeper", 100, nested},
		{"enqueue($1, 'job', tags => array_fill('t'::text, ARRAY[$2::int]))", "tags", 100, number},
		{"enqueue($1, 'job', backoff => array_fill('1 s'::interval, ARRAY[$2::int]))", "backoff", 1000, number},
		{"enqueue($1, 'job', job_id => $2)", "job_id", 256, text},
		{"enqueue($1, 'job', metadata => $2::text::jsonb)", "metadata", 64 << 10, object},
		{"enqueue($1, 'job', tags => ARRAY[$2])", "tag", 256, text},
		{"enqueue($1, 'job', unique_key => $2)", "unique_key", 256, text},
	} {
		t.Run(c.call, func(t *testing.T) {
			call := "SELECT progressor." + c.call
			if _, err := l.db.Exec(t.Context(), call, limitsNamespace, c.value(c.most)); err != nil {
				t.Errorf("%d bytes were rejected: %v", c.most, err)
			}
			_, err := l.db.Exec(t.Context(), call, limitsNamespace, c.value(c.most+1))
			var pg *pgconn.PgError
			if !errors.As(err, &pg) || pg.Code != "22023" || !strings.Contains(pg.Message, c.want) ||
				!strings.Contains(pg.Message, strconv.Itoa(c.most)) {
				t.Errorf("%d bytes: %v", c.most+1, err)
			}
		})
	}
	clitest.Eventually(t, "all messages are delivered", func() error {
		var n int
		err := l.db.QueryRow(t.Context(), "SELECT count(*) FROM progressor.messages").Scan(&n)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d messages", n)
		}
		return err
	})
}
