//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// The sinks of the chain. The webhook receives the changes of only one in five of the clients'
// processes, because each change is a separate request.
const (
	kafkaSink, webhookSink = "kafka", "webhook"
	kafkaTopic             = "changes"
	webhookProcesses       = "^p[0-9]*[05]$"
)

// record lets a namespace record its changes.
func record(ns *progressorv1.Namespace) {
	ns.Changes = &progressorv1.ChangeSettings{Kinds: []progressorv1.ChangeKind{
		progressorv1.ChangeKind_CHANGE_KIND_EVENT, progressorv1.ChangeKind_CHANGE_KIND_LIFECYCLE,
	}}
}

// arrivals are the changes that a target has received. As docs/changes.md recommends, the target
// ignores a change whose number is not larger than the last one of its process. So a change that
// arrives after a later one counts as missing.
type arrivals struct {
	mutex sync.Mutex
	ids   map[string][]int64 // by process
	total int
	again int
}

func (a *arrivals) take(c *progressorv1.Change) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.ids == nil {
		a.ids = map[string][]int64{}
	}
	a.total++
	ids := a.ids[c.GetProcessId()]
	if len(ids) > 0 && c.GetChangeId() <= ids[len(ids)-1] {
		a.again++
		return
	}
	a.ids[c.GetProcessId()] = append(ids, c.GetChangeId())
}

func (a *arrivals) counts() (total, again int) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.total, a.again
}

// firstNewNumber is smaller than all numbers that are issued after a failover.
const firstNewNumber = 1_000_000_000_000

// defects compares the received changes with the recorded ones, by process. lossy is set after a
// failover that may have lost received changes.
func (a *arrivals) defects(sink string, recorded map[string][]int64, lossy bool) (wrong []string) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for process, ids := range recorded {
		got := slices.Clone(a.ids[process])
		if lossy {
			got = slices.DeleteFunc(got, func(id int64) bool {
				return id < firstNewNumber && !slices.Contains(ids, id)
			})
		}
		if !slices.Equal(got, ids) {
			n := 0
			for n < min(len(got), len(ids)) && got[n] == ids[n] {
				n++
			}
			wrong = append(wrong, fmt.Sprintf("sink %s has received %d of the %d changes of %s: the first %d, then %v "+
				"instead of %v", sink, len(got), len(ids), process, n, got[n:min(n+3, len(got))],
				ids[n:min(n+3, len(ids))]))
		}
	}
	for process := range a.ids {
		if _, known := recorded[process]; !known && !lossy {
			wrong = append(wrong, fmt.Sprintf("sink %s has received changes of %s, which has none", sink, process))
		}
	}
	return wrong
}

// broker is a Kafka cluster that can break connections and reject records.
type broker struct {
	*kfake.Cluster
	arrivals
	failing atomic.Bool // connections are cut at the next response
	cuts    atomic.Int64
	read    atomic.Int64
}

// lossyListener accepts connections that break instead of sending a response while their broker
// fails. The broker still executes the requests.
type lossyListener struct {
	net.Listener
	broker *broker
}

func (l *lossyListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &lossyConn{conn, l.broker}, nil
}

type lossyConn struct {
	net.Conn
	broker *broker
}

func (c *lossyConn) Write(b []byte) (int, error) {
	if c.broker.failing.Load() {
		c.broker.cuts.Add(1)
		return 0, errors.Join(net.ErrClosed, c.Close())
	}
	return c.Conn.Write(b)
}

