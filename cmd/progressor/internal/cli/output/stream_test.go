package output

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// terminal returns a stream that is a terminal of the given width.
func terminal(w io.Writer, columns int) Stream {
	return Stream{w, Style{Colors: true, Size: func() (int, int) { return columns, 24 }, Zone: time.UTC}}
}

// On a terminal, the long cells of a table are cut until each row fits. IDs, times, statuses and
// numbers are cut last. In a pipe, nothing is cut.
func TestTablesFitTheTerminal(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a long explanation, ", 10)
	header := table.Row{"process", "status", "since", "events", "detail", "metadata", "paused"}
	rows := []table.Row{
		{"order-2026-0001", "ERROR", Time(timestamppb.Now()), 12, long, `{"tenant":"acme"}`, ""},
		{"order-2", "RUNNING", Time(timestamppb.Now()), 3, "", "生命生命生命生命生命生命生命生命"},
	}
	for columns := 66; columns <= 300; columns++ {
		var b strings.Builder
		if err := PrintRows(terminal(&b, columns), header, rows); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if width := text.StringWidthWithoutEscSequences(strings.TrimSuffix(line, "\n")); width > columns {
				t.Fatalf("%d columns of %d: %q", width, columns, line)
			}
		}
		if !strings.Contains(b.String(), "order-2026-0001") || !strings.Contains(b.String(), "RUNNING") {
			t.Fatalf("%d columns:\n%s", columns, b.String())
		}
		const brief = 15 + 7 + 8 + 6 + 200 + 32 + 5*2
		if cut := strings.Contains(b.String(), "…"); cut != (columns < brief) {
			t.Fatalf("%d columns, cut is %v:\n%s", columns, cut, b.String())
		}
		if precise := strings.Contains(b.String(), "."); precise != (columns >= brief+4) {
			t.Fatalf("%d columns, fractions are shown: %v\n%s", columns, precise, b.String())
		}
		if empty := strings.Contains(b.String(), "PAUSED"); empty != (columns >= brief+4+2+6) {
			t.Fatalf("%d columns, the empty column is shown: %v\n%s", columns, empty, b.String())
		}
	}
	var pipe strings.Builder
	if err := PrintRows(&pipe, header, rows); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(pipe.String(), strings.TrimSpace(long)) || strings.ContainsAny(pipe.String(), "…\x1b") {
		t.Errorf("in a pipe:\n%s", pipe.String())
	}
}

// If texts would be cut below a readable width, Minor columns are omitted instead, beginning at the
// left.
func TestMinorColumns(t *testing.T) {
	t.Parallel()
	words := "at 02:30 on every working day of the week"
	header := table.Row{"cron", "state", Minor("last fire"), "next fire", Minor("running"), "fires"}
	at := timestamppb.New(time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)) // with its date, 19 characters
	rows := []table.Row{{"nightly-report", "active", Time(at), Time(at), 0, words}}
	const all, needed = 14 + 6 + 19 + 19 + 7 + 41 + 5*2, 14 + 6 + 19 + 19 + 7 + readable + 5*2
	for columns := needed - 19 - 7 - 2*2; columns <= all; columns++ {
		var b strings.Builder
		if err := PrintRows(terminal(&b, columns), header, rows, "running"); err != nil {
			t.Fatal(err)
		}
		for title, want := range map[string]bool{
			"LAST FIRE": columns >= needed, "RUNNING": columns >= needed-19-2, words[:readable-1]: true,
		} {
			if strings.Contains(b.String(), title) != want {
				t.Fatalf("%d columns, %q is shown: %v\n%s", columns, title, !want, b.String())
			}
		}
	}
	var pipe strings.Builder
	if err := PrintRows(&pipe, header, rows); err != nil || !strings.Contains(pipe.String(), "LAST FIRE") {
		t.Errorf("in a pipe: %v\n%s", err, pipe.String())
	}
}

