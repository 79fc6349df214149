//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/processor"
	functions "github.com/progressor-engine/progressor/processor/durable"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// The namespaces of the durable functions of a chaos run. Engines push tasks to two of them. In the
// first one, each step has its own task. The processor of the second one, and the workers that pull
// the tasks of the third one, store checkpoints through any engine.
const (
	pushedTrips  = "trips-pushed"
	checkedTrips = "trips-checked"
	pulledTrips  = "trips-pulled"
)

var tripNamespaces = []string{pushedTrips, checkedTrips, pulledTrips}

// trip is the input of a function. The steps of a trip that fails are undone.
type trip struct {
	ID    string `json:"id"`
	Fails bool   `json:"fails"`
}

// tripSteps lists the steps of a trip.
var tripSteps = []string{"reserve", "part[0]/book", "part[1]/book", "part[2]/book", "charge"}

// undoneSteps lists the steps that a trip undoes if it fails.
var undoneSteps = []string{"charge", "reserve"}

// tripWatch records what the bodies of the steps of trips do, independently of the database.
type tripWatch struct {
	t       testing.TB
	fleet   *fleet
	jobs    *jobWatch
	db      *pgxpool.Pool // where trips are charged, in transactions of their steps
	stop    func()
	starts  sync.WaitGroup
	dismiss func() // ends the workers
	workers sync.WaitGroup
	bodies  atomic.Int64

	checkpoints countedCheckpoints // those of pushed trips
	mutex       sync.Mutex
	started     map[string]bool     // by trip; true if an engine confirmed its payment
	returned    map[string][]string // by trip and step: the values that its bodies have returned
	seen        map[string][]string // by trip and step: its values in later steps and in undos
	undone      map[string]int      // by trip and step: how often its undo has run
}

// countedCheckpoints counts the checkpoints that engines store.
type countedCheckpoints struct {
	*client.Client
	stored atomic.Int64
}

func (c *countedCheckpoints) SendCheckpoint(
	ctx context.Context, r *progressorv1.CheckpointRequest,
) (*progressorv1.CheckpointResponse, error) {
	resp, err := c.Client.SendCheckpoint(ctx, r)
	if err == nil {
		c.stored.Add(1)
	}
	return resp, err
}

func newTripWatch() *tripWatch {
	return &tripWatch{started: map[string]bool{}, returned: map[string][]string{}, seen: map[string][]string{},
		undone: map[string]int{}}
}

// startTrips starts trips and pays for them until w.stop is called. The trips are charged in a
// table of the database of dsn.
func startTrips(f *fleet, n *node, jobs *jobWatch, dsn string) *tripWatch {
	w := newTripWatch()
	w.t, w.fleet, w.jobs = f.t, f, jobs
	var err error
	if w.db, err = pgxpool.New(f.t.Context(), dsn); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(w.db.Close)
	storagetest.Exec(f.t, w.db, functions.TxTable)
	storagetest.Exec(f.t, w.db, "CREATE TABLE trip_payments (trip text, what text)")
	function := functions.Func("trip", w.travel)
	w.put(n, pushedTrips, &progressorv1.ProcessorConfig{Transport: &progressorv1.ProcessorConfig_Connect{
		Connect: &progressorv1.ConnectProcessor{Url: serve(f.t, function, processor.WithParking())},
	}})
	w.checkpoints.Client = client.New("http://engines", client.WithHTTPClient(&anyEngine{fleet: f}))
	w.put(n, checkedTrips, &progressorv1.ProcessorConfig{Transport: &progressorv1.ProcessorConfig_Connect{
		Connect: &progressorv1.ConnectProcessor{
			Url:         serve(f.t, function, processor.WithCheckpoints(&w.checkpoints), processor.WithParking()),
			Checkpoints: true,
		},
	}})
	w.put(n, pulledTrips, &progressorv1.ProcessorConfig{Transport: &progressorv1.ProcessorConfig_Pull{
		Pull: &progressorv1.PullProcessor{LeaseDuration: durationpb.New(leaseTime)},
	}})
	working, dismiss := context.WithCancel(f.t.Context())
	w.dismiss = dismiss
	f.t.Cleanup(dismiss)
	for range 2 {
		worker := client.NewWorker(client.New("http://engines", client.WithHTTPClient(&anyEngine{fleet: f})),
			[]string{pulledTrips}, client.WithLeaseDuration(leaseTime))
		worker.HandleProcesses(function)
		w.workers.Go(func() { _ = worker.Run(working) }) // Run returns an error if no engine responds when it stops
	}
	starting, stop := context.WithCancel(f.t.Context())
	w.stop = stop
	f.t.Cleanup(stop)
	for _, ns := range tripNamespaces {
		w.starts.Go(func() { w.start(starting, ns) })
	}
	return w
}

