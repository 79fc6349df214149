package rpc

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

// serverSentEvents reads a stream of /changes to its end, or until it has n events.
func (w *servedEngine) serverSentEvents(t *testing.T, query, lastID string, n int) (events []string, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/changes?"+query, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if got := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK || got != "text/event-stream" {
		body, _ := io.ReadAll(response.Body)
		t.Fatalf("%s %s: %s", response.Status, got, body)
	}
	lines := bufio.NewScanner(response.Body)
	name := ""
	for len(events) < n && lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "event":
			name = value
		case "id":
			id = value
		case "data":
			if name == "" {
				var change progressorv1.Change
				if err := protojson.Unmarshal([]byte(value), &change); err != nil {
					t.Fatalf("%s: %v", value, err)
				}
				events = append(events, change.GetProcessId()+" "+change.GetType())
			}
			name = ""
		}
	}
	return events, id
}

// /changes streams changes as Server-Sent Events. A browser continues after the ID of the last
// event.
func TestServerSentChanges(t *testing.T) {
	t.Parallel()
	w := newServedEngine(t)
	namespaces := progressorv1connect.NewNamespaceServiceClient(http.DefaultClient, w.url)
	_, err := namespaces.PutNamespace(t.Context(), &progressorv1.PutNamespaceRequest{Namespace: &progressorv1.Namespace{
		Namespace: "n", Changes: &progressorv1.ChangeSettings{Kinds: []progressorv1.ChangeKind{
			progressorv1.ChangeKind_CHANGE_KIND_EVENT, progressorv1.ChangeKind_CHANGE_KIND_LIFECYCLE,
		}},
		Processor: &progressorv1.ProcessorConfig{Transport: &progressorv1.ProcessorConfig_Builtin{
			Builtin: &progressorv1.BuiltinProcessor{Name: "obedient"},
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	processes := progressorv1connect.NewProcessServiceClient(http.DefaultClient, w.url)
	begin := func(id string) {
		t.Helper()
		start := &progressorv1.StartRequest{Namespace: "n", ProcessId: id, Args: []byte("x")}
		_, err := processes.Start(t.Context(), start)
		if err != nil {
			t.Fatal(err)
		}
	}
	begin("a")
	events, id := w.serverSentEvents(t, "namespace=n&from=1970-01-01T00:00:00Z", "", 2)
	if got := strings.Join(events, ", "); got != "a created, a stored" || id == "" {
		t.Errorf("%s, cursor %q", got, id)
	}
	begin("b")
	events, id = w.serverSentEvents(t, "namespace=n&stop=true&from=1970-01-01T00:00:00Z", id, 10)
	if got := strings.Join(events, ", "); got != "b created, b stored" {
		t.Errorf("after the last event: %s", got)
	}
	events, _ = w.serverSentEvents(t, "namespace=n&stop=true&kinds=event,fire&from=1970-01-01T00:00:00Z", "", 10)
	if got := strings.Join(events, ", "); got != "a stored, b stored" {
		t.Errorf("events: %s", got)
	}
	if events, _ = w.serverSentEvents(t, "namespace=n&stop=true&cursor="+id, "", 10); len(events) > 0 {
		t.Errorf("at the end: %v", events)
	}
	for query, want := range map[string]string{
		"":                         "400 namespace: ",
		"namespace=missing":        "404 namespace not found: missing",
		"namespace=n&kinds=events": `400 kinds: unknown kind "events"; use one of event, lifecycle`,
		"namespace=n&from=noon":    "400 from: must be a time such as 2026-",
		"namespace=n&stop=maybe":   "400 stop: must be true or false",
		"namespace=n&cursor=x":     "400 cursor: must be the cursor of a previous response",
		"namespace=n&since=x":      "400 since: unknown parameter; use one of namespace, cursor",
	} {
		status, text := get(t, w.url+"/changes?"+query, "")
		if got := strconv.Itoa(status) + " " + text; !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}
