package rpc

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// certificateTime is how long a server uses the files of its certificates before it reads them
// again.
const certificateTime = 10 * time.Second

// CertificateFiles are paths of files in PEM format.
type CertificateFiles struct {
	Certificate string // certificate of the server, followed by its intermediate CA certificates
	Key         string // private key of the certificate
	ClientCA    string // CA certificates that verify client certificates; "" to request none
	// RequireClient rejects clients without a certificate. If it is false, they may use a token.
	RequireClient bool
}

// Certificates are the certificates of a server. If the files change, new connections use the new
// certificates.
type Certificates struct {
	files CertificateFiles
	log   *slog.Logger
	now   func() time.Time

	config atomic.Pointer[tls.Config]

	reading sync.Mutex // held by the one connection that reads the files; guards the fields below
	read    time.Time
	content [3][]byte // content of the files
}

// LoadCertificates reads files. A nil logger means slog.Default().
func LoadCertificates(files CertificateFiles, log *slog.Logger) (*Certificates, error) {
	if log == nil {
		log = slog.Default()
	}
	c := &Certificates{files: files, log: log, now: time.Now}
	c.reading.Lock()
	defer c.reading.Unlock()
	if err := c.load(); err != nil {
		return nil, err
	}
	return c, nil
}

// Collector returns the metric of the certificates.
func (c *Certificates) Collector() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "progressor_tls_certificate_expiry_timestamp_seconds",
		Help: "When the certificate of the server expires, as a Unix time.",
	}, func() float64 { return float64(c.current().Certificates[0].Leaf.NotAfter.Unix()) })
}

// Config returns the configuration of a listener.
func (c *Certificates) Config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current(), nil },
	}
}

// current returns the configuration of a new connection. If the files cannot be used, or while
// another connection reads them, it returns the configuration of the previous files.
func (c *Certificates) current() *tls.Config {
	if c.reading.TryLock() {
		defer c.reading.Unlock()
		if c.now().Sub(c.read) >= certificateTime {
			if err := c.load(); err != nil {
				c.log.Error("cannot read the certificates again: using the previous ones", "error", err)
			}
		}
	}
	return c.config.Load()
}

// load reads the files and, if they have changed, sets the configuration. c.reading must be held.
func (c *Certificates) load() error {
	c.read = c.now()
	var content [3][]byte
	for n, file := range []string{c.files.Certificate, c.files.Key, c.files.ClientCA} {
		if file == "" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		content[n] = text
	}
	if c.config.Load() != nil && bytes.Equal(content[0], c.content[0]) && bytes.Equal(content[1], c.content[1]) &&
		bytes.Equal(content[2], c.content[2]) {
		return nil // keep the configuration, so that clients can resume their sessions
	}
	certificate, err := tls.X509KeyPair(content[0], content[1])
	if err != nil {
		return fmt.Errorf("%s and %s: %w", c.files.Certificate, c.files.Key, err)
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate},
		NextProtos: []string{"h2", "http/1.1"},
	}
	if c.files.ClientCA != "" {
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
		if c.files.RequireClient {
			config.ClientAuth = tls.RequireAndVerifyClientCert
		}
		if !config.ClientCAs.AppendCertsFromPEM(content[2]) {
			return fmt.Errorf("%s: %w", c.files.ClientCA, errNoCertificates)
		}
	}
	c.content = content
	c.config.Store(config)
	return nil
}

var errNoCertificates = errors.New("must contain certificates in PEM (-----BEGIN CERTIFICATE-----)")