// newBroker starts a cluster with one topic, and reads the records of the topic.
func newBroker(t testing.TB) *broker {
	t.Helper()
	b := &broker{}
	var err error
	b.Cluster, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, kafkaTopic),
		kfake.ListenFn(func(network, address string) (net.Listener, error) {
			listener, err := net.Listen(network, address)
			return &lossyListener{listener, b}, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := kgo.NewClient(kgo.SeedBrokers(b.ListenAddrs()...), kgo.ConsumeTopics(kafkaTopic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var reading sync.WaitGroup
	reading.Go(func() {
		for ctx.Err() == nil {
			for r := range consumer.PollFetches(ctx).RecordsAll() {
				c := &progressorv1.Change{}
				if err := proto.Unmarshal(r.Value, c); err != nil {
					t.Errorf("Kafka message: %v", err)
				}
				b.take(c)
				b.read.Add(1)
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		reading.Wait()
		consumer.Close()
		b.Close()
	})
	return b
}

// allRead reports whether the consumer has read everything that is stored.
func (b *broker) allRead() bool {
	stored := int64(0)
	for _, p := range b.PartitionInfos(kafkaTopic) {
		stored += p.HighWatermark
	}
	return b.read.Load() == stored
}

// kafkaFaults are the faults of Kafka. Each one lasts until stop is called. happened returns the
// number of its occurrences.
var kafkaFaults = []func(*broker) (happened func() int64, stop func()){
	func(b *broker) (func() int64, func()) { // lose responses
		before := b.cuts.Load()
		b.failing.Store(true)
		return func() int64 { return b.cuts.Load() - before }, func() { b.failing.Store(false) }
	},
	func(b *broker) (func() int64, func()) { // store, and answer with an error
		h := b.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicasAfterAppend, Count: -1,
		})
		return func() int64 { return int64(h.Hits()) }, h.Remove
	},
	func(b *broker) (func() int64, func()) { // reject
		h := b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: -1})
		return func() int64 { return int64(h.Hits()) }, h.Remove
	},
	func(b *broker) (func() int64, func()) { // reject permanently
		h := b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed, Count: -1})
		return func() int64 { return int64(h.Hits()) }, h.Remove
	},
}

// hook is a webhook that can fail in every way.
type hook struct {
	arrivals
	url    string
	fails  atomic.Bool
	failed atomic.Int64
}

func newHook(t testing.TB) *hook {
	h := &hook{}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	h.url = server.URL
	return h
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the engine was killed
	}
	c := &progressorv1.Change{}
	if err := proto.Unmarshal(body, c); err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	if !h.fails.Load() {
		h.take(c)
		return
	}
	switch h.failed.Add(1) % 4 {
	case 0:
		http.Error(w, "a fault", http.StatusInternalServerError)
	case 1: // the response is lost
		h.take(c)
		panic(http.ErrAbortHandler)
	case 2: // too late
		h.take(c)
		<-r.Context().Done()
	default:
		panic(http.ErrAbortHandler)
	}
}

// sinkWatch contains the targets of the sinks of the chain.
type sinkWatch struct {
	t               testing.TB
	fleet           *fleet
	broker          *broker
	hook            *hook
	rejectingTarget *rejectingTarget
	lossy           bool  // a failover may have lost changes
	faults          int64 // of Kafka
	quiet           int   // changes that were received without faults
}

// startSinks creates the sinks of the chain. The namespace must already record changes.
func startSinks(f *fleet) *sinkWatch {
	f.t.Helper()
	w := &sinkWatch{
		t: f.t, fleet: f, broker: newBroker(f.t), hook: newHook(f.t), rejectingTarget: newRejectingTarget(f.t),
	}
	for _, m := range []*progressorv1.Sink{
		{SinkId: kafkaSink, Target: &progressorv1.Sink_Kafka{Kafka: &progressorv1.KafkaTarget{
			Brokers: w.broker.ListenAddrs(), Topic: kafkaTopic, Timeout: durationpb.New(2 * time.Second),
		}}},
		{SinkId: webhookSink, Target: &progressorv1.Sink_Webhook{Webhook: &progressorv1.WebhookTarget{
			Url: w.hook.url, Timeout: durationpb.New(500 * time.Millisecond),
		}}, Filter: fmt.Sprintf("change.process_id.matches(%q)", webhookProcesses)},
		{SinkId: refusedSink, Target: &progressorv1.Sink_Webhook{Webhook: &progressorv1.WebhookTarget{
			Url: w.rejectingTarget.url, Timeout: durationpb.New(500 * time.Millisecond),
		}}, Filter: fmt.Sprintf("change.process_id.matches(%q)", refusedProcesses)},
	} {
		m.Namespace, m.Format = namespace, progressorv1.SinkFormat_SINK_FORMAT_PROTOBUF
		if _, err := f.at(0).Change.PutSink(f.t.Context(), &progressorv1.PutSinkRequest{Sink: m}); err != nil {
			f.t.Fatal(err)
		}
	}
	return w
}

