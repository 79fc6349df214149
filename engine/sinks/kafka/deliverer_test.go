package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/progressor-engine/progressor/engine/sinks"
	"github.com/progressor-engine/progressor/engine/sinks/format"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// A message has the key, the headers and the time of its change. The placeholders determine its
// topic.
func TestMessages(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, topic := range []string{"p.shop.eu.event", "p.shop.eu.lifecycle"} {
		c.newTopic(topic)
	}
	config := c.config("p.{namespace}.{kind}")
	config.Format = format.Protobuf
	d := open(t, config)
	first, second := change("order-1", 1), change("order-1", 2)
	first.Namespace, second.Namespace = "shop/eu", "shop/eu"
	second.Kind, second.Type = progressorv1.ChangeKind_CHANGE_KIND_LIFECYCLE, "completed"
	deliver(t, d, []*progressorv1.Change{first, second})
	for topic, sent := range map[string]*progressorv1.Change{
		"p.shop.eu.event": first, "p.shop.eu.lifecycle": second,
	} {
		m, err := format.Encode(sent, format.Protobuf)
		if err != nil {
			t.Fatal(err)
		}
		wanted := "shop/eu:order-1 2023-11-14T22:13:20Z"
		for _, h := range m.KafkaHeaders() {
			wanted += fmt.Sprintf(" %s=%s", h.Name, h.Value)
		}
		if got := c.flat(topic); got != wanted+" "+string(m.Body) {
			t.Errorf("%s: %q\nwant %q", topic, got, wanted+" "+string(m.Body))
		}
	}
}

// The changes of a process are stored once, in order, in one partition, even if a broker returns a
// temporary error before or after it has stored them.
func TestRepeatsInTheClient(t *testing.T) {
	t.Parallel()
	const processes = 8
	for name, fault := range map[string]kfake.Fault{
		"not leader":                  {Err: kerr.NotLeaderForPartition},
		"too few copies":              {Err: kerr.NotEnoughReplicas},
		"stored, then timed out":      {Err: kerr.RequestTimedOut},
		"stored, then too few copies": {Err: kerr.NotEnoughReplicasAfterAppend},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.newTopic("t")
			d := open(t, c.config("t"))
			deliver(t, d, changes(processes, 1, 3))
			fault.Keys, fault.Count = []kmsg.Key{kmsg.Produce}, 3
			faults := c.Fault(fault)
			deliver(t, d, changes(processes, 4, 6))
			if faults.Hits() != 3 {
				t.Errorf("%d of 3 faults have happened", faults.Hits())
			}
			deliver(t, d, changes(processes, 7, 9))
			if again := c.wantAll("t", processes, 9); again != 0 {
				t.Errorf("%d changes are stored twice", again)
			}
		})
	}
}

// lossy opens connections that break when the next response arrives, if broken is set.
type lossy struct {
	broken atomic.Bool
	cuts   atomic.Int64
}

func (l *lossy) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	return &lossyConn{conn, l}, err
}

type lossyConn struct {
	net.Conn
	lossy *lossy
}

func (c *lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.lossy.broken.CompareAndSwap(true, false) {
		c.lossy.cuts.Add(1)
		return 0, errors.Join(net.ErrClosed, c.Close())
	}
	return n, err
}

// A broker stores changes, but the connection breaks before the client receives the response. The
// client sends them again, and the broker recognizes them.
func TestConnectionBreaksAfterStoring(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.NumBrokers(1))
	c.newTopic("t")
	network := new(lossy)
	config := c.config("t")
	config.Dial = network.dial
	d := open(t, config)
	deliver(t, d, changes(8, 1, 3))
	for round := range 3 {
		network.broken.Store(true)
		deliver(t, d, changes(8, 4+round, 4+round))
	}
	if cuts := network.cuts.Load(); cuts != 3 {
		t.Errorf("%d of 3 connections broke", cuts)
	}
	if again := c.wantAll("t", 8, 6); again != 0 {
		t.Errorf("%d changes are stored twice", again)
	}
}

// failNth makes the cluster reject the records for a topic in request n, counted from 0, with an
// error. The cluster accepts the other requests.
func (c *cluster) failNth(topic string, n int, err *kerr.Error) *kfake.FaultHandle {
	requests := map[kmsg.Request]bool{}
	return c.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: err, Count: -1,
		When: func(r kmsg.Request) bool {
			if _, seen := requests[r]; !seen {
				requests[r] = len(requests) == n
			}
			return requests[r]
		},
	})
}

