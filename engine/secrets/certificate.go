package secrets

import (
	"context"
	"errors"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor/remote"
)

// Certificate returns the client certificate and its key in the secret with this name, in PEM, or
// "" for no name. The error is an *UnusableError if the secret does not exist.
func (v *Vault) Certificate(ctx context.Context, namespace, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	return v.secret(ctx, namespace, name)
}

// CertificateNow is like Certificate, but reads the secret again, so that it also finds a secret
// that was just put.
func (v *Vault) CertificateNow(ctx context.Context, namespace, name string) (string, error) {
	v.forget(name)
	return v.Certificate(ctx, namespace, name)
}

// CheckCertificate returns an error if a namespace cannot use the secret of a field as its client
// certificate.
func (v *Vault) CheckCertificate(ctx context.Context, namespace, field, name string) error {
	text, err := v.CertificateNow(ctx, namespace, name)
	if bad, ok := errors.AsType[*UnusableError](err); ok {
		return &process.InvalidError{Field: field, Message: bad.Error()}
	}
	if err != nil || name == "" {
		return err
	}
	if _, err := remote.ParseCertificate(text); err != nil {
		return &process.InvalidError{Field: field, Message: "the secret " + name + " " + err.Error()}
	}
	return nil
}