// breakKafka makes Kafka fail in one way until the engines have noticed it.
func (s *chaosRun) breakKafka(int) {
	happened, stop := kafkaFaults[s.random.IntN(len(kafkaFaults))](s.sinks.broker)
	awaitFaults(happened)
	s.sinks.faults += happened()
	stop()
	s.sinks.retryDeadLetters()
}

// breakWebhook makes the webhook fail in every way until the engines have noticed it.
func (s *chaosRun) breakWebhook(int) {
	before := s.sinks.hook.failed.Load()
	s.sinks.hook.fails.Store(true)
	awaitFaults(func() int64 { return s.sinks.hook.failed.Load() - before })
	s.sinks.hook.fails.Store(false)
	s.sinks.retryDeadLetters()
}

// awaitFaults waits until a fault has happened several times. A sink whose node was killed delivers
// nothing for 15 s. Short runs do not wait for that.
func awaitFaults(happened func() int64) {
	limit := 20 * time.Second
	if *chaosDuration < fullRound {
		limit = time.Second
	}
	waitUntil(limit, func() bool { return happened() > 0 })
	waitUntil(2*time.Second, func() bool { return happened() >= 8 })
}

// catchUp waits until the sinks have delivered everything. A resume repeats a failed delivery at
// once.
func (w *sinkWatch) catchUp() {
	w.t.Helper()
	for n, sink := range []string{kafkaSink, webhookSink, refusedSink} {
		w.ask("resume the sink", n, func(ctx context.Context, c *client.Client) error {
			_, err := c.Change.ResumeSink(ctx, &progressorv1.ResumeSinkRequest{Namespace: namespace, SinkId: sink})
			return err
		})
	}
	var behind []string
	w.retryDeadLetters()
	// The lease of a node that was killed lasts for 15 s.
	await(w.t, testTimeout+time.Minute, "the sinks have delivered all changes", func() bool {
		behind = nil
		w.ask("list the sinks", 0, func(ctx context.Context, c *client.Client) error {
			list, err := c.Change.ListSinks(ctx, &progressorv1.ListSinksRequest{Namespace: namespace})
			for _, m := range list.GetSinks() {
				if m.GetStatus().GetLagChanges() > 0 || m.GetStatus().GetStoredDeadLetters() > 0 {
					behind = append(behind, m.String())
				}
			}
			return err
		})
		if len(behind) > 0 {
			w.retryDeadLetters()
		}
		return len(behind) == 0 && w.broker.allRead()
	})
}

// ask sends a request to one engine after the other until one has executed it.
func (w *sinkWatch) ask(what string, first int, request func(context.Context, *client.Client) error) {
	w.t.Helper()
	err := errors.New("no attempt")
	try := first
	await(w.t, testTimeout, what, func() bool {
		ctx, cancel := context.WithTimeout(w.t.Context(), w.fleet.try)
		defer cancel()
		err = request(ctx, w.fleet.at(try))
		try++
		return err == nil
	})
}

func (w *sinkWatch) counts() (total, again int) {
	for _, a := range []*arrivals{&w.broker.arrivals, &w.hook.arrivals} {
		n, m := a.counts()
		total, again = total+n, again+m
	}
	return total, again
}

// end waits until the sinks have delivered everything. After that, there are no more faults, so
// further calls must not cause a second delivery.
func (w *sinkWatch) end(seed uint64) []*entry {
	w.t.Helper()
	w.catchUp()
	total, again := w.counts()
	calm := startLoad(w.fleet, plan{clients: 4, processes: 50, calls: 200, seed: seed,
		vary: func(e *entry, _ int, _ *rand.Rand) { e.op = "calm-" + e.op }})
	entries := calm.wait()
	w.catchUp()
	now, nowAgain := w.counts()
	if w.quiet = now - total; nowAgain != again {
		w.t.Errorf("%d changes were delivered again without a fault", nowAgain-again)
	}
	return entries
}

