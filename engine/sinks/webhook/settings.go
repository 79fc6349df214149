package webhook

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"time"

	"github.com/progressor-engine/progressor/engine/sinks/format"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor/remote"
	"github.com/progressor-engine/progressor/processor/signature"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	defaultTimeout    = 10 * time.Second
	defaultConcurrent = 8
)

// settings are the parsed settings of a target.
type settings struct {
	url        string
	keys       []signature.Key
	timeout    time.Duration
	concurrent int
	format     format.Format
	security   *tls.Config
}

func invalid(field, message string, args ...any) error {
	return &process.InvalidError{Field: "sink.webhook." + field, Message: fmt.Sprintf(message, args...)}
}

// parse parses the settings of a sink with decrypted secrets. certificate_secret contains the
// certificate.
func parse(m *progressorv1.Sink, f format.Format) (settings, error) {
	hook := m.GetWebhook()
	s := settings{url: hook.GetUrl(), timeout: defaultTimeout, concurrent: defaultConcurrent, format: f}
	if err := checkURL(hook.GetUrl()); err != nil {
		return s, err
	}
	var err error
	if s.security, err = remote.TLSConfig("sink.webhook.tls", hook.GetTls(), hook.GetTls().GetCertificateSecret(),
		hook.GetUrl()); err != nil {
		return s, err
	}
	if hook.GetUnsigned() && len(hook.GetSecrets()) > 0 {
		return s, invalid("unsigned", "must be false if there are secrets")
	}
	for n, secret := range hook.GetSecrets() {
		key, err := signature.ParseKey(secret)
		if err != nil {
			return s, invalid(fmt.Sprintf("secrets[%d]", n), "%s", err)
		}
		if !key.CanSign() {
			return s, invalid(fmt.Sprintf("secrets[%d]", n), "must be a key that can sign, not a public key")
		}
		s.keys = append(s.keys, key)
	}
	if d := hook.GetTimeout().AsDuration(); d > 0 {
		s.timeout = d
	}
	if n := hook.GetMaxConcurrent(); n > 0 {
		s.concurrent = int(n)
	}
	return s, nil
}

func checkURL(text string) error {
	to, err := url.Parse(text)
	switch {
	case err != nil:
		return invalid("url", "must be a URL: %s", errors.Unwrap(err))
	case to.Hostname() == "" || to.Scheme != "http" && to.Scheme != "https":
		return invalid("url", "must be http://HOST/PATH or https://HOST/PATH")
	case to.User != nil:
		return invalid("url", "must not contain a user or a password: the receiver checks the signature")
	case to.Fragment != "":
		return invalid("url", "must not contain a fragment: remove # and what follows")
	}
	if address, err := netip.ParseAddr(to.Hostname()); err == nil {
		if err := remote.Allowed(address); err != nil {
			return invalid("url", "%s", err)
		}
	}
	return nil
}
