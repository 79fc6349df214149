// Package testca issues certificates for tests.
package testca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// Authority issues certificates. Its own certificate is valid for an hour.
type Authority struct {
	Certificate *x509.Certificate

	t      testing.TB
	key    *ecdsa.PrivateKey
	serial atomic.Int64
}

// New returns an authority.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t}
	a.key = a.newKey()
	a.Certificate = a.sign(&x509.Certificate{
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "authority"},
	}, nil, a.key)
	return a
}

func (a *Authority) newKey() *ecdsa.PrivateKey {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

// sign signs a certificate. If parent is nil, the certificate is self-signed.
func (a *Authority) sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	a.t.Helper()
	template.SerialNumber = big.NewInt(a.serial.Add(1))
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return certificate
}

// Issue returns a certificate with these URIs for 127.0.0.1, for servers and clients.
func (a *Authority) Issue(life time.Duration, uris ...string) tls.Certificate {
	a.t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, text := range uris {
		uri, err := url.Parse(text)
		if err != nil {
			a.t.Fatal(err)
		}
		template.URIs = append(template.URIs, uri)
	}
	key := a.newKey()
	certificate := a.sign(template, a.Certificate, key)
	return tls.Certificate{Certificate: [][]byte{certificate.Raw}, PrivateKey: key, Leaf: certificate}
}

// PEM returns the certificate of the authority.
func (a *Authority) PEM() string {
	return encode("CERTIFICATE", a.Certificate.Raw)
}

// IssuePEM returns a new certificate with a URI, and its key.
func (a *Authority) IssuePEM(uri string) string {
	a.t.Helper()
	certificate := a.Issue(time.Hour, uri)
	der, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		a.t.Fatal(err)
	}
	return encode("CERTIFICATE", certificate.Certificate[0]) + encode("PRIVATE KEY", der)
}

// Write stores a certificate and its key in files.
func (a *Authority) Write(certificate tls.Certificate, certificateFile, keyFile string) {
	a.t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(certificateFile, "CERTIFICATE", certificate.Certificate[0])
	a.write(keyFile, "PRIVATE KEY", der)
}

// WriteAuthority stores the certificate of the authority in a file.
func (a *Authority) WriteAuthority(file string) {
	a.t.Helper()
	a.write(file, "CERTIFICATE", a.Certificate.Raw)
}

func (a *Authority) write(file, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(file, []byte(encode(kind, der)), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}
