package engine_test

import (
	"testing"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

// node is a running engine of a test.
type node struct {
	*enginetest.Node
	store *storage.Store
	stop  func()
}

// start runs an engine on a database with one namespace "ns" whose processor is p.
func start(t testing.TB, dsn string, p processor.Processor, change ...func(*engine.Config)) *node {
	t.Helper()
	return startKinds(t, dsn, p, nil, change...)
}

// startKinds is start with kinds.
func startKinds(
	t testing.TB, dsn string, p processor.Processor, kinds []engine.Kind, change ...func(*engine.Config),
) *node {
	t.Helper()
	with := []enginetest.Option{enginetest.Add(func(*enginetest.Node) []engine.Kind { return kinds })}
	for _, f := range change {
		with = append(with, enginetest.Config(f))
	}
	n := enginetest.Start(t, dsn, p, with...)
	return &node{n, n.Store, n.Stop}
}

func (n *node) put(t testing.TB, ns *progressorv1.Namespace) {
	t.Helper()
	n.Put(t, ns)
}

func key(id string) process.Key { return process.Key{Namespace: "ns", ProcessID: id} }

func TestStartAndCall(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), processor.Echo())
	ctx := t.Context()
	ans, err := n.Start(ctx, engine.StartParams{Key: key("p1"), Args: []byte("hello")})
	if err != nil || string(ans.Response) != "hello" || ans.ProcessID != "p1" || ans.TaskID == 0 {
		t.Fatalf("start: %+v, %v", ans, err)
	}
	ans, err = n.Call(ctx, engine.CallParams{Key: key("p1"), Args: []byte("again")})
	if err != nil || string(ans.Response) != "again" {
		t.Fatalf("call: %+v, %v", ans, err)
	}
	p, err := n.GetProcess(ctx, key("p1"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if p.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING || p.GetLastEventId() != 2 ||
		len(p.GetHistory()) != 2 || string(p.GetAuxState()) != "again" {
		t.Fatalf("process: %v", p)
	}
}

// The engine works with the fast path off.
func TestWithoutFastPath(t *testing.T) {
	t.Parallel()
	storagetest.RunWithoutFastPath(t, map[string]func(*testing.T){
		"start and call": TestStartAndCall, "calls in order": TestCallsInOrder, "errors": TestAnswersThatAreErrors,
		"retry": TestRetryScenarios, "same key": TestSameKeySameAnswer, "full queue": TestMaxWaiting,
		"timers": TestTimers, "busy timer": TestTimerDueWhileBusy, "cancel": TestCancelScenarios,
		"suspend": TestSuspendScenarios, "children": TestParentAndChildren,
		"two nodes": TestCallOfProcessBusyElsewhere, "zombie": TestZombieScenarios, "drain": TestDrainScenarios,
		"restart": TestRestartHistoryByResult,
	})
}
