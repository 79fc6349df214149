package targets

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/progressor-engine/progressor/engine/sinks"
	"github.com/progressor-engine/progressor/engine/sinks/format"
	"github.com/progressor-engine/progressor/engine/sinks/kafka"
	"github.com/progressor-engine/progressor/engine/sinks/webhook"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor/remote"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Open returns a sinks.Open for the targets of the API. The targets connect only to addresses that
// egress allows.
func Open(e *remote.Egress) sinks.Open {
	return func(m *progressorv1.Sink) (sinks.Deliverer, error) { return open(m, e) }
}

func open(m *progressorv1.Sink, e *remote.Egress) (sinks.Deliverer, error) {
	f, err := formatOf(m.GetFormat())
	if err != nil {
		return nil, err
	}
	switch m.GetTarget().(type) {
	case *progressorv1.Sink_Webhook:
		return webhook.New(m, f, e)
	case *progressorv1.Sink_Kafka:
		return openKafka(m.GetKafka(), f, e)
	default:
		return nil, &process.InvalidError{Field: "sink.target", Message: "is required: set webhook or kafka"}
	}
}

// openKafka returns the deliverer of a topic. As for webhooks, the address of a broker is checked
// right before the connection is opened.
func openKafka(m *progressorv1.KafkaTarget, f format.Format, e *remote.Egress) (sinks.Deliverer, error) {
	dialer := &net.Dialer{ControlContext: e.Control}
	c := kafka.Config{
		Brokers: m.GetBrokers(), Topic: m.GetTopic(), CreateTopic: m.GetCreateTopic(), Format: f,
		Dial: dialer.DialContext, Timeout: m.GetTimeout().AsDuration(), MaxMessageBytes: int(m.GetMaxMessageBytes()),
	}
	if login := m.GetSasl(); login != nil {
		c.SASL = &kafka.SASL{
			Mechanism: kafka.Mechanism(login.GetMechanism()), User: login.GetUser(), Password: login.GetPassword(),
		}
		if login.GetPassword() == "" {
			return nil, &process.InvalidError{
				Field:   "sink.kafka.sasl.password",
				Message: "is required for new brokers, another user or mechanism, or other TLS settings",
			}
		}
	}
	if m.GetTls() != nil {
		var err error
		settings := &progressorv1.TargetTls{CaPem: m.GetTls().GetCaPem()}
		// The secrets of the sink are already resolved, so certificate_secret contains the
		// certificate.
		c.TLS, err = remote.TLSConfig("sink.kafka.tls", settings, m.GetTls().GetCertificateSecret())
		if err != nil {
			return nil, err
		}
	}
	d, err := kafka.New(c)
	if err != nil {
		return nil, invalidKafka(err)
	}
	return d, nil
}

// invalidKafka converts an error of kafka.New. If there are several errors, it uses the first one.
// The text of an error begins with the name of the field.
func invalidKafka(err error) error {
	if all, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err); ok {
		err = all.Unwrap()[0]
	}
	field, message, found := strings.Cut(err.Error(), ": ")
	if !found {
		field, message = "", err.Error()
	}
	return &process.InvalidError{Field: strings.TrimSuffix("sink.kafka."+field, "."), Message: message}
}

func formatOf(f progressorv1.SinkFormat) (format.Format, error) {
	switch f {
	case progressorv1.SinkFormat_SINK_FORMAT_UNSPECIFIED, progressorv1.SinkFormat_SINK_FORMAT_CLOUDEVENTS:
		return format.Structured, nil
	case progressorv1.SinkFormat_SINK_FORMAT_CLOUDEVENTS_BINARY:
		return format.Binary, nil
	case progressorv1.SinkFormat_SINK_FORMAT_PROTOBUF:
		return format.Protobuf, nil
	}
	return 0, &process.InvalidError{Field: "sink.format", Message: fmt.Sprintf(
		"must be CLOUDEVENTS, CLOUDEVENTS_BINARY or PROTOBUF (got %d)", f)}
}
