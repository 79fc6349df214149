package remote

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// TLSConfig returns the TLS configuration for requests to urls. certificate is the client
// certificate and its key in PEM, or "". If a setting is invalid, the error is a
// *process.InvalidError whose field begins with field.
func TLSConfig(field string, t *progressorv1.TargetTls, certificate string, urls ...string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t == nil {
		return config, nil
	}
	for _, text := range urls {
		if !strings.HasPrefix(strings.ToLower(text), "https:") {
			return nil, &process.InvalidError{Field: field, Message: "requires a URL that begins with https://"}
		}
	}
	if t.GetCaPem() != "" {
		var err error
		if config.RootCAs, err = parseAuthorities(t.GetCaPem()); err != nil {
			return nil, &process.InvalidError{Field: field + ".ca_pem", Message: err.Error()}
		}
	}
	if certificate != "" {
		pair, err := ParseCertificate(certificate)
		if err != nil {
			return nil, &process.InvalidError{Field: field + ".certificate_secret", Message: err.Error()}
		}
		present(config, pair)
	}
	return config, nil
}

// present makes connections send a client certificate even if the server does not list its
// authority. The error of the server then shows why it rejects the certificate.
func present(config *tls.Config, certificate tls.Certificate) {
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return &certificate, nil
	}
}

// parseAuthorities parses certificates in PEM. Unlike x509.CertPool, it returns an error for a
// block that it cannot parse.
func parseAuthorities(text string) (*x509.CertPool, error) {
	const want = "must be certificates in PEM (-----BEGIN CERTIFICATE-----)"
	pool := x509.NewCertPool()
	n := 0
	for rest := []byte(text); len(strings.TrimSpace(string(rest))) > 0; n++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" {
			return nil, errors.New(want)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: certificate %d: %w", want, n+1, err)
		}
		pool.AddCert(certificate)
	}
	if n == 0 {
		return nil, errors.New(want)
	}
	return pool, nil
}

// ParseCertificate parses a certificate, followed by those of its authorities, and its key in PEM,
// in any order. The error does not contain the text.
func ParseCertificate(text string) (tls.Certificate, error) {
	pair, err := tls.X509KeyPair([]byte(text), []byte(text))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("must contain a certificate and its private key in PEM: %w", err)
	}
	return pair, nil
}
