package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// The states of changes, which are measured in this order.
const (
	notRecorded = "not recorded"
	recorded    = "recorded"
	withKafka   = "recorded, sink to Kafka"
	withWebhook = "recorded, sink to a webhook"
)

const (
	changesTopic = "changes"
	sinkID       = "bench"
	// calmTime is how long the engine is idle before each call of a webhook measurement.
	calmTime = 40 * time.Millisecond
	// leastDeliveries is the minimum number of measured deliveries to the webhook.
	leastDeliveries = 10
	// deliveryWait limits how long the bench waits for the sink after the load.
	deliveryWait = 5 * time.Minute
)

// changes measures calls in a namespace that records nothing, in one that records its events and
// lifecycle changes, and in one with a sink that delivers them to a Kafka broker in this process.
// Then it measures how long an idle engine takes to deliver a change to a webhook.
func (r *runner) changes(ctx context.Context, v variant) error {
	var first *Row
	for _, state := range []string{notRecorded, recorded, withKafka} {
		v.state = state
		row := v.row(subjectEngine)
		if err := r.recordedCalls(ctx, v, row); err != nil {
			return err
		}
		if first == nil {
			first = row
		} else {
			row.compare(first, notRecorded)
		}
		r.report.Rows = append(r.report.Rows, row)
	}
	v.state, v.clients = withWebhook, 1
	row := v.row(subjectEngine)
	err := r.webhookLatency(ctx, v, row)
	r.report.Rows = append(r.report.Rows, row)
	return err
}

// record makes the namespace of the bench record events, with their payloads, and lifecycle
// changes.
func (s *site) record(ctx context.Context) error {
	ns := builtinNamespace(namespaceName, historyNone)
	ns.Changes = &progressorv1.ChangeSettings{Payloads: true, Kinds: []progressorv1.ChangeKind{
		progressorv1.ChangeKind_CHANGE_KIND_EVENT, progressorv1.ChangeKind_CHANGE_KIND_LIFECYCLE,
	}}
	_, err := s.engine.PutNamespace(ctx, ns)
	return err
}

func (s *site) putSink(ctx context.Context, m *progressorv1.Sink) error {
	m.Namespace, m.SinkId = namespaceName, sinkID
	_, err := s.sinks.Put(ctx, &progressorv1.PutSinkRequest{Sink: m})
	return err
}

// recordedCalls measures calls of random processes.
func (r *runner) recordedCalls(ctx context.Context, v variant, row *Row) error {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(8, changesTopic), kfake.BlackholeProduce())
	if err != nil {
		return fmt.Errorf("start a Kafka broker: %w", err)
	}
	defer cluster.Close()
	return r.onEngine(ctx, v.history, processor.BenchNoop(), row, func(d *scratch, s *site) (acknowledged, error) {
		o := &operations{site: s, variant: v, payload: newPayload(ctx), processes: uint64(r.command.Processes)}
		if err := o.fill(ctx, d, 0); err != nil {
			return nil, err
		}
		if v.state != notRecorded {
			if err := s.record(ctx); err != nil {
				return nil, err
			}
		}
		if v.state == withKafka {
			target := &progressorv1.KafkaTarget{Brokers: cluster.ListenAddrs(), Topic: changesTopic}
			if err := s.putSink(ctx, &progressorv1.Sink{Target: &progressorv1.Sink_Kafka{Kafka: target}}); err != nil {
				return nil, err
			}
		}
		if err := r.settle(ctx, d.analyze); err != nil {
			return nil, err
		}
		w, err := load{clients: v.clients, warmup: r.command.Warmup, duration: r.command.Duration, do: o.call}.run(ctx,
			r.meterOf(s))
		if err != nil {
			return nil, err
		}
		row.rate(w)
		if v.state == withKafka {
			if err := s.measureSink(ctx, cluster, row, w.acknowledged); err != nil {
				return nil, err
			}
		}
		return acknowledged{process.TaskInit: int64(o.processes), process.TaskCall: w.acknowledged}, nil
	})
}

// measureSink measures how long the sink takes after the load to deliver all changes. Each call is
// one change. Then it rewinds the sink and measures the rate at which it delivers them again.
func (s *site) measureSink(ctx context.Context, cluster *kfake.Cluster, row *Row, calls int64) error {
	messages := func() (n int64) {
		for _, p := range cluster.PartitionInfos(changesTopic) {
			n += p.HighWatermark
		}
		return n
	}
	await := func(n int64) error {
		limit, cancel := context.WithTimeoutCause(ctx, deliveryWait, errors.New("the sink delivers too slowly"))
		defer cancel()
		for messages() < n {
			if err := wait(limit, time.Millisecond); err != nil {
				return err
			}
		}
		return nil
	}
	ended := time.Now()
	row.figure("undelivered changes at the end of the load", float64(calls-messages()), "")
	if err := await(calls); err != nil {
		return err
	}
	row.figure("all delivered after", time.Since(ended).Seconds(), "s")
	row.figure("changes delivered twice", float64(messages()-calls), "")
	began, before := time.Now(), messages()
	_, err := s.sinks.Rewind(ctx, &progressorv1.RewindSinkRequest{
		Namespace: namespaceName, SinkId: sinkID, ToTime: timestamppb.New(time.Unix(0, 0)),
	})
	if err != nil {
		return err
	}
	if err := await(before + calls); err != nil {
		return err
	}
	row.figure("backlog delivered", float64(calls)/time.Since(began).Seconds(), "changes/s")
	return nil
}

// webhookLatency measures the time from the recording of a change to the request that the webhook
// receives. A change is recorded right before its commit.
func (r *runner) webhookLatency(ctx context.Context, v variant, row *Row) error {
	received := make(chan time.Duration, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		now := time.Now()
		var event struct{ Time time.Time }
		body, err := io.ReadAll(request.Body)
		if err == nil && json.Unmarshal(body, &event) == nil {
			received <- now.Sub(event.Time)
		}
	}))
	defer server.Close()
	return r.onEngine(ctx, v.history, processor.BenchNoop(), row, func(d *scratch, s *site) (acknowledged, error) {
		o := &operations{site: s, variant: v, payload: newPayload(ctx), processes: 1}
		if err := o.fill(ctx, d, 0); err != nil {
			return nil, err
		}
		if err := s.record(ctx); err != nil {
			return nil, err
		}
		hook := &progressorv1.WebhookTarget{Url: server.URL}
		if err := s.putSink(ctx, &progressorv1.Sink{Target: &progressorv1.Sink_Webhook{Webhook: hook}}); err != nil {
			return nil, err
		}
		var latencies histogram
		calls := int64(0)
		caller := &client{random: rand.New(rand.NewPCG(1, 1))}
		begin := time.Now()
		for ; calls < leastDeliveries || time.Since(begin) < r.command.Duration; calls++ {
			if err := wait(ctx, calmTime); err != nil {
				return nil, err
			}
			if err := o.call(ctx, caller); err != nil {
				return nil, err
			}
			select {
			case took := <-received:
				latencies.add(max(0, took))
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		row.fill(calls, time.Since(begin), &latencies, spent{})
		return acknowledged{process.TaskInit: 1, process.TaskCall: calls}, nil
	})
}