// defects compares the delivered changes with the recorded ones, and the recorded ones with the
// events.
func (w *sinkWatch) defects(conn *pgx.Conn) []string {
	w.t.Helper()
	w.catchUp()
	recorded, selected, refused := map[string][]int64{}, map[string][]int64{}, map[string][]int64{}
	rows, err := conn.Query(w.t.Context(), `SELECT process_id, array_agg(change_id ORDER BY change_id)
		FROM changes WHERE namespace = $1 GROUP BY process_id`, namespace)
	if err != nil {
		w.t.Fatal(err)
	}
	var process string
	var ids []int64
	ofHook, ofRejecting := regexp.MustCompile(webhookProcesses), regexp.MustCompile(refusedProcesses)
	_, err = pgx.ForEachRow(rows, []any{&process, &ids}, func() error {
		recorded[process] = ids
		if ofHook.MatchString(process) {
			selected[process] = ids
		}
		if ofRejecting.MatchString(process) {
			refused[process] = ids
		}
		ids = nil
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	wrong := slices.Concat(w.broker.defects(kafkaSink, recorded, w.lossy),
		w.hook.defects(webhookSink, selected, w.lossy), w.rejectingTarget.defects(refused, w.lossy))
	if n := count(w.t, conn, `SELECT count(*) FROM events e WHERE e.namespace = $1 AND NOT EXISTS (
		SELECT FROM changes c WHERE c.namespace = e.namespace AND c.process_id = e.process_id
			AND c.kind = 'event' AND c.event_id = e.event_id)`, namespace); n > 0 {
		wrong = append(wrong, fmt.Sprintf("%d events were not recorded", n))
	}
	return wrong
}

// figures returns the numbers about the sinks that must not be zero after a long run.
func (w *sinkWatch) figures() []figure {
	kafka, kafkaAgain := w.broker.counts()
	webhook, webhookAgain := w.hook.counts()
	w.t.Logf("changes received again after faults: %d from Kafka, %d by the webhook", kafkaAgain, webhookAgain)
	return []figure{
		{"changes received from Kafka", kafka},
		{"changes received by the webhook", webhook},
		{"changes received again after a fault", kafkaAgain + webhookAgain},
		{"dead letters that were delivered", w.rejectingTarget.delivered()},
		{"faults of Kafka", int(w.faults)},
		{"requests that the webhook failed", int(w.hook.failed.Load())},
		{"changes received exactly once, without faults", w.quiet},
	}
}

// The check of the delivered changes reports gaps, changes in the wrong order, and changes that
// were not recorded. It accepts repeated changes.
func TestPlantedDeliveries(t *testing.T) {
	t.Parallel()
	recorded := map[string][]int64{"p": {1, 3, 4}, "q": {2}}
	for name, test := range map[string]struct {
		deliveries []int64 // numbers of the changes of p
		lossy      bool
		wrong      bool
	}{
		"all":                       {deliveries: []int64{1, 3, 4}},
		"some again":                {deliveries: []int64{1, 3, 1, 3, 4, 4}},
		"a gap":                     {deliveries: []int64{1, 4}, wrong: true},
		"the last one is missing":   {deliveries: []int64{1, 3}, wrong: true},
		"in the wrong order":        {deliveries: []int64{1, 4, 3, 4}, wrong: true},
		"one that was not recorded": {deliveries: []int64{1, 2, 3, 4}, wrong: true},
		"one that was lost":         {deliveries: []int64{1, 2, 3, 4}, lossy: true},
		"a new one too many":        {deliveries: []int64{1, 3, 4, firstNewNumber}, lossy: true, wrong: true},
	} {
		var a arrivals
		a.take(&progressorv1.Change{ProcessId: "q", ChangeId: 2})
		for _, id := range test.deliveries {
			a.take(&progressorv1.Change{ProcessId: "p", ChangeId: id})
		}
		if wrong := a.defects("s", recorded, test.lossy); (len(wrong) > 0) != test.wrong {
			t.Errorf("%s: %v", name, wrong)
		}
	}
}