// If any request of a delivery fails, no change of a process is stored without the earlier ones,
// and a repeated delivery adds the missing changes.
func TestFailureKeepsTheOrder(t *testing.T) {
	t.Parallel()
	const processes, last = 5, 8
	c := newCluster(t)
	for n, failed := 0, true; failed; n++ {
		topic := fmt.Sprintf("t%d", n)
		c.newTopic(topic)
		config := c.config(topic)
		config.MaxMessageBytes = 2500 // some changes
		d := open(t, config)
		faults := c.failNth(topic, n, kerr.InvalidRecord)
		err := d.Deliver(t.Context(), changes(processes, 1, last))
		failed = faults.Hits() > 0
		if _, permanent := errors.AsType[*sinks.PermanentError](err); permanent != failed {
			t.Errorf("request %d: %v after %d faults", n, err, faults.Hits())
		}
		if !failed && n < last {
			t.Errorf("%d requests have stored all changes, want more chunks", n)
		}
		if _, again := c.progress(topic); again != 0 {
			t.Errorf("request %d fails: %d changes are stored again", n, again)
		}
		faults.Remove()
		deliver(t, d, changes(processes, 1, last))
		c.wantAll(topic, processes, last)
	}
}

// If a broker accepts only smaller batches than the client sends, the client sends smaller ones.
func TestSmallBatches(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "1500"}))
	c.newTopic("t")
	d := open(t, c.config("t"))
	deliver(t, d, changes(3, 1, 40))
	if again := c.wantAll("t", 3, 40); again != 0 {
		t.Errorf("%d changes are stored twice", again)
	}
}

// A change that is too large causes a permanent error, whether the client or the broker rejects it.
// No later change of its process is stored.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]int{"client": 3000, "broker": 100_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "3000"}))
			c.newTopic("t")
			config := c.config("t")
			config.MaxMessageBytes = limit
			d := open(t, config)
			list := changes(2, 1, 9)
			large := list[6] // change 4 of p0
			large.Payload = incompressible(4000)
			for _, batch := range [][]*progressorv1.Change{list, {large}} {
				err := d.Deliver(t.Context(), batch)
				wantPermanent(t, err, "the change is larger than topic t or max_message_bytes allows")
			}
			if stored, _ := c.progress("t"); stored["p0"] != 3 {
				t.Errorf("the stored changes are %v", stored)
			}
			large.Payload = nil
			deliver(t, d, list)
			c.wantAll("t", 2, 9)
		})
	}
}

// incompressible returns bytes of a simple generator of random numbers.
func incompressible(length int) []byte {
	bytes, state := make([]byte, length), uint32(1)
	for n := range bytes {
		state = state*1664525 + 1013904223
		bytes[n] = byte(state >> 24)
	}
	return bytes
}

// A broker that does not answer fails the delivery after its timeout. The next delivery uses a new
// connection.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.NumBrokers(1))
	c.newTopic("t")
	config := c.config("t")
	config.Timeout = 2 * time.Second
	d := open(t, config)
	deliver(t, d, changes(3, 1, 2))
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) { return nil, nil, true })
	wantRetried(t, d.Deliver(t.Context(), changes(3, 3, 4)), "the brokers have not stored all changes within 2s")
	deliver(t, d, changes(3, 3, 4))
	c.wantAll("t", 3, 4)

	ctx, cancel := context.WithCancel(t.Context())
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cancel()
		return nil, nil, true
	})
	if err := d.Deliver(ctx, changes(3, 5, 6)); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled delivery: %v", err)
	}
	deliver(t, d, changes(3, 5, 6))
	c.wantAll("t", 3, 6)
}

func wantPermanent(t testing.TB, err error, text string) {
	t.Helper()
	if _, ok := errors.AsType[*sinks.PermanentError](err); !ok || !strings.Contains(err.Error(), text) {
		t.Errorf("%v\nwant a permanent error: %s", err, text)
	}
}

func wantRetried(t testing.TB, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%v\nwant %s", err, text)
	}
	if _, ok := errors.AsType[*sinks.PermanentError](err); ok {
		t.Errorf("%v\nmust not be permanent, because no single change causes it", err)
	}
}
