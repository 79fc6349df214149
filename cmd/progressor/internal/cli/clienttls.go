package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// clientTLS contains the TLS settings of a client.
type clientTLS struct {
	CAFile         string `name:"ca-file" placeholder:"FILE" setting:"" help:"CA certificates that verify the engine, PEM. Default: the system's."`
	ServerName     string `placeholder:"NAME" setting:"" help:"Host name in the certificate of the engine, if it is not that of --address."`
	ClientCertFile string `placeholder:"FILE" setting:"" help:"Certificate that authenticates you, PEM."`
	ClientKeyFile  string `placeholder:"FILE" setting:"" help:"Private key of that certificate, PEM."`
}

// check returns an error if a file cannot be used.
func (f clientTLS) check() error {
	if (f.ClientCertFile == "") != (f.ClientKeyFile == "") {
		return errors.New("--tls.client-cert-file, --tls.client-key-file: set both")
	}
	if _, err := f.authorities(); err != nil {
		return fmt.Errorf("--tls.ca-file: %w", err)
	}
	if _, err := f.certificate(); err != nil {
		return fmt.Errorf("--tls.client-cert-file, --tls.client-key-file: %w", err)
	}
	return nil
}

// config returns the TLS configuration. check must have succeeded.
func (f clientTLS) config() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	config.RootCAs, _ = f.authorities()
	// Each connection reads the files again, because the certificate of a worker may be renewed.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return f.certificate() }
	return config
}

// authorities returns the authorities in a file, or nil for those of the system.
func (f clientTLS) authorities() (*x509.CertPool, error) {
	if f.CAFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(f.CAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s must contain certificates in PEM (-----BEGIN CERTIFICATE-----)", f.CAFile)
	}
	return pool, nil
}

// certificate returns the client certificate, or an empty one if there is none.
func (f clientTLS) certificate() (*tls.Certificate, error) {
	if f.ClientCertFile == "" {
		return &tls.Certificate{}, nil
	}
	pair, err := tls.LoadX509KeyPair(f.ClientCertFile, f.ClientKeyFile)
	return &pair, err
}
