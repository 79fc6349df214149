package sinks

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/changes"
	"github.com/progressor-engine/progressor/wire"
)

// lenient ignores unknown fields, which a newer engine may have stored.
var lenient = protojson.UnmarshalOptions{DiscardUnknown: true}

// settingsOf returns the stored form of a sink, which contains the secrets in a separate field. The
// secrets in m must already be encrypted.
func settingsOf(m *progressorv1.Sink) (changes.SinkSettings, error) {
	public, secret := proto.CloneOf(m), &progressorv1.Sink{}
	public.Status, public.CreatedTime, public.UpdatedTime = nil, nil, nil
	if hook := public.GetWebhook(); hook != nil {
		secret.Target = &progressorv1.Sink_Webhook{Webhook: &progressorv1.WebhookTarget{Secrets: hook.GetSecrets()}}
		hook.Secrets, hook.Signed, hook.Unsigned = nil, false, false
	}
	if login := public.GetKafka().GetSasl(); login != nil {
		secret.Target = &progressorv1.Sink_Kafka{Kafka: &progressorv1.KafkaTarget{
			Sasl: &progressorv1.KafkaSasl{Password: login.GetPassword()},
		}}
		login.Password = ""
	}
	config, err := protojson.Marshal(public)
	if err != nil {
		return changes.SinkSettings{}, fmt.Errorf("encode a sink: %w", err)
	}
	secrets, err := protojson.Marshal(secret)
	if err != nil {
		return changes.SinkSettings{}, fmt.Errorf("encode the secrets of a sink: %w", err)
	}
	lag := defaultMaxLag
	if d := m.GetMaxLag().AsDuration(); d > 0 {
		lag = d
	}
	return changes.SinkSettings{Config: config, Secrets: secrets, MaxLag: lag}, nil
}

// sinkOf is the reverse of settingsOf. The secrets stay encrypted.
func sinkOf(s *changes.SinkSettings) (*progressorv1.Sink, error) {
	m, secret := &progressorv1.Sink{}, &progressorv1.Sink{}
	if err := lenient.Unmarshal(s.Config, m); err != nil {
		return nil, fmt.Errorf("read a sink: %w", err)
	}
	if err := lenient.Unmarshal(s.Secrets, secret); err != nil {
		return nil, fmt.Errorf("read the secrets of a sink: %w", err)
	}
	proto.Merge(m, secret)
	return m, nil
}

// keepSecrets adds the stored secrets to a sink without secrets if its target has the same type. It
// reports whether it added any. A password is kept only if sameLogin allows it, because the engine
// sends it to the brokers of the new settings.
func keepSecrets(m, stored *progressorv1.Sink) (kept bool) {
	if hook := m.GetWebhook(); hook != nil && len(hook.GetSecrets()) == 0 && !hook.GetUnsigned() {
		hook.Secrets = stored.GetWebhook().GetSecrets()
		return len(hook.GetSecrets()) > 0
	}
	now, before := m.GetKafka(), stored.GetKafka()
	if login := now.GetSasl(); login != nil && login.GetPassword() == "" && sameLogin(now, before) {
		login.Password = before.GetSasl().GetPassword()
		return login.GetPassword() != ""
	}
	return false
}

// sameLogin reports whether new settings may use the stored password. This requires the same
// brokers, user and mechanism. TLS must be unchanged or newly enabled.
func sameLogin(now, before *progressorv1.KafkaTarget) bool {
	return slices.Equal(now.GetBrokers(), before.GetBrokers()) &&
		now.GetSasl().GetUser() == before.GetSasl().GetUser() &&
		now.GetSasl().GetMechanism() == before.GetSasl().GetMechanism() &&
		(before.GetTls() == nil || proto.Equal(now.GetTls(), before.GetTls()))
}

// messageOf returns a sink for clients, without its secrets.
func messageOf(r *changes.SinkRow) (*progressorv1.Sink, error) {
	m, err := sinkOf(&changes.SinkSettings{Config: r.Config, Secrets: r.Secrets})
	if err != nil {
		return nil, fmt.Errorf("sink %s/%s: %w", r.Namespace, r.SinkID, err)
	}
	if hook := m.GetWebhook(); hook != nil {
		hook.Signed, hook.Secrets = len(hook.GetSecrets()) > 0, nil
	}
	if login := m.GetKafka().GetSasl(); login != nil {
		login.Password = ""
	}
	m.CreatedTime, m.UpdatedTime = timestamppb.New(r.CreatedTime), timestamppb.New(r.UpdatedTime)
	m.Status = &progressorv1.SinkStatus{
		State:      progressorv1.SinkState(progressorv1.SinkState_value["SINK_STATE_"+r.State]),
		Cursor:     changes.SinkCursor(r),
		LagChanges: r.LagChanges, DeliveredChanges: r.Delivered, DeliveredTime: timeOf(r.DeliveredTime),
		Failures: r.Failures, LastError: r.LastError, LastErrorTime: timeOf(r.LastErrorTime),
		NextAttemptTime: timeOf(r.NextAttemptTime), NodeId: r.NodeID, DeadLetters: r.DeadLetters,
		StoredDeadLetters: r.StoredDeadLetters, Retries: r.Retries,
	}
	if r.LagChanges > 0 {
		m.Status.Lag = durationpb.New(time.Duration(max(r.LagUs, 0)) * time.Microsecond)
	}
	return m, nil
}

func timeOf(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(*t)
}

func letterOf(d *changes.DeadLetter) *progressorv1.SinkDeadLetter {
	return &progressorv1.SinkDeadLetter{
		ChangeId: d.ChangeID, Kind: wire.ChangeKind(d.Kind), Type: d.Type, ProcessId: d.ProcessID,
		ChangeTime: timestamppb.New(d.ChangeTime), Error: d.Error, Time: timestamppb.New(d.Time),
		Attempts: d.Attempts, RetryTime: timeOf(d.RetryTime), ChangeDeleted: d.ChangeDeleted,
	}
}
