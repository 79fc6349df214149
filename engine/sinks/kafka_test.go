package sinks_test

import (
	"context"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

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

// The password of Kafka is kept only if the brokers, the user and the mechanism are the same, and
// TLS is added or unchanged. The password is not returned.
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
	m.GetKafka().Sasl.Mechanism = "SCRAM-SHA-256"
	if got := n.put(t, m).GetKafka().GetSasl(); got.GetPassword() != "" || got.GetUser() != "kim" {
		t.Errorf("%v", got)
	}
	m.GetKafka().Sasl.Password, m.GetKafka().Tls = "", &progressorv1.KafkaTls{}
	if err := put(m); err != nil {
		t.Errorf("with TLS, without the password: %v", err)
	}
	const required = "sink.kafka.sasl.password: is required for new brokers, another user or mechanism, or other TLS"
	for what, change := range map[string]func(*progressorv1.KafkaTarget){
		"brokers":     func(k *progressorv1.KafkaTarget) { k.Brokers = []string{"127.0.0.1:10"} },
		"user":        func(k *progressorv1.KafkaTarget) { k.Sasl.User = "sam" },
		"mechanism":   func(k *progressorv1.KafkaTarget) { k.Sasl.Mechanism = "PLAIN" },
		"no TLS":      func(k *progressorv1.KafkaTarget) { k.Tls = nil },
		"authorities": func(k *progressorv1.KafkaTarget) { k.Tls = &progressorv1.KafkaTls{CaPem: "others"} },
	} {
		other := proto.CloneOf(m)
		change(other.GetKafka())
		if err := put(other); err == nil || !strings.Contains(err.Error(), required) {
			t.Errorf("another one, %s, without the password: %v", what, err)
		}
	}
	for wanted, change := range map[string]func(*progressorv1.KafkaTarget){
		"sink.kafka.brokers[0]: must be host:port": func(k *progressorv1.KafkaTarget) {
			k.Brokers, k.Sasl = []string{"nowhere"}, nil
		},
		"sink.kafka.topic: must have no placeholders except {namespace} and {kind}": func(k *progressorv1.KafkaTarget) {
			k.Topic = "changes.{type}"
		},
		"sink.kafka.tls.ca_pem: must be certificates in PEM": func(k *progressorv1.KafkaTarget) {
			k.Tls, k.Sasl.Password = &progressorv1.KafkaTls{CaPem: "x"}, "hidden"
		},
	} {
		other := proto.CloneOf(m)
		change(other.GetKafka())
		if err := put(other); err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("got %v\nwant %s", err, wanted)
		}
	}
}
