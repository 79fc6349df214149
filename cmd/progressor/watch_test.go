package main

import (
	"encoding/json"
	"strings"
	"testing"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestWatch(t *testing.T) {
	p := order()
	f := &fakeEngine{updates: []*progressorv1.WatchProcessResponse{
		{Update: &progressorv1.WatchProcessResponse_Event{Event: p.GetHistory()[0]}},
		{Update: &progressorv1.WatchProcessResponse_Process{Process: p}},
	}}
	p.StatusChangedTime = p.GetCreatedTime()
	client := serveFake(t, f)
	out := client.ok(t, "watch", "demo", "o-1", "--after", "7")
	wantLines(t, out, "2026-11-20T12:00:00.000Z  event 1  task 1  reserved\n", `2026-11-20T12:00:00.000Z  ERROR  task 7  no book\nleft`)
	wantRequest(t, f.last, &progressorv1.WatchProcessRequest{Namespace: "demo", ProcessId: "o-1", AfterEventId: 7})
	lines := strings.Split(strings.TrimSpace(client.ok(t, "watch", "demo", "o-1", "-o", "json")), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines: %q", len(lines), lines)
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
	if !strings.Contains(lines[0], `{"event":{"eventId":"1"`) {
		t.Errorf("got %s", lines[0])
	}
}

// A watch follows a process on a real engine, and ends with it.
func TestWatchOnTheEngine(t *testing.T) {
	d := background(t, map[string]string{"PROGRESSOR_DB_DSN": storagetest.DSN(t)}, "serve", "--listen", "127.0.0.1:0")
	d.client.ok(t, "namespace", "put", "demo", "--builtin", "orders")
	d.client.ok(t, "start", "demo", "order-1", "--args", `{"order":"A-8","items":[{"sku":"tea"}],"pay_within":"200ms"}`)
	out := d.client.ok(t, "watch", "demo", "order-1")
	wantLines(t, out, "event 1  task 1", "RUNNING", "event 2  task 2", "COMPLETED")
	if r := d.client.run(t, "watch", "demo", "nobody"); r.code != exitNotFound || !strings.Contains(r.stderr, "process_not_found") {
		t.Errorf("%+v", r)
	}
	d.stop(t)
}
