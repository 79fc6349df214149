package remote

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
)

// sentFirst is part of the error of net/http if the server sent data before it received the
// request.
const sentFirst = "readLoopPeekFailLocked"

// FailureClass returns a description of a failed request that is safe to show to the users of a
// namespace. The description contains neither addresses from the engine's network nor parts of a
// response that is not HTTP.
func FailureClass(err error) string {
	for _, own := range []error{ErrDeniedAddress, ErrOwnAddress, ErrDatabaseAddress, ErrPrivateAddress} {
		if errors.Is(err, own) {
			return own.Error()
		}
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsTimeout {
			return "the name of the host was not resolved in time"
		}
		return "the name of the host cannot be resolved"
	}
	for _, class := range []string{CertificateClass(err), rejectedCertificate(err)} {
		if class != "" {
			return class
		}
	}
	waited, isNet := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "the host is unreachable"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		return "the server closed the connection without an answer"
	case isNet && waited.Timeout():
		return "the host did not respond in time"
	case strings.Contains(err.Error(), "malformed HTTP"), strings.Contains(err.Error(), sentFirst):
		return "the server does not respond with HTTP"
	}
	return "the request failed"
}

// networkError is an error of the connection to a processor. Error returns only its class, because
// users of the namespace can see it.
type networkError struct{ err error }

func (e *networkError) Error() string { return FailureClass(e.err) }

func (e *networkError) Unwrap() error { return e.err }

// Detail returns the complete error text, including addresses, for the log of the node.
func (e *networkError) Detail() string { return e.err.Error() }

// rejectedCertificate returns the class of an error with which a server rejects the client
// certificate or its absence. It returns "" for other errors.
func rejectedCertificate(err error) string {
	alert, ok := errors.AsType[*net.OpError](err)
	switch {
	case !ok || alert.Op != "remote error":
		return ""
	case strings.Contains(alert.Err.Error(), "certificate required"):
		return "the server requires a client certificate"
	case strings.Contains(alert.Err.Error(), "certificate"):
		return "the server rejects the client certificate, or requires one"
	}
	return ""
}

// CertificateClass returns the class of a TLS error. It returns "" for other errors.
func CertificateClass(err error) string {
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "the server does not respond with TLS"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "the certificate of the server is signed by an unknown authority"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "the certificate of the server is for another host"
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if invalid.Reason == x509.Expired {
			return "the certificate of the server has expired or is not valid yet"
		}
		return "the certificate of the server is not valid"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the certificate of the server is not valid"
	}
	return ""
}
