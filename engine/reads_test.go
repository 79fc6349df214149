package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Lists return pages in each order, traces have events, and imports can be read.
func TestListsAndTraces(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, byTask{callTask: words})
	ctx := context.Background()
	var all []string
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		n.started(t, id)
		all = append(all, id)
	}
	taskError(t, (<-n.calling("b", "fail")).err)
	taskError(t, (<-n.calling("d", "fail")).err)
	list := func(filter, order string) []string {
		t.Helper()
		r := &progressorv1.ListProcessesRequest{Namespace: "ns", Filter: filter, OrderBy: order, PageSize: 2}
		var ids []string
		for range 10 {
			page, next, err := n.ListProcesses(ctx, r)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range page {
				ids = append(ids, m.GetProcessId())
			}
			if r.PageToken = next; next == "" {
				return ids
			}
		}
		t.Fatal("the list does not end")
		return nil
	}
	backwards := slices.Clone(all)
	slices.Reverse(backwards)
	for _, tt := range []struct {
		filter, order string
		want          []string
	}{
		{"", "", backwards}, {"", "process_id", all}, {"", "created_time", all}, {"", "process_id desc", backwards},
		{"status = RUNNING", "process_id", []string{"a", "c", "e"}},
		{"status = ERROR", "status_changed_time desc", []string{"d", "b"}},
		{"status = ERROR", "process_id", []string{"b", "d"}}, {"status = COMPLETED", "", nil},
		{"process_id > b AND status != ERROR", "", []string{"e", "c"}},
	} {
		if got := list(tt.filter, tt.order); !slices.Equal(got, tt.want) {
			t.Errorf("%q by %q: %v, want %v", tt.filter, tt.order, got, tt.want)
		}
	}
	var invalid *process.InvalidError
	for _, r := range []*progressorv1.ListProcessesRequest{
		{Namespace: "ns", OrderBy: "size"}, {Namespace: "ns", OrderBy: "status_changed_time desc"},
		{Namespace: "ns", PageToken: "x"}, {Namespace: "ns", Filter: "x"},
	} {
		if _, _, err := n.ListProcesses(ctx, r); !errors.As(err, &invalid) {
			t.Errorf("%v: %v", r, err)
		}
	}
	traced, err := n.TraceProcess(ctx, key("a"), 1, "")
	tasks, next := traced.GetTasks(), traced.GetNextPageToken()
	if err != nil || len(tasks) != 1 || next == "" || tasks[0].GetType() != initTask ||
		len(tasks[0].GetEvents()) != 1 || string(tasks[0].GetEvents()[0].GetPayload()) != "start" {
		t.Errorf("%v, %q, %v", tasks, next, err)
	}
	if traced, err = n.TraceProcess(ctx, key("a"), 1, next); err != nil || len(traced.GetTasks()) != 0 ||
		traced.GetNextPageToken() != "" {
		t.Errorf("%v, %v", traced, err)
	}
	put := &progressorv1.PutProcessRequest{Namespace: "ns", ProcessId: "put",
		Status: progressorv1.ProcessStatus_PROCESS_STATUS_ERROR, Detail: "imported",
		Timers:  []*progressorv1.Timer{{FireTime: timestamppb.New(time.Now().Add(time.Hour))}},
		History: []*progressorv1.Event{{Payload: []byte("e")}}}
	if p, err := n.PutProcess(ctx, put, process.Actor{}); err != nil || p.GetStatus() != put.GetStatus() ||
		p.GetLastEventId() != 1 {
		t.Errorf("%v, %v", p, err)
	}
	if _, err := n.PutProcess(ctx, put, process.Actor{}); !errors.Is(err, process.ErrProcessExists) {
		t.Error(err)
	}
	if _, err := n.Repair(ctx, engine.RepairParams{Key: key("put"), Simple: true}); err != nil {
		t.Error(err)
	}
	if p, err := n.GetProcess(ctx, key("put"), nil, 0); err != nil || len(p.GetTimers()) != 1 || p.GetDetail() != "" {
		t.Errorf("%v, %v", p, err)
	}
}

// GetProcess can wait for the end of INIT.
func TestGetAwaitsInit(t *testing.T) {
	t.Parallel()
	g := newGate()
	defer g.release()
	n := start(t, storagetest.DSN(t), byTask{initTask: g.held(true)})
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key("p"), Accepted: true}); err != nil {
		t.Fatal(err)
	}
	p, err := n.GetProcess(t.Context(), key("p"), nil, 20*time.Millisecond)
	if err != nil || p.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_INIT {
		t.Errorf("%v, %v", p, err)
	}
	got := make(chan *progressorv1.Process, 1)
	go func() {
		p, err := n.GetProcess(context.Background(), key("p"), nil, longWait)
		if err != nil {
			t.Error(err)
		}
		got <- p
	}()
	g.release()
	if p := receive(t, "the process", got); p.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING {
		t.Errorf("%v", p)
	}
}
