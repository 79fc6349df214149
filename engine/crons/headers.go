package crons

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/secrets"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	fieldHeaders = "cron.target.http.headers"
	fieldSigning = "cron.target.http.signing_secrets"
	fieldTLS     = "cron.target.http.tls"
)

// sealed returns a definition with encrypted headers, for the args of a command.
func (c *Crons) sealed(ctx context.Context, def *progressorv1.Cron) (*progressorv1.Cron, error) {
	headers := def.GetTarget().GetHttp().GetHeaders()
	if len(headers) == 0 {
		return def, nil
	}
	all, err := c.engine.Secrets().SealHeaders(ctx, def.GetNamespace(), headers)
	if err != nil {
		return nil, err
	}
	def = proto.CloneOf(def)
	def.GetTarget().GetHttp().Headers = all
	return def, nil
}

// CheckSecrets returns an error if a cron may not use one of its secrets: those to which its
// headers refer, those that sign its requests, and its client certificate.
func (c *Crons) CheckSecrets(ctx context.Context, def *progressorv1.Cron) error {
	headers := def.GetTarget().GetHttp().GetHeaders()
	if err := secrets.CheckHeaders(fieldHeaders, headers); err != nil {
		return err
	}
	vault := c.engine.Secrets()
	if err := vault.CheckReferences(ctx, def.GetNamespace(), fieldHeaders, headers); err != nil {
		return err
	}
	target := def.GetTarget().GetHttp()
	if err := vault.CheckSigning(ctx, def.GetNamespace(), fieldSigning, target.GetSigningSecrets()); err != nil {
		return err
	}
	return vault.CheckCertificate(ctx, def.GetNamespace(), fieldTLS+".certificate_secret",
		target.GetTls().GetCertificateSecret())
}

// keepHeaders replaces masked headers in a sealed definition with the stored values. stored is the
// current definition, or nil for a new cron.
func keepHeaders(def, stored *progressorv1.Cron) error {
	target, before := def.GetTarget().GetHttp(), stored.GetTarget().GetHttp()
	err := secrets.KeepStored(fieldHeaders, target.GetHeaders(), before.GetHeaders(),
		engine.Origin(target.GetUrl()) == engine.Origin(before.GetUrl()) &&
			target.GetTls().GetCaPem() == before.GetTls().GetCaPem())
	if err != nil {
		return err
	}
	return checkSize(def)
}

// maskHeaders hides the headers of a cron that may be secret.
func maskHeaders(c *progressorv1.Cron) {
	if target := c.GetTarget().GetHttp(); target != nil {
		target.Headers = secrets.Masked(target.GetHeaders())
	}
}

// IsStored reports whether a cron is stored with this spec, policy, target and metadata. etag is
// the etag of the stored cron. If there is no such cron, the error is process.ErrCronNotFound.
func (c *Crons) IsStored(ctx context.Context, def *progressorv1.Cron) (same bool, etag string, err error) {
	s, err := c.read(ctx, def.GetNamespace(), def.GetCronId())
	if err != nil {
		return false, "", err
	}
	def, err = c.sealed(ctx, def)
	if err != nil {
		return false, "", err
	}
	stored := s.definition
	same = proto.Equal(def.GetSpec(), stored.GetSpec()) && proto.Equal(def.GetPolicy(), stored.GetPolicy()) &&
		proto.Equal(def.GetTarget(), stored.GetTarget()) && proto.Equal(def.GetMetadata(), stored.GetMetadata())
	return same, s.etag(), nil
}