func (w *tripWatch) put(n *node, name string, p *progressorv1.ProcessorConfig) {
	w.t.Helper()
	ns := &progressorv1.Namespace{Namespace: name, Processor: p, StepTimeout: durationpb.New(10 * time.Second),
		RetryPolicy: &progressorv1.RetryPolicy{InitialInterval: durationpb.New(50 * time.Millisecond),
			MaxAttempts: 1000}}
	if _, err := one(n).Namespace.PutNamespace(w.t.Context(),
		&progressorv1.PutNamespaceRequest{Namespace: ns}); err != nil {
		w.t.Fatal(err)
	}
}

// anyEngine sends each request to the next engine of the fleet, in turn.
type anyEngine struct {
	fleet *fleet
	count atomic.Int64
}

func (a *anyEngine) Do(r *http.Request) (*http.Response, error) {
	a.fleet.mutex.Lock()
	r.URL.Host, r.Host = a.fleet.hosts[int(a.count.Add(1))%len(a.fleet.hosts)], ""
	a.fleet.mutex.Unlock()
	return http.DefaultClient.Do(r)
}

// start starts one trip after the other. It repeats each start and each payment, with the same key,
// until an engine confirms it.
func (w *tripWatch) start(ctx context.Context, ns string) {
	pause := time.NewTicker(200 * time.Millisecond) // the workers must keep up
	defer pause.Stop()
	for number := 0; ctx.Err() == nil; number++ {
		id := fmt.Sprint(ns, "-", number)
		w.mutex.Lock()
		w.started[id] = false
		w.mutex.Unlock()
		args, _ := json.Marshal(trip{ID: id, Fails: number%4 == 3}) // it can be encoded
		asked := context.WithoutCancel(ctx)
		err := w.jobs.ask(asked, number, func(ctx context.Context, c *client.Client) error {
			_, err := c.Start(ctx, &progressorv1.StartRequest{Namespace: ns, ProcessId: id, Args: args,
				IdempotencyKey: id})
			return err
		})
		if err == nil {
			err = w.jobs.ask(asked, number, func(ctx context.Context, c *client.Client) error {
				resp, err := c.Call(ctx, &progressorv1.CallRequest{Namespace: ns, ProcessId: id,
					Args: []byte(`{"pay":7}`), IdempotencyKey: "pay"})
				if err == nil && string(resp.GetResponse()) != "8" {
					w.t.Errorf("pay %s: the response is %s", id, resp.GetResponse())
				}
				return err
			})
		}
		if err != nil {
			w.t.Errorf("trip %s: %v", id, err)
			return
		}
		w.mutex.Lock()
		w.started[id] = true
		w.mutex.Unlock()
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
	}
}

// travel is the durable function of a trip.
func (w *tripWatch) travel(ctx functions.Ctx, in trip) (string, error) {
	pays := functions.Calls(ctx, "pay", functions.Accept(func(n int) (int, error) { return n + 1, nil }))
	seen := map[string]string{}
	step := func(ctx functions.Ctx, scope, name string, opts ...functions.StepOption) (string, error) {
		opts = append(opts, functions.Retry(1000, 10*time.Millisecond))
		return functions.Step(ctx, name, w.body(in.ID, scope+name, seen), opts...)
	}
	undone := func(name, value string) {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		w.seen[in.ID+" "+name] = append(w.seen[in.ID+" "+name], value)
		w.undone[in.ID+" "+name]++
	}
	reserved := functions.Undo(func(_ context.Context, value string) error {
		undone("reserve", value)
		return nil
	})
	charged := functions.UndoTx(w.db, func(c context.Context, tx pgx.Tx, value string) error {
		undone("charge", value)
		_, err := tx.Exec(c, "INSERT INTO trip_payments VALUES ($1, 'refund')", in.ID)
		return err
	})
	hold, err := step(ctx, "", "reserve", reserved)
	if err != nil {
		return "", err
	}
	seen["reserve"] = hold
	book := func(ctx functions.Ctx, part string) (string, error) { return step(ctx, "part["+part+"]/", "book") }
	parts, err := functions.Each(ctx, "part", []string{"0", "1", "2"}, book, functions.Limit(2))
	if err != nil {
		return "", err
	}
	for i, part := range parts {
		seen[fmt.Sprintf("part[%d]/book", i)] = part
	}
	functions.Sleep(ctx, "pause", 20*time.Millisecond)
	seen["paid"] = fmt.Sprint(pays.Next())
	charge, err := functions.Tx(ctx, "charge", w.db, func(c context.Context, tx pgx.Tx) (string, error) {
		if _, err := tx.Exec(c, "INSERT INTO trip_payments VALUES ($1, 'charge')", in.ID); err != nil {
			return "", err
		}
		return w.body(in.ID, "charge", seen)(c)
	}, functions.Retry(1000, 10*time.Millisecond), charged)
	if err == nil && in.Fails {
		err = processor.Reject("asked", "rejected by the input")
	}
	return strings.Join(append([]string{hold}, append(parts, charge)...), " "), err
}

