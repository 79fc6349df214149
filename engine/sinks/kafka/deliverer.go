package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/progressor-engine/progressor/engine/sinks"
	"github.com/progressor-engine/progressor/engine/sinks/format"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// deliverer is a client of a cluster.
type deliverer struct {
	config Config
	client *kgo.Client
	// reached reports whether a broker has answered the client.
	reached bool
	// known contains the topics to which the client has sent records.
	known map[string]bool
	// maxBytes limits a chunk. It is halved if a broker accepts only smaller batches.
	maxBytes int
}

// New returns the deliverer of a topic. It does not connect. The first delivery reports whether the
// cluster is reachable.
func New(c Config) (sinks.Deliverer, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	d := &deliverer{config: c}
	if err := d.open(); err != nil {
		return nil, err
	}
	return d, nil
}

// open replaces the client with a new one.
func (d *deliverer) open() error {
	client, err := d.config.open()
	if err != nil {
		return err
	}
	d.Close()
	d.client, d.reached, d.known, d.maxBytes = client, false, map[string]bool{}, d.config.MaxMessageBytes
	return nil
}

// Close closes the connections.
func (d *deliverer) Close() {
	if d.client != nil {
		d.client.Close()
	}
}

// Deliver stores changes in their topics. After an error, the topics may contain some of the
// changes. They never contain a change of a process without the earlier ones.
func (d *deliverer) Deliver(ctx context.Context, changes []*progressorv1.Change) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.config.Timeout,
		fmt.Errorf("the brokers have not stored all changes within %s", d.config.Timeout))
	defer cancel()
	records, err := d.encode(changes)
	if err != nil {
		return &sinks.PermanentError{Err: err}
	}
	if !d.reached {
		// The client would retry until the timeout without reporting the cause.
		if err := d.client.Ping(ctx); err != nil {
			return d.explain(ctx, d.config.connectError(err))
		}
		d.reached = true
	}
	for len(records) > 0 {
		n := d.chunk(records)
		rejected, err := d.send(ctx, records[:n])
		if err != nil {
			return d.explain(ctx, err)
		}
		records = append(rejected, records[n:]...)
	}
	return nil
}

func (d *deliverer) encode(changes []*progressorv1.Change) ([]*kgo.Record, error) {
	records := make([]*kgo.Record, 0, len(changes))
	for _, c := range changes {
		m, err := format.Encode(c, d.config.Format)
		if err != nil {
			return nil, err
		}
		r := &kgo.Record{
			Topic: topicOf(d.config.Topic, c), Key: []byte(format.Key(c)), Value: m.Body,
			Timestamp: c.GetTime().AsTime(),
		}
		for _, h := range m.KafkaHeaders() {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Name, Value: []byte(h.Value)})
		}
		records = append(records, r)
	}
	return records, nil
}

// chunk returns how many of the records are sent together, which is at least one. All of them fit
// into one batch, so the records of each partition do as well. The first record of a topic is sent
// alone, because the client divides records arbitrarily if it does not know the partitions of their
// topic.
func (d *deliverer) chunk(records []*kgo.Record) int {
	bytes := 0
	for n, r := range records {
		bytes += maxSize(r)
		known := d.known[r.Topic]
		if n > 0 && (bytes > d.maxBytes || !known) {
			return n
		}
		if !known {
			return 1
		}
	}
	return len(records)
}

// maxSize returns an upper bound of the size of a record in a batch, with the header of the batch.
func maxSize(r *kgo.Record) int {
	const batchHeader, recordHeader, pair = 61, 40, 10
	bytes := batchHeader + recordHeader + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		bytes += pair + len(h.Key) + len(h.Value)
	}
	return bytes
}

// send stores a chunk. It returns the records for partitions that rejected their part of the chunk
// as too large. They must be sent in smaller chunks.
func (d *deliverer) send(ctx context.Context, chunk []*kgo.Record) (rejected []*kgo.Record, err error) {
	errs := make([]error, len(chunk))
	for n, r := range chunk {
		d.client.Produce(context.WithoutCancel(ctx), r, func(_ *kgo.Record, err error) { errs[n] = err })
	}
	if err := d.client.Flush(ctx); err != nil {
		// The client would continue to send the chunk during the next delivery.
		return nil, errors.Join(context.Cause(ctx), d.open())
	}
	total := 0
	for n, err := range errs {
		total += maxSize(chunk[n])
		switch {
		case err == nil:
			d.known[chunk[n].Topic] = true
		case !tooLarge(err):
			// After some errors, a client can no longer be used.
			return nil, errors.Join(classify(chunk[n].Topic, err), d.open())
		case len(chunk) == 1:
			return nil, classify(chunk[n].Topic, err)
		default:
			rejected = append(rejected, chunk[n])
		}
	}
	if len(rejected) > 0 {
		d.maxBytes = total / 2
	}
	return rejected, nil
}

// explain returns the error of a delivery. After a timeout, it returns the cause of the timeout.
func (d *deliverer) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("deliver to Kafka at %s: %w", d.config.Brokers[0], err)
}
