package crons

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/processor/remote"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// maxHTTPClients limits the number of clients with open connections. A new client replaces the
// least recently used one.
const maxHTTPClients = 100

// httpClients are the clients of HTTP targets, one for each set of TLS settings, because a
// connection is reused only with the same authorities and the same client certificate.
type httpClients struct {
	egress *remote.Egress

	mu  sync.Mutex
	all map[tlsKey]*httpClient
}

// tlsKey identifies TLS settings. It is the zero value for the default ones.
type tlsKey [sha256.Size]byte

type httpClient struct {
	*http.Client
	used time.Time
}

func newHTTPClients(e *remote.Egress) *httpClients {
	return &httpClients{egress: e, all: map[tlsKey]*httpClient{}}
}

func keyOfTLS(ca, certificate string) tlsKey {
	if ca == "" && certificate == "" {
		return tlsKey{}
	}
	return sha256.Sum256(fmt.Appendf(nil, "%d %s%s", len(ca), ca, certificate))
}

// clientOf returns the client of a target. The error is a *process.InvalidError if a setting is
// invalid, and a *secrets.UnusableError if a secret is missing.
func (c *Crons) clientOf(ctx context.Context, namespace string, target *progressorv1.HttpTarget) (*http.Client, error) {
	t := target.GetTls()
	certificate, err := c.engine.Secrets().Certificate(ctx, namespace, t.GetCertificateSecret())
	if err != nil {
		return nil, err
	}
	return c.http.client(t, certificate, target.GetUrl())
}

func (c *httpClients) client(t *progressorv1.TargetTls, certificate, url string) (*http.Client, error) {
	key := keyOfTLS(t.GetCaPem(), certificate)
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.all[key]; known != nil {
		known.used = time.Now()
		return known.Client, nil
	}
	security, err := remote.TLSConfig(fieldTLS, t, certificate, url)
	if err != nil {
		return nil, err
	}
	if len(c.all) >= maxHTTPClients {
		c.dropOldest()
	}
	next := &httpClient{newHTTPClient(c.egress, security), time.Now()}
	c.all[key] = next
	return next.Client, nil
}

// dropOldest removes the least recently used client. Requests that use it end normally.
func (c *httpClients) dropOldest() {
	var oldest tlsKey
	for key, client := range c.all {
		if last := c.all[oldest]; last == nil || client.used.Before(last.used) {
			oldest = key
		}
	}
	c.all[oldest].CloseIdleConnections()
	delete(c.all, oldest)
}

// newHTTPClient returns a client of HTTP targets. It follows no redirects. It uses no proxy,
// because a proxy would hide the address of the target from the check of addresses.
func newHTTPClient(e *remote.Egress, security *tls.Config) *http.Client {
	dialer := &net.Dialer{Timeout: httpTimeout, ControlContext: e.Control}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, ForceAttemptHTTP2: true, MaxIdleConns: 100, MaxIdleConnsPerHost: 10,
			IdleConnTimeout: 90 * time.Second, TLSClientConfig: security,
			TLSHandshakeTimeout: httpTimeout, MaxResponseHeaderBytes: maxAnswerBytes,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