// body returns the body of a step. Each call of the body returns a new value, or an error, and
// records the values of earlier steps.
func (w *tripWatch) body(id, step string, seen map[string]string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		number := w.bodies.Add(1)
		value := fmt.Sprint(step, "-", number)
		w.mutex.Lock()
		defer w.mutex.Unlock()
		for earlier, v := range seen {
			w.seen[id+" "+earlier] = append(w.seen[id+" "+earlier], v)
		}
		if number%7 == 0 {
			return "", errors.New("flaky")
		}
		w.returned[id+" "+step] = append(w.returned[id+" "+step], value)
		return value, nil
	}
}

// tripRow is the final state of a trip.
type tripRow struct {
	status  string
	entries map[string][]string // the values of the entries of its journal, by kind and name
	charges int                 // how often it was charged
	refunds int
}

// end waits until the trips have ended, and returns them.
func (w *tripWatch) end(conn *pgx.Conn) map[string]tripRow {
	w.t.Helper()
	w.starts.Wait()
	await(w.t, testTimeout, "all trips have ended", func() bool {
		return count(w.t, conn, `SELECT count(*) FROM processes WHERE namespace = ANY ($1)
			AND status IN ('INIT', 'RUNNING')`, tripNamespaces) == 0
	})
	w.dismiss()
	w.workers.Wait()
	found, err := conn.Query(w.t.Context(), `SELECT p.process_id, p.status::text,
		  j.entry ->> 'k' || ' ' || (j.entry ->> 'n'), coalesce(j.entry ->> 'v', '')
		FROM processes p JOIN events e USING (namespace, process_id),
		  LATERAL (SELECT convert_from(e.payload, 'UTF8')::json AS entry) j
		WHERE p.namespace = ANY ($1) ORDER BY e.process_id, e.event_id`, tripNamespaces)
	if err != nil {
		w.t.Fatal(err)
	}
	rows := map[string]tripRow{}
	var id, status, name, value string
	if _, err = pgx.ForEachRow(found, []any{&id, &status, &name, &value}, func() error {
		if _, ok := rows[id]; !ok {
			rows[id] = tripRow{status: status, entries: map[string][]string{}}
		}
		rows[id].entries[name] = append(rows[id].entries[name], value)
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	found, err = conn.Query(w.t.Context(), `SELECT trip, count(*) FILTER (WHERE what = 'charge'),
		count(*) FILTER (WHERE what = 'refund') FROM public.trip_payments GROUP BY trip`)
	if err != nil {
		w.t.Fatal(err)
	}
	var charges, refunds int
	if _, err = pgx.ForEachRow(found, []any{&id, &charges, &refunds}, func() error {
		r := rows[id]
		r.charges, r.refunds = charges, refunds
		rows[id] = r
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	return rows
}

// defects returns the defects of trips:
//
//   - a trip that is lost or has not ended
//   - an entry that is missing or duplicated
//   - a step with a value that no body returned, or that a later step saw before it was stored
//   - an undo that is missing or must not have run
//   - a transaction that took effect twice or not at all
func (w *tripWatch) defects(rows map[string]tripRow) (wrong []string) {
	report := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for id, sure := range w.started {
		if _, there := rows[id]; sure && !there {
			report("trip %s is lost", id)
		}
	}
	for id, r := range rows {
		if _, asked := w.started[id]; !asked {
			report("trip %s was not started by any client", id)
		}
		if r.status != "COMPLETED" {
			report("trip %s is %s", id, r.status)
			continue
		}
		_, fails := r.entries["fail trip"]
		expected := map[string]int{"start trip": 1, "call pay": 1, "timer pause": 1, "fired pause": 1}
		for _, step := range tripSteps {
			expected["step "+step] = 1
		}
		for _, step := range undoneSteps {
			expected["undo "+step] = 0
			if fails {
				expected["undo "+step] = 1
			}
			if n := w.undone[id+" "+step]; n > 0 != fails {
				report("step %s of trip %s was undone %d times; the trip failed: %t", step, id, n, fails)
			}
		}
		if refunds := len(r.entries["fail trip"]); r.charges != 1 || r.refunds != refunds {
			report("trip %s was charged %d times, and refunded %d times instead of %d", id, r.charges, r.refunds,
				refunds)
		}
		for name, n := range expected {
			if len(r.entries[name]) != n {
				report("the journal of trip %s has %d entries %q instead of %d", id, len(r.entries[name]), name, n)
			}
		}
		wrong = append(wrong, w.valueDefects(id, r)...)
	}
	slices.Sort(wrong)
	return wrong
}

// valueDefects compares the values in the journal with those that bodies returned and saw.
func (w *tripWatch) valueDefects(id string, r tripRow) (wrong []string) {
	report := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	var all []string
	for _, step := range tripSteps {
		for _, value := range r.entries["step "+step] {
			all = append(all, value)
			if !slices.Contains(w.returned[id+" "+step], value) {
				report("step %s of trip %s has the value %q, which no body returned", step, id, value)
			}
			for _, other := range w.seen[id+" "+step] {
				if other != value {
					report("step %s of trip %s has the value %q, but a later step saw %q", step, id, value, other)
				}
			}
		}
	}
	want := []string{strings.Join(all, " ")}
	if _, fails := r.entries["fail trip"]; !fails && !slices.Equal(r.entries["end trip"], want) {
		report("trip %s returned %q instead of %q", id, r.entries["end trip"], want)
	}
	return wrong
}

func (w *tripWatch) figures(rows map[string]tripRow) []figure {
	repeated := 0
	for _, values := range w.returned {
		repeated += len(values) - 1
	}
	return []figure{{"durable functions done", len(rows)},
		{"checkpoints of pushed functions", int(w.checkpoints.stored.Load())},
		{"steps of functions that were lost and repeated", repeated}}
}

// Each defect of functions is detected.
func TestTripDefects(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*tripWatch, map[string]tripRow)
		wrong  int
	}{
		"nothing":        {func(*tripWatch, map[string]tripRow) {}, 0},
		"a trip is lost": {func(_ *tripWatch, rows map[string]tripRow) { delete(rows, "x") }, 1},
		"unknown outcome": {func(w *tripWatch, rows map[string]tripRow) {
			w.started["x"] = false
			delete(rows, "x")
		}, 0},
		"an unknown trip": {func(w *tripWatch, _ map[string]tripRow) { delete(w.started, "x") }, 1},
		"not ended": {func(_ *tripWatch, rows map[string]tripRow) {
			rows["x"] = tripRow{status: "ERROR", entries: rows["x"].entries}
		}, 1},
		"a call is lost": {func(_ *tripWatch, rows map[string]tripRow) { delete(rows["x"].entries, "call pay") }, 1},
		"a step is stored twice": {func(_ *tripWatch, rows map[string]tripRow) {
			rows["x"].entries["step charge"] = []string{"charge", "charge"}
		}, 2},
		"an unknown value": {func(_ *tripWatch, rows map[string]tripRow) {
			rows["x"].entries["step charge"] = []string{"?"}
		}, 3},
		"seen too early": {func(w *tripWatch, _ map[string]tripRow) {
			w.seen["x reserve"] = append(w.seen["x reserve"], "lost")
		}, 1},
		"undone without reason": {func(w *tripWatch, _ map[string]tripRow) { w.undone["x charge"] = 1 }, 1},
		"not undone":            {func(w *tripWatch, _ map[string]tripRow) { delete(w.undone, "y charge") }, 1},
		"charged twice": {func(_ *tripWatch, rows map[string]tripRow) {
			rows["x"] = tripRow{"COMPLETED", rows["x"].entries, 2, 0}
		}, 1},
		"refunded twice": {func(_ *tripWatch, rows map[string]tripRow) {
			rows["y"] = tripRow{"COMPLETED", rows["y"].entries, 1, 2}
		}, 1},
		"undone twice": {func(_ *tripWatch, rows map[string]tripRow) {
			rows["y"].entries["undo charge"] = []string{"", ""}
		}, 1},
	} {
		w, rows := newTripWatch(), map[string]tripRow{}
		for _, id := range []string{"x", "y"} {
			w.started[id] = true
			entries := map[string][]string{"start trip": {""}, "call pay": {"7"}, "timer pause": {"0.02"},
				"fired pause": {""}}
			for _, step := range tripSteps {
				entries["step "+step] = []string{step}
				w.returned[id+" "+step], w.seen[id+" "+step] = []string{"lost", step}, []string{step}
			}
			rows[id] = tripRow{"COMPLETED", entries, 1, map[string]int{"y": 1}[id]}
		}
		rows["x"].entries["end trip"] = []string{strings.Join(tripSteps, " ")}
		rows["y"].entries["fail trip"] = []string{""}
		for _, step := range undoneSteps {
			rows["y"].entries["undo "+step] = []string{""}
			w.undone["y "+step] = 1
		}
		tt.change(w, rows)
		if wrong := w.defects(rows); len(wrong) != tt.wrong {
			t.Errorf("%s: %q", name, wrong)
		}
	}
}
