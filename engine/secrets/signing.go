package secrets

import (
	"context"
	"errors"
	"fmt"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor/signature"
)

// SigningKeys returns the keys in the secrets with these names. The error is an *UnusableError if a
// secret does not exist or contains no key that can sign.
func (v *Vault) SigningKeys(ctx context.Context, namespace string, names []string) ([]signature.Key, error) {
	keys := make([]signature.Key, len(names))
	for n, name := range names {
		value, err := v.secret(ctx, namespace, name)
		if err != nil {
			return nil, err
		}
		if keys[n], err = signature.ParseKey(value); err != nil {
			return nil, unusable("the secret %s %s", name, err)
		}
		if !keys[n].CanSign() {
			return nil, unusable("the secret %s must have a key that can sign, not a public key", name)
		}
	}
	return keys, nil
}

// CheckSigning returns an error if a namespace cannot sign with the secrets of a field. It does not
// use the cache, which may lack a secret that was just put.
func (v *Vault) CheckSigning(ctx context.Context, namespace, field string, names []string) error {
	for n, name := range names {
		v.forget(name)
		_, err := v.SigningKeys(ctx, namespace, names[n:n+1])
		if bad, ok := errors.AsType[*UnusableError](err); ok {
			return &process.InvalidError{Field: fmt.Sprintf("%s[%d]", field, n), Message: bad.Error()}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
