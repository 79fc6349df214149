package kafka

import (
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/progressor-engine/progressor/engine/sinks"
	"github.com/progressor-engine/progressor/processor/remote"
)

// classify returns the error of a record. The error is permanent only if this record causes it.
// Errors of the cluster or of the configuration, such as a missing permission, are not permanent.
// Otherwise, each change would become a dead letter until an operator corrects them.
func classify(topic string, err error) error {
	switch {
	case tooLarge(err):
		err = fmt.Errorf("the change is larger than topic %s or max_message_bytes allows: %w", topic, err)
		return &sinks.PermanentError{Err: err}
	case errors.Is(err, kerr.InvalidRecord):
		return &sinks.PermanentError{Err: fmt.Errorf("topic %s rejects the change: %w", topic, err)}
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return fmt.Errorf("topic %s does not exist: create it, or set create_topic: %w", topic, err)
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return fmt.Errorf("not authorized to write to topic %s: grant the user WRITE: %w", topic, err)
	}
	return fmt.Errorf("topic %s: %w", topic, err)
}

// connectError returns the error of a client that has reached no broker.
func (c *Config) connectError(err error) error {
	if c.SASL != nil && errors.Is(err, io.EOF) {
		return fmt.Errorf("the broker closed the connection when %s logged in: check sasl.user and sasl.password: %w",
			c.SASL.User, err)
	}
	// The text of the error may contain addresses of the network of the engine.
	if _, network := errors.AsType[net.Error](err); network || remote.CertificateClass(err) != "" {
		return fmt.Errorf("connect: %s", remote.FailureClass(err))
	}
	return fmt.Errorf("connect: %w", err)
}

func tooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}
