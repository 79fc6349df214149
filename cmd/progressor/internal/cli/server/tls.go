package server

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/progressor-engine/progressor/engine/rpc"
)

type tlsFlags struct {
	CertFile     string `placeholder:"FILE" setting:"" help:"PEM file with the certificate of the API, followed by the certificates of its intermediate CAs. With it, the engine accepts only TLS. If the TLS files change, new connections use them within 10s."`
	KeyFile      string `placeholder:"FILE" setting:"" help:"PEM file with the private key of the certificate."`
	ClientCAFile string `name:"client-ca-file" placeholder:"FILE" setting:"" help:"PEM file with the CA certificates that verify client certificates. A certificate with one URI authenticates its client as cert:URI."`
	ClientAuth   string `default:"optional" enum:"optional,required" placeholder:"MODE" setting:"" help:"Certificates of clients: optional, or required. Default: ${default}."`
}

func (f tlsFlags) check() error {
	switch {
	case f.CertFile != "" && f.KeyFile == "":
		return errors.New("--tls.key-file: is required with --tls.cert-file")
	case f.CertFile == "" && f.KeyFile != "":
		return errors.New("--tls.cert-file: is required with --tls.key-file")
	case f.CertFile == "" && f.ClientCAFile != "":
		return errors.New("--tls.cert-file: is required with --tls.client-ca-file")
	case f.ClientCAFile == "" && f.ClientAuth == "required":
		return errors.New("--tls.client-ca-file: is required with --tls.client-auth required")
	}
	return nil
}

// scheme returns the scheme of the URL of the API.
func (f tlsFlags) scheme() string {
	if f.CertFile == "" {
		return "http"
	}
	return "https"
}

// open reads the certificates. It returns nil if the API does not use TLS.
func (f tlsFlags) open(log *slog.Logger) (*rpc.Certificates, error) {
	if f.CertFile == "" {
		return nil, nil
	}
	certificates, err := rpc.LoadCertificates(rpc.CertificateFiles{
		Certificate: f.CertFile, Key: f.KeyFile, ClientCA: f.ClientCAFile, RequireClient: f.ClientAuth == "required",
	}, log)
	if err != nil {
		return nil, fmt.Errorf("--tls.cert-file, --tls.key-file, --tls.client-ca-file: %w", err)
	}
	return certificates, nil
}
