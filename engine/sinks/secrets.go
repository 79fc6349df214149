package sinks

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/engine/secrets"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/changes"
)

// replaceSecrets replaces each secret of a target with the result of replacement, which gets the
// name of the field and the secret.
func replaceSecrets(m *progressorv1.Sink, replacement func(field, value string) (string, error)) (err error) {
	if hook := m.GetWebhook(); hook != nil {
		for n, key := range hook.GetSecrets() {
			if hook.Secrets[n], err = replacement("webhook.secrets", key); err != nil {
				return err
			}
		}
	}
	if login := m.GetKafka().GetSasl(); login.GetPassword() != "" {
		login.Password, err = replacement("kafka.sasl.password", login.GetPassword())
	}
	return err
}

// certificateOf returns a pointer to the field certificate_secret of a sink's target, and the path
// of the field. The pointer is nil if the target has no TLS settings.
func certificateOf(m *progressorv1.Sink) (name *string, field string) {
	if t := m.GetWebhook().GetTls(); t != nil {
		return &t.CertificateSecret, "webhook.tls.certificate_secret"
	}
	if t := m.GetKafka().GetTls(); t != nil {
		return &t.CertificateSecret, "kafka.tls.certificate_secret"
	}
	return nil, ""
}

func placeOf(m *progressorv1.Sink, field string) string {
	return "sink\n" + m.GetNamespace() + "\n" + m.GetSinkId() + "\n" + field
}

// resolver reads secrets for a namespace.
type resolver struct {
	text        func(ctx context.Context, namespace, text string) (string, error) // replaces references
	certificate func(ctx context.Context, namespace, name string) (string, error)
}

// cached returns a resolver whose secrets may be several seconds old.
func (s *Sinks) cached() resolver {
	return resolver{s.engine.Secrets().Resolve, s.engine.Secrets().Certificate}
}

// fresh returns a resolver that reads the secrets again.
func (s *Sinks) fresh() resolver {
	return resolver{s.engine.Secrets().ResolveNow, s.engine.Secrets().CertificateNow}
}

// resolved returns a sink in which secrets replace the references to them. In the result,
// certificate_secret contains the client certificate itself.
func resolved(ctx context.Context, m *progressorv1.Sink, r resolver) (*progressorv1.Sink, error) {
	m = proto.CloneOf(m)
	err := replaceSecrets(m, func(field, value string) (string, error) {
		value, err := r.text(ctx, m.GetNamespace(), value)
		return value, invalidSecret(field, err)
	})
	if err != nil {
		return m, err
	}
	if name, field := certificateOf(m); name != nil {
		*name, err = r.certificate(ctx, m.GetNamespace(), *name)
		err = invalidSecret(field, err)
	}
	return m, err
}

// invalidSecret adds the field of a sink to the error of a vault.
func invalidSecret(field string, err error) error {
	if _, ok := errors.AsType[*secrets.UnusableError](err); ok {
		return &process.InvalidError{Field: "sink." + field, Message: err.Error()}
	}
	return err
}

// checkSecrets validates the references of a sink that a client has sent.
func checkSecrets(m *progressorv1.Sink) error {
	return replaceSecrets(m, func(field, value string) (string, error) {
		return value, invalidSecret(field, secrets.CheckValue(value))
	})
}

// refers reports whether a sink uses secrets by reference.
func refers(m *progressorv1.Sink) (found bool) {
	_ = replaceSecrets(m, func(_, value string) (string, error) {
		found = found || secrets.HasReference(value)
		return value, nil
	})
	name, _ := certificateOf(m)
	return found || name != nil && *name != ""
}

// prepareSecrets validates the references of a sink that a client has sent. It also loads the key
// in the database, the secrets of m and the secrets of the stored sink. The transaction that stores
// the sink then needs no second connection.
func (s *Sinks) prepareSecrets(ctx context.Context, k changes.SinkKey, m *progressorv1.Sink) error {
	if err := checkSecrets(m); err != nil {
		return err
	}
	vault := s.engine.Secrets()
	if err := vault.Load(ctx); err != nil {
		return err
	}
	if _, err := resolved(ctx, m, s.fresh()); err != nil {
		return err
	}
	row, err := changes.GetSink(ctx, s.store, k)
	if errors.Is(err, process.ErrSinkNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	stored, err := sinkOf(&changes.SinkSettings{Config: row.Config, Secrets: row.Secrets})
	if err != nil {
		return err
	}
	_, _ = resolved(ctx, stored, s.cached()) // fills the cache
	return nil
}

// sealed returns the stored form of a sink, with encrypted secrets. It changes m.
func (s *Sinks) sealed(ctx context.Context, m *progressorv1.Sink) (changes.SinkSettings, error) {
	err := replaceSecrets(m, func(field, value string) (string, error) {
		return s.engine.Secrets().Seal(ctx, placeOf(m, field), value)
	})
	if err != nil {
		return changes.SinkSettings{}, err
	}
	return settingsOf(m)
}

// opened returns a stored sink with decrypted secrets. References are not replaced.
func (s *Sinks) opened(ctx context.Context, stored *changes.SinkSettings) (*progressorv1.Sink, error) {
	m, err := sinkOf(stored)
	if err != nil {
		return nil, err
	}
	return m, replaceSecrets(m, func(field, value string) (string, error) {
		value, err := s.engine.Secrets().Open(ctx, placeOf(m, field), value)
		return value, invalidSecret(field, err)
	})
}

// openedToReplace is like opened, for a stored sink that a put of m will replace. A secret that
// cannot be decrypted is an error only if the put keeps the stored secrets. Otherwise,
// openedToReplace returns the sink with its encrypted secrets.
func (s *Sinks) openedToReplace(
	ctx context.Context, m *progressorv1.Sink, stored *changes.SinkSettings,
) (*progressorv1.Sink, error) {
	old, err := s.opened(ctx, stored)
	if _, unusable := errors.AsType[*process.InvalidError](err); !unusable {
		return old, err
	}
	if old, broken := sinkOf(stored); broken != nil || !keepSecrets(proto.CloneOf(m), old) {
		return old, broken
	}
	return nil, err
}
