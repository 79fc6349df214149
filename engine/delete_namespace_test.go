package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// deletes requests the deletion of a namespace, which must be accepted.
func (n *node) deletes(t testing.TB, r *progressorv1.DeleteNamespaceRequest) *progressorv1.DeleteNamespaceResponse {
	t.Helper()
	resp, err := n.DeleteNamespace(t.Context(), r, process.Actor{Name: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// isGone reports whether a node knows that a namespace does not exist.
func (n *node) isGone(t testing.TB, name string) bool {
	t.Helper()
	_, err := n.GetNamespace(t.Context(), name)
	_, started := n.Start(t.Context(), engine.StartParams{Key: process.Key{Namespace: name, ProcessID: "late"}})
	if started == nil {
		t.Fatalf("a process was started in the deleted namespace (%v)", err)
	}
	return errors.Is(err, process.ErrNamespaceNotFound) && errors.Is(started, process.ErrNamespaceNotFound)
}

// rowsOf returns the tables that have rows of a namespace, except audit.
func (d db) rowsOf(t testing.TB, name string) (tables []string) {
	t.Helper()
	for _, table := range d.texts(t, `
		SELECT c.table_name FROM information_schema.columns c JOIN information_schema.tables t USING
		  (table_schema, table_name)
		 WHERE c.table_schema = 'progressor' AND c.column_name = 'namespace' AND t.table_type = 'BASE TABLE'
		   AND c.table_name <> 'audit'`) {
		if n := d.count(t, "SELECT count(*) FROM "+table+" WHERE namespace = $1", name); n > 0 {
			tables = append(tables, fmt.Sprintf("%s: %d", table, n))
		}
	}
	return tables
}

// An empty namespace is deleted on every node. It can be created again.
func TestDeleteEmptyNamespace(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	a, b := start(t, dsn, processor.Echo()), start(t, dsn, processor.Echo())
	d := openDB(t, dsn)
	a.put(t, &progressorv1.Namespace{Namespace: "other"})
	in := process.Key{Namespace: "other", ProcessID: "p"}
	for _, n := range []*node{a, b} {
		if _, err := n.Start(t.Context(), engine.StartParams{Key: in, IdempotencyKey: "k"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.RemoveProcess(t.Context(), in, process.Actor{}); err != nil {
		t.Fatal(err)
	}
	resp := a.deletes(t, &progressorv1.DeleteNamespaceRequest{Namespace: "other"})
	if del := resp.GetNamespace().GetDeletion(); del.GetRequestedTime() == nil || del.GetWithData() {
		t.Errorf("%v", resp)
	}
	a.deletes(t, &progressorv1.DeleteNamespaceRequest{Namespace: "other"}) // a repeated request changes nothing
	for what, err := range map[string]error{
		"start": func() error { _, err := a.Start(t.Context(), engine.StartParams{Key: in}); return err }(),
		"get":   func() error { _, err := a.GetProcess(t.Context(), in, nil, 0); return err }(),
		"put": func() error {
			_, err := b.PutNamespace(t.Context(), &progressorv1.Namespace{Namespace: "other", Processor: builtin("p")})
			return err
		}(),
		"pause":  func() error { _, err := b.SetNamespacePaused(t.Context(), "other", true); return err }(),
		"resume": func() error { _, err := b.SetNamespacePaused(t.Context(), "other", false); return err }(),
		"check":  b.CheckNamespace(t.Context(), "other"),
	} {
		if !errors.Is(err, process.ErrNamespaceDeleting) {
			t.Errorf("%s: %v", what, err)
		}
	}
	eventually(t, "both nodes know that the namespace is deleted", func() bool {
		return a.isGone(t, "other") && b.isGone(t, "other")
	})
	if left := d.rowsOf(t, "other"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	got := strings.Join(a.audited(t, "", `method = "DeleteNamespace"`), ", ")
	if got != "DeleteNamespace other/other ada@" {
		t.Errorf("audit: %s", got)
	}
	if _, err := a.DeleteNamespace(t.Context(),
		&progressorv1.DeleteNamespaceRequest{Namespace: "other"}); !errors.Is(err, process.ErrNamespaceNotFound) {
		t.Errorf("a deleted one: %v", err)
	}
	a.put(t, &progressorv1.Namespace{Namespace: "other"})
	if _, err := b.Start(t.Context(), engine.StartParams{Key: in, IdempotencyKey: "k"}); err != nil {
		t.Errorf("created again: %v", err)
	}
	b.started(t, "p")
}

// The deletion of a namespace with data is rejected with the counts of its data, and the namespace
// does not change. A dry run only counts. A namespace of the configuration file cannot be deleted,
// even with its data.
func TestDeleteNamespaceRefused(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, byTask{callTask: answers(processor.Result().SetTimerAfter(time.Hour))}, func(c *engine.Config) {
		c.FileNamespaces = []string{"filed"}
	})
	n.put(t, &progressorv1.Namespace{Namespace: "filed"})
	n.started(t, "p")
	n.called(t, "p", "x")
	n.started(t, "q")
	var used *process.NamespaceInUseError
	for name, want := range map[string]string{
		"ns": `namespace "ns" was not deleted: it has 2 processes RUNNING, 1 waiting tasks: ` +
			`remove them first, or delete it with its data (with_data)`,
		"filed": `namespace "filed" was not deleted: it is in the configuration file of this node`,
	} {
		if _, err := n.DeleteNamespace(t.Context(),
			&progressorv1.DeleteNamespaceRequest{Namespace: name}); !errors.As(err, &used) ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v", err)
		}
	}
	if _, err := n.DeleteNamespace(t.Context(), &progressorv1.DeleteNamespaceRequest{
		Namespace: "filed", WithData: true,
	}); !errors.As(err, &used) {
		t.Errorf("%v", err)
	}
	resp := n.deletes(t, &progressorv1.DeleteNamespaceRequest{Namespace: "ns", WithData: true, DryRun: true})
	counts := ""
	for _, c := range resp.GetCounts() {
		counts += strings.TrimSpace(fmt.Sprint(c.GetCount(), " ", c.GetKind(), " ", c.GetStatus())) + ", "
	}
	if want := "2 processes RUNNING, 1 waiting_tasks, 2 events, 3 ended_tasks, "; counts != want {
		t.Errorf("counts: %s", counts)
	}
	if resp.GetNamespace().GetDeletion() != nil {
		t.Errorf("a dry run: %v", resp)
	}
	n.called(t, "p", "y")
}

// A namespace is deleted with its data while clients use it on every node. Attempts are cancelled,
// clients get an error, and another namespace is not affected.
func TestDeleteNamespaceWithData(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	a, b := start(t, dsn, byTask{notifyTask: g.held(true)}), start(t, dsn, byTask{notifyTask: g.held(true)})
	d := openDB(t, dsn)
	a.put(t, &progressorv1.Namespace{Namespace: "gone"})
	at := func(id string) process.Key { return process.Key{Namespace: "gone", ProcessID: id} }
	a.started(t, "stays")
	for k := range 30 {
		if _, err := a.Start(t.Context(), engine.StartParams{
			Key: at(fmt.Sprint("p", k)), IdempotencyKey: "k", Args: []byte("x"),
		}); err != nil {
			t.Fatal(err)
		}
	}
	// One process has a running attempt, with a client that waits behind it.
	if _, err := a.Call(t.Context(), engine.CallParams{Key: at("p1"), Accepted: true}); err != nil {
		t.Fatal(err)
	}
	receive(t, "the attempt", g.entered)
	waits := make(chan error, 1)
	go func() {
		_, err := b.Call(context.Background(), engine.CallParams{
			Key: at("p1"), Args: []byte("x"), Timeout: time.Minute,
		})
		waits <- err
	}()
	eventually(t, "the call waits", func() bool {
		return d.count(t, "SELECT count(*) FROM schedule WHERE namespace = 'gone'") == 1
	})
	var clients sync.WaitGroup
	for k, n := range []*node{a, b, a, b} {
		clients.Go(func() {
			for i := 0; ; i++ {
				key := at(fmt.Sprint("c", k, "-", i))
				_, err := n.Start(context.Background(), engine.StartParams{Key: key, IdempotencyKey: "k"})
				if err == nil {
					_, err = n.Call(context.Background(), engine.CallParams{Key: key, Args: []byte("x")})
				}
				var te *engine.TaskError
				switch {
				case errors.Is(err, process.ErrNamespaceDeleting), errors.Is(err, process.ErrNamespaceNotFound):
					return
				case err != nil && (!errors.As(err, &te) || !te.Cancelled) &&
					!errors.Is(err, process.ErrProcessNotFound):
					t.Errorf("client %d: %v", k, err)
				}
			}
		})
	}
	before := d.count(t, "SELECT count(*) FROM processes WHERE namespace = 'gone'")
	eventually(t, "the clients run", func() bool {
		return d.count(t, "SELECT count(*) FROM processes WHERE namespace = 'gone'") > before+20
	})
	a.deletes(t, &progressorv1.DeleteNamespaceRequest{Namespace: "gone", WithData: true})
	clients.Wait()
	if te := taskError(t, receive(t, "the waiting call", waits)); !te.Cancelled {
		t.Errorf("the waiting call: %v", te)
	}
	eventually(t, "the namespace is deleted", func() bool { return a.isGone(t, "gone") && b.isGone(t, "gone") })
	if left := d.rowsOf(t, "gone"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	eventually(t, "no attempt runs", func() bool { return a.Attempts()+b.Attempts() == 0 })
	b.called(t, "stays", "x")
	if n := d.count(t, "SELECT last_event_id FROM processes WHERE process_id = 'stays'"); n != 2 {
		t.Errorf("the process of the other namespace has %d events", n)
	}
}

// If a node dies while it deletes a namespace, another node continues.
func TestDeleteNamespaceAfterCrash(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	soon := func(c *engine.Config) { c.ZombieAfter = time.Second }
	a, b := start(t, dsn, processor.Echo(), soon), start(t, dsn, processor.Echo(), soon)
	d := openDB(t, dsn)
	a.put(t, &progressorv1.Namespace{Namespace: "gone"})
	var clients sync.WaitGroup
	for k := range 500 {
		clients.Go(func() {
			if _, err := a.Start(context.Background(), engine.StartParams{
				Key: process.Key{Namespace: "gone", ProcessID: fmt.Sprintf("p%03d", k)},
			}); err != nil {
				t.Error(err)
			}
		})
	}
	clients.Wait()
	tx := storagetest.Begin(t, d.Pool,
		"SELECT FROM processes WHERE namespace = 'gone' AND process_id = 'p499' FOR UPDATE")
	a.deletes(t, &progressorv1.DeleteNamespaceRequest{Namespace: "gone", WithData: true})
	eventually(t, "some are deleted", func() bool {
		return d.count(t, "SELECT count(*) FROM processes WHERE namespace = 'gone'") < 500
	})
	dead, alive := a, b
	if !a.Removes() {
		dead, alive = b, a
	}
	dead.crash()
	if err := tx.Rollback(t.Context()); err != nil { // the lock has prevented the deletion of p499
		t.Fatal(err)
	}
	if d.count(t, "SELECT count(*) FROM namespaces WHERE namespace = 'gone'") == 0 {
		t.Error("the node has deleted everything")
	}
	eventually(t, "the other node has deleted the namespace", func() bool { return alive.isGone(t, "gone") })
	if left := d.rowsOf(t, "gone"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Nothing is deleted while a live node may still accept requests. Clients that wait for a task get
// an error before anything is deleted.
func TestDeletionWaitsForNodes(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	n := start(t, dsn, byTask{notifyTask: g.held(true)})
	d := openDB(t, dsn)
	n.put(t, &progressorv1.Namespace{Namespace: "gone"})
	p := process.Key{Namespace: "gone", ProcessID: "p"}
	if _, err := n.Start(t.Context(), engine.StartParams{Key: p}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Call(t.Context(), engine.CallParams{Key: p, Accepted: true}); err != nil {
		t.Fatal(err)
	}
	receive(t, "the attempt", g.entered)
	waits := make(chan error, 1)
	go func() {
		_, err := n.Call(context.Background(), engine.CallParams{Key: p, Args: []byte("x"), Timeout: time.Minute})
		waits <- err
	}()
	eventually(t, "the call waits", func() bool {
		return d.count(t, "SELECT count(*) FROM schedule WHERE namespace = 'gone'") == 1
	})
	storagetest.Exec(t, d, "INSERT INTO nodes (address, version) VALUES ('old', 'old')")
	n.deletes(t, &progressorv1.DeleteNamespaceRequest{Namespace: "gone", WithData: true})
	left := func() *progressorv1.NamespaceDeletion {
		ns, err := n.GetNamespace(t.Context(), "gone")
		if err != nil {
			t.Fatal(err)
		}
		return ns.GetDeletion()
	}
	if te := taskError(t, receive(t, "the waiting call", waits)); !te.Cancelled {
		t.Errorf("the waiting call: %v", te)
	}
	eventually(t, "this node knows of the deletion", func() bool { return left().GetWaitingForNodes() == 1 })
	pass(1500 * time.Millisecond)
	del := left()
	if len(del.GetLeft()) < 2 || del.GetLeft()[0].GetKind() != "processes" || del.GetLeft()[0].GetCount() != 1 {
		t.Errorf("%v", del)
	}
	list, _, err := n.ListNamespaces(t.Context(), &progressorv1.ListNamespacesRequest{})
	if err != nil || len(list) != 2 || !list[0].GetDeletion().GetWithData() || list[1].GetDeletion() != nil {
		t.Errorf("%v, %v", list, err)
	}
	storagetest.Exec(t, d, "DELETE FROM nodes WHERE address = 'old'")
	eventually(t, "the namespace is deleted", func() bool { return n.isGone(t, "gone") })
}

// The deletion of an empty namespace is cancelled if a node that does not know of the deletion
// stores data in the namespace.
func TestDeletionIsCancelled(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, processor.Echo())
	d := openDB(t, dsn)
	n.put(t, &progressorv1.Namespace{Namespace: "kept"})
	storagetest.Exec(t, d, "INSERT INTO nodes (address, version) VALUES ('old', 'old')")
	n.deletes(t, &progressorv1.DeleteNamespaceRequest{Namespace: "kept"})
	storagetest.Exec(t, d, "INSERT INTO flow_types (namespace, template_type, version) VALUES ('kept', 't', 1)")
	storagetest.Exec(t, d, "DELETE FROM nodes WHERE address = 'old'")
	eventually(t, "the deletion is cancelled, and the node knows this", func() bool {
		_, err := n.Start(t.Context(), engine.StartParams{
			Key: process.Key{Namespace: "kept", ProcessID: "p"},
		})
		if err != nil && !errors.Is(err, process.ErrNamespaceDeleting) {
			t.Fatal(err)
		}
		return err == nil
	})
	if ns, err := n.GetNamespace(t.Context(), "kept"); err != nil || ns.GetDeletion() != nil {
		t.Errorf("got deletion %v, error %v", ns.GetDeletion(), err)
	}
	if left := strings.Join(d.rowsOf(t, "kept"), ", "); !strings.Contains(left, "flow_types: 1") {
		t.Errorf("%s", left)
	}
}
