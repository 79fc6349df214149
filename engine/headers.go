package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/engine/secrets"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor/remote"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/wire"
)

const (
	fieldHeaders = "namespace.processor.connect.headers"
	fieldSigning = "namespace.processor.connect.signing_secrets"
	fieldClient  = "namespace.processor.connect.tls.certificate_secret"
)

// checkHeaders limits the total size of a processor's headers, and checks their references.
func checkHeaders(p *progressorv1.ConnectProcessor) error {
	size := 0
	for name, value := range p.GetHeaders() {
		size += len(name) + len(value)
	}
	if size > process.MaxHeadersBytes {
		return &process.InvalidError{
			Field: fieldHeaders, TooLarge: true,
			Message: fmt.Sprintf("names and values must have at most %d bytes in total (got %d)",
				process.MaxHeadersBytes, size),
		}
	}
	return secrets.CheckHeaders(fieldHeaders, p.GetHeaders())
}

// credentialsOf returns a function that returns the credentials for a request to a processor. It
// returns nil if the processor has no credentials, or if this configuration has no secrets.
func (c *Config) credentialsOf(
	namespace string, cfg *progressorv1.ConnectProcessor,
) func(context.Context) (remote.Credentials, error) {
	certificate := cfg.GetTls().GetCertificateSecret()
	if c.Secrets == nil || len(cfg.GetHeaders()) == 0 && len(cfg.GetSigningSecrets()) == 0 && certificate == "" {
		return nil
	}
	return func(ctx context.Context) (all remote.Credentials, err error) {
		if all.Headers, err = c.Secrets.OpenHeaders(ctx, namespace, cfg.GetHeaders()); err != nil {
			return all, err
		}
		if all.Keys, err = c.Secrets.SigningKeys(ctx, namespace, cfg.GetSigningSecrets()); err != nil {
			return all, err
		}
		all.Certificate, err = c.Secrets.Certificate(ctx, namespace, certificate)
		return all, err
	}
}

// Secrets returns the vault that seals and opens headers.
func (e *Engine) Secrets() *secrets.Vault { return e.cfg.Secrets }

// namespaceConfig returns a function that returns the stored form of a namespace. It seals the
// headers. For masked headers, it keeps the stored values.
func (e *Engine) namespaceConfig(
	ctx context.Context, m *progressorv1.Namespace,
) (func(before json.RawMessage) (json.RawMessage, error), error) {
	name := m.GetNamespace() // not part of the stored form
	m = proto.CloneOf(wire.NamespaceConfig(m))
	p := m.GetProcessor().GetConnect()
	if p != nil {
		sealed, err := e.cfg.Secrets.SealHeaders(ctx, name, p.GetHeaders())
		if err != nil {
			return nil, err
		}
		p.Headers = sealed
	}
	return func(before json.RawMessage) (json.RawMessage, error) {
		if p != nil {
			old := &progressorv1.Namespace{}
			if len(before) > 0 {
				if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(before, old); err != nil {
					return nil, err
				}
			}
			was := old.GetProcessor().GetConnect()
			err := secrets.KeepStored(fieldHeaders, p.GetHeaders(), was.GetHeaders(), sameHosts(p, was))
			if err != nil {
				return nil, err
			}
		}
		return protojson.Marshal(m)
	}, nil
}

// errReplaced reports that a namespace was changed after it was compared.
var errReplaced error = &process.InvalidError{
	Field: "namespace", Message: "was changed by other requests at the same time: try again",
}

// declareTries limits how often DeclareNamespace compares a namespace that changes concurrently.
const declareTries = 5

// DeclareNamespace is PutNamespace for a configuration that is stored again at each startup. It
// writes an audit entry only if the configuration differs from the stored one.
func (e *Engine) DeclareNamespace(ctx context.Context, m *progressorv1.Namespace, by process.Actor) error {
	for try := 1; ; try++ {
		stored, same, err := e.compareStored(ctx, m)
		if err != nil {
			return err
		}
		unchanged := func(before json.RawMessage) error {
			if !bytes.Equal(before, stored) {
				return errReplaced
			}
			return nil
		}
		var audited []process.Actor
		if !same {
			audited = append(audited, by)
		}
		_, err = e.replaceNamespace(ctx, m, unchanged, audited...)
		if !errors.Is(err, errReplaced) || try == declareTries {
			return err
		}
	}
}

