package kafka_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine/sinks"
	"github.com/progressor-engine/progressor/engine/sinks/format"
	"github.com/progressor-engine/progressor/engine/sinks/kafka"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout is how long a test waits for an event that normally happens soon.
const testTimeout = time.Minute

// cluster is a Kafka cluster in this process.
type cluster struct {
	t testing.TB
	*kfake.Cluster
}

func newCluster(t testing.TB, options ...kfake.Opt) *cluster {
	t.Helper()
	c, err := kfake.NewCluster(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &cluster{t, c}
}

// newTopic creates a topic with 4 partitions.
func (c *cluster) newTopic(name string) {
	c.t.Helper()
	if err := c.CreateTopic(name, 4, nil); err != nil {
		c.t.Fatal(err)
	}
}

// config returns the config of a sink to a topic, with JSON in the messages.
func (c *cluster) config(topic string) kafka.Config {
	return kafka.Config{Brokers: c.ListenAddrs(), Topic: topic, Format: format.Binary, Timeout: testTimeout}
}

func open(t testing.TB, c kafka.Config) sinks.Deliverer {
	t.Helper()
	d, err := kafka.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// stored returns the messages of a topic, partition by partition, each in order.
func (c *cluster) stored(topic string, options ...kgo.Opt) [][]*kgo.Record {
	c.t.Helper()
	partitions, left := make([][]*kgo.Record, 16), int64(0)
	for _, p := range c.PartitionInfos(topic) {
		left += p.HighWatermark
	}
	options = append(options, kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics(topic))
	client, err := kgo.NewClient(options...)
	if err != nil {
		c.t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(c.t.Context(), testTimeout)
	defer cancel()
	for left > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			c.t.Fatalf("%d messages of %s were not read: %v", left, topic, err)
		}
		for r := range fetches.RecordsAll() {
			partitions[r.Partition] = append(partitions[r.Partition], r)
			left--
		}
	}
	return partitions
}

// change returns an event of a process.
func change(process string, number int) *progressorv1.Change {
	return &progressorv1.Change{
		ChangeId: int64(number), Kind: progressorv1.ChangeKind_CHANGE_KIND_EVENT, Type: "stored", Namespace: "shop",
		ProcessId: process, EventId: int64(number), Time: timestamppb.New(time.UnixMilli(1_700_000_000_000)),
	}
}

// changes returns the changes first to last of each of the processes p0, p1, and so on.
func changes(processes, first, last int) (list []*progressorv1.Change) {
	for number := first; number <= last; number++ {
		for p := range processes {
			list = append(list, change(fmt.Sprintf("p%d", p), number))
		}
	}
	return list
}

// progress returns the number of the last stored change of each process, and how many changes are
// stored more than once. It reports gaps, and processes with changes in several partitions.
func (c *cluster) progress(topic string) (last map[string]int, again int) {
	c.t.Helper()
	last = map[string]int{}
	partitionOf := map[string]int{}
	for partition, records := range c.stored(topic) {
		for _, r := range records {
			process, number := parse(c.t, r)
			if seen, ok := partitionOf[process]; ok && seen != partition {
				c.t.Errorf("%s: %s is in the partitions %d and %d", topic, process, seen, partition)
			}
			partitionOf[process] = partition
			switch {
			case number <= last[process]:
				again++
			case number != last[process]+1:
				c.t.Errorf("%s: change %d of %s follows change %d", topic, number, process, last[process])
			}
			last[process] = max(last[process], number)
		}
	}
	return last, again
}

// parse returns the process and the number of the change in a message.
func parse(t testing.TB, r *kgo.Record) (process string, number int) {
	t.Helper()
	var body struct{ ProcessID, ChangeID string }
	if err := json.Unmarshal(r.Value, &body); err != nil {
		t.Fatalf("%s: %v", r.Value, err)
	}
	number, err := strconv.Atoi(body.ChangeID)
	if err != nil {
		t.Fatal(err)
	}
	return body.ProcessID, number
}

// wantAll checks that a topic has all changes of some processes up to a number.
func (c *cluster) wantAll(topic string, processes, last int) (again int) {
	c.t.Helper()
	stored, again := c.progress(topic)
	for p := range processes {
		if id := fmt.Sprintf("p%d", p); stored[id] != last {
			c.t.Errorf("%s: %s is stored up to change %d, want %d", topic, id, stored[id], last)
		}
	}
	return again
}

// flat returns the messages of a topic as lines, sorted.
func (c *cluster) flat(topic string) string {
	c.t.Helper()
	var lines []string
	for _, records := range c.stored(topic) {
		for _, r := range records {
			line := fmt.Sprintf("%s %s", r.Key, r.Timestamp.UTC().Format(time.RFC3339))
			for _, h := range r.Headers {
				line += fmt.Sprintf(" %s=%s", h.Key, h.Value)
			}
			lines = append(lines, line+" "+string(r.Value))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func deliver(t testing.TB, d sinks.Deliverer, list []*progressorv1.Change) {
	t.Helper()
	if err := d.Deliver(t.Context(), list); err != nil {
		t.Fatal(err)
	}
}