// On a terminal, the output for an empty list says what is empty. In a pipe, it is the same word
// for all lists.
func TestEmptyLists(t *testing.T) {
	t.Parallel()
	var shown, pipe strings.Builder
	for _, w := range []io.Writer{terminal(&shown, 80), &pipe} {
		if err := PrintList(w, "no crons", table.Row{"cron"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if shown.String() != "no crons\n" || pipe.String() != "none\n" {
		t.Errorf("%q, %q", shown.String(), pipe.String())
	}
}

// On a terminal that is too narrow for the columns, all columns become narrower, including IDs.
func TestNarrowTerminal(t *testing.T) {
	t.Parallel()
	got := Style{Size: func() (int, int) { return 30, 24 }}.Rows(
		table.Row{"job", "name", "note"},
		[]table.Row{{"0f8fad5b-d9cb-469f", "a-long-name-of-jobs", "it waits for a worker"}},
	)
	if want := "JOB               NAME   NOTE\n0f8fad5b-d9cb-4…  a-lo…  it w…"; got != want {
		t.Errorf("%s", got)
	}
	if got := (Style{Size: func() (int, int) { return 1, 1 }}).Rows(table.Row{"process"},
		[]table.Row{{"order-1234"}}); got != "PROCESS\norder-…" {
		t.Errorf("%q", got)
	}
}

// A terminal shows short times in the local zone, and a pipe shows complete times in UTC.
func TestTimes(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("here", 2*60*60)
	now := time.Date(2026, 3, 9, 0, 30, 0, 0, zone)
	for at, want := range map[time.Time]string{
		time.Date(2026, 3, 8, 22, 10, 5, 7e6, time.UTC):   "00:10:05.007", // today there, yesterday in UTC
		time.Date(2026, 3, 8, 21, 10, 5, 7e6, time.UTC):   "Mar  8 23:10:05",
		time.Date(2025, 12, 31, 12, 10, 5, 7e6, time.UTC): "2025-12-31 14:10:05",
	} {
		if got := Time(timestamppb.New(at)).short(now, false); got != want {
			t.Errorf("%v: %q, want %q", at, got, want)
		}
	}
	at := time.Date(2025, 3, 9, 10, 0, 0, 5e6, time.UTC)
	here := Style{Zone: zone}
	for want, got := range map[string]string{
		"2025-03-09T10:00:00.005Z":            Style{}.Text(Time(timestamppb.New(at))),
		"2025-03-09T10:00:00Z":                Style{}.Text(Second(at)),
		"2025-03-09 12:00:00":                 here.Text(Time(timestamppb.New(at))),
		"RUNNING since 2025-03-09 12:00:00":   here.Text(Phrase{"RUNNING since ", Time(timestamppb.New(at))}),
		"until 2025-03-09T10:00:00.005Z":      Style{}.Text(Phrase{"until ", Time(timestamppb.New(at))}),
		"[" + here.Text(Time(nil)) + "]":      "[]",
		"[" + here.Text(Phrase(nil)) + "] []": "[] []",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for text, want := range map[string]string{
		"time: 2025-03-09T10:00:00.5Z": "time: 2025-03-09 12:00:00",
		"constraint eu: all taken":     "constraint eu: all taken",
	} {
		if got := here.Text(Note(text)); got != want || (Style{}).Text(Note(text)) != text {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A field without a value is omitted, regardless of its type.
func TestEmptyFieldsAreOmitted(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	err := PrintFields(&b, Field{"status", "RUNNING"}, Field{"lease", Phrase(nil)}, Field{"ended", Time(nil)},
		Field{"worker", ""})
	if err != nil || b.String() != "status  RUNNING\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}

// Every status and state of the API has a color or is listed as having none, so that a new one is
// not forgotten.
func TestEveryStatusHasAColor(t *testing.T) {
	t.Parallel()
	plain := map[string]bool{
		"SCHEDULED": true, "AVAILABLE": true, "PENDING": true, "QUEUED": true, "WAITING": true, "SKIPPED": true,
		"SKIPPED_OVERLAP": true, "SKIPPED_CONCURRENCY": true,
	}
	for _, enum := range []protoreflect.Enum{
		progressorv1.ProcessStatus(0), progressorv1.TaskStatus(0), progressorv1.JobState(0), progressorv1.RunStatus(0),
		progressorv1.StepStatus(0), progressorv1.FireStatus(0), progressorv1.Decision(0), progressorv1.SinkState(0),
		progressorv1.KeyState(0), progressorv1.HealthStatus(0),
	} {
		values := enum.Descriptor().Values()
		for n := 1; n < values.Len(); n++ {
			name := strings.TrimPrefix(string(values.Get(n).Name()), EnumPrefix(enum.Descriptor()))
			if painted := (Style{Colors: true}).Status(name) != name; painted == plain[name] {
				t.Errorf("%s: colored %v, plain %v", name, painted, plain[name])
			}
		}
	}
	if got := (Style{Colors: true}).Status("paused: by ann"); got != "\x1b[33mpaused\x1b[0m: by ann" {
		t.Errorf("%q", got)
	}
	if got := (Style{}).Status("ERROR"); got != "ERROR" {
		t.Errorf("%q", got)
	}
}

// With --decode, payloads at any depth are JSON or text. Payloads that are neither remain in
// base64. The order of the fields and the digits of numbers remain.
func TestDecode(t *testing.T) {
	t.Parallel()
	m := &progressorv1.GetProcessResponse{Process: &progressorv1.Process{
		ProcessId: "p", AuxState: []byte(`{"n":12345678901234567890, "b":1}`),
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewStringValue("eyJ9")}},
		History: []*progressorv1.Event{
			{EventId: 1, Payload: []byte("plain <text>\n")}, {EventId: 2, Payload: []byte{0xff, 0}}, {EventId: 3},
		},
	}}
	var b, compact bytes.Buffer
	if err := PrintMessage(Stream{&b, Style{Decode: true}}, m); err != nil {
		t.Fatal(err)
	}
	if err := json.Compact(&compact, b.Bytes()); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"auxState":{"n":12345678901234567890,"b":1}`, `"payload":"plain <text>\n"`, `"payload":"base64:/wA="`,
		`{"eventId":"3"}`, `"a":"eyJ9"`,
	} {
		if !strings.Contains(compact.String(), part) {
			t.Errorf("missing %s in %s", part, compact.String())
		}
	}
	if id, state := strings.Index(b.String(), "processId"), strings.Index(b.String(), "auxState"); id > state {
		t.Errorf("fields are not in order: %s", b.String())
	}
	if got := m.GetProcess().GetHistory()[0].GetPayload(); string(got) != "plain <text>\n" {
		t.Errorf("the message was changed: %q", got)
	}
	b.Reset()
	err := PrintMessage(Stream{Writer: &b}, m)
	if err != nil || !strings.Contains(b.String(), `"cGxhaW4gPHRleHQ+Cg=="`) {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// A screen fits the terminal, because longer lines and texts could not be redrawn.
func TestScreenFits(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	s := NewScreen(terminal(&b, 20), true)
	s.Show(strings.Repeat(strings.Repeat("x", 40)+"\n", 50))
	lines := strings.Split(strings.TrimSuffix(b.String(), "\x1b[J"), "\n")
	if len(lines) != 24 || lines[22] != "\x1b[K… and 28 more" || lines[0] != "\x1b[K"+strings.Repeat("x", 19)+"…" {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
	b.Reset()
	if s.Show("y\n"); !strings.HasPrefix(b.String(), "\x1b[23A") {
		t.Errorf("%q", b.String())
	}
}