// compareStored returns the stored configuration of a namespace, or nil if there is none. same
// reports whether the stored configuration equals m. If the stored headers cannot be decrypted,
// same is false.
func (e *Engine) compareStored(
	ctx context.Context, m *progressorv1.Namespace,
) (config json.RawMessage, same bool, err error) {
	row, err := e.store.GetNamespace(ctx, m.GetNamespace())
	if errors.Is(err, process.ErrNamespaceNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	stored := &progressorv1.Namespace{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(row.Config, stored); err != nil {
		return nil, false, err
	}
	wanted := proto.CloneOf(wire.NamespaceConfig(m))
	if p := stored.GetProcessor().GetConnect(); p != nil {
		p.Headers, err = e.cfg.Secrets.DecryptHeaders(ctx, m.GetNamespace(), p.GetHeaders())
		if _, ok := errors.AsType[*secrets.UnusableError](err); ok {
			return row.Config, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		headers := wanted.GetProcessor().GetConnect().GetHeaders()
		for name, value := range headers {
			if value == secrets.Mask { // the request keeps the stored value
				headers[name] = p.GetHeaders()[name]
			}
		}
	}
	return row.Config, proto.Equal(stored, wanted), nil
}

// sameHosts reports whether the requests to a processor go only to hosts of its previous
// configuration, and the same authorities verify these hosts.
func sameHosts(p, before *progressorv1.ConnectProcessor) bool {
	if p.GetTls().GetCaPem() != before.GetTls().GetCaPem() {
		return false
	}
	known := originsOf(before)
	return !slices.ContainsFunc(originsOf(p), func(origin string) bool { return !slices.Contains(known, origin) })
}

func originsOf(p *progressorv1.ConnectProcessor) (origins []string) {
	for _, text := range append([]string{p.GetUrl()}, p.GetMoreUrls()...) {
		origins = append(origins, Origin(text))
	}
	return origins
}

// Origin returns the scheme and the host of a URL. They determine who receives the headers of a
// request.
func Origin(text string) string {
	to, err := url.Parse(text)
	if err != nil {
		return text
	}
	return to.Scheme + "://" + to.Host
}

// maskHeaders hides the headers of a namespace that may be secret.
func maskHeaders(m *progressorv1.Namespace) {
	if p := m.GetProcessor().GetConnect(); p != nil {
		p.Headers = secrets.Masked(p.GetHeaders())
	}
}

// CheckSecrets returns an error if a namespace may not use one of its secrets: those to which its
// headers refer, those that sign its requests, and its client certificate.
func (e *Engine) CheckSecrets(ctx context.Context, m *progressorv1.Namespace) error {
	p := m.GetProcessor().GetConnect()
	if err := checkHeaders(p); err != nil {
		return err
	}
	if err := e.cfg.Secrets.CheckReferences(ctx, m.GetNamespace(), fieldHeaders, p.GetHeaders()); err != nil {
		return err
	}
	if err := e.cfg.Secrets.CheckSigning(ctx, m.GetNamespace(), fieldSigning, p.GetSigningSecrets()); err != nil {
		return err
	}
	return e.cfg.Secrets.CheckCertificate(ctx, m.GetNamespace(), fieldClient, p.GetTls().GetCertificateSecret())
}

// PublicKeys returns the public Ed25519 keys with which the processor of a namespace can verify its
// requests. It returns none if the namespace is not known. It does not read namespaces from the
// database, because its callers have no credentials.
func (e *Engine) PublicKeys(ctx context.Context, namespace string) (public []string, err error) {
	ns := e.registry.all()[namespace]
	if ns == nil {
		return nil, nil
	}
	keys, err := e.cfg.Secrets.SigningKeys(ctx, namespace, ns.connect.GetSigningSecrets())
	for _, key := range keys {
		if text := key.Public(); err == nil && text != "" {
			public = append(public, text)
		}
	}
	return public, err
}
