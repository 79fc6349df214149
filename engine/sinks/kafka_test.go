package sinks_test

import (
	"context"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// sinkToKafka returns a sink whose target is a topic.
func sinkToKafka(brokers ...string) *progressorv1.Sink {
	return &progressorv1.Sink{Namespace: "ns", SinkId: "s", Target: &progressorv1.Sink_Kafka{
		Kafka: &progressorv1.KafkaTarget{Brokers: brokers, Topic: "changes.{namespace}", CreateTopic: true},
	}}
}

// A sink delivers to a topic of Kafka.
func TestKafka(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.AllowAutoTopicCreation())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	s := newSite(t)
	n := s.start()
	n.put(t, sinkToKafka(cluster.ListenAddrs()...))
	n.begin(t, "a")
	n.drains(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("changes.ns"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	var keys []string
	for len(keys) < 2 && ctx.Err() == nil {
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) { keys = append(keys, string(r.Key)) })
	}
	want(t, "keys", strings.Join(keys, " "), "ns:a ns:a")
}

// The password of Kafka is kept for the same brokers and user only, and never returned.
func TestKafkaSettings(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := s.start()
	login := func(user, password string) *progressorv1.KafkaSasl {
		return &progressorv1.KafkaSasl{Mechanism: "PLAIN", User: user, Password: password}
	}
	put := func(m *progressorv1.Sink) error {
		_, err := n.Sinks.Put(t.Context(), &progressorv1.PutSinkRequest{Sink: m})
		return err
	}
	m := sinkToKafka("127.0.0.1:9")
	m.GetKafka().Sasl = login("kim", "hidden")
	if got := n.put(t, m).GetKafka().GetSasl(); got.GetPassword() != "" || got.GetUser() != "kim" {
		t.Errorf("%v", got)
	}
	m.GetKafka().Sasl = login("kim", "")
	if err := put(m); err != nil {
		t.Errorf("without the password: %v", err)
	}
	for wanted, change := range map[string]func(*progressorv1.KafkaTarget){
		"sink.kafka.sasl.password: is required for new brokers or another user": func(k *progressorv1.KafkaTarget) {
			k.Brokers = []string{"127.0.0.1:10"}
		},
		"sink.kafka.brokers[0]: must be host:port": func(k *progressorv1.KafkaTarget) {
			k.Brokers, k.Sasl = []string{"nowhere"}, nil
		},
		"sink.kafka.topic: the placeholders are {namespace} and {kind}": func(k *progressorv1.KafkaTarget) {
			k.Topic = "changes.{type}"
		},
		"sink.kafka.tls.ca_pem: must be certificates in PEM": func(k *progressorv1.KafkaTarget) {
			k.Tls = &progressorv1.KafkaTls{CaPem: "x"}
		},
	} {
		m := sinkToKafka("127.0.0.1:9")
		m.GetKafka().Sasl = login("kim", "")
		change(m.GetKafka())
		if err := put(m); err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("got %v\nwant %s", err, wanted)
		}
	}
}
