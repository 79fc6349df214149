package sinks_test

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/progressor-engine/progressor/internal/testca"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

// seal stores a secret for the namespaces n*.
func (s *site) seal(t *testing.T, n *node, name, value string) {
	t.Helper()
	k := storage.SecretKey{Name: name, Namespaces: "n*"}
	sealed, err := n.Secrets().SealSecret(t.Context(), k, value)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := s.db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := storage.PutSecret(t.Context(), conn.Conn(), k, sealed); err != nil {
		t.Fatal(err)
	}
}

// Brokers can require a client certificate. The sink presents the certificate in its secret. If
// there is no certificate, if it comes from another authority, or if ca_pem is wrong, the status of
// the sink contains an error with the reason.
func TestKafkaClientCertificate(t *testing.T) {
	t.Parallel()
	const client = "spiffe://example.org/sink"
	servers, clients := testca.New(t), testca.New(t)
	trusted := x509.NewCertPool()
	trusted.AddCert(clients.Certificate)
	var presented atomic.Value
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.AllowAutoTopicCreation(), kfake.TLS(&tls.Config{
		Certificates: []tls.Certificate{servers.Issue(time.Hour)}, ClientCAs: trusted,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
		VerifyConnection: func(c tls.ConnectionState) error {
			presented.Store(c.PeerCertificates[0].URIs[0].String())
			return nil
		},
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	s := newSite(t)
	n := s.start()
	s.seal(t, n, "client", clients.IssuePEM(client))
	s.seal(t, n, "other", servers.IssuePEM(client))
	put := func(authority *testca.Authority, certificate string) {
		t.Helper()
		m := sinkToKafka(cluster.ListenAddrs()...)
		m.GetKafka().Tls = &progressorv1.KafkaTls{CaPem: authority.PEM(), CertificateSecret: certificate}
		n.put(t, m)
	}
	fails := func(why string) {
		t.Helper()
		eventually(t, "the error is: "+why, func() bool { return strings.Contains(n.status(t).GetLastError(), why) })
		if got := presented.Load(); got != nil {
			t.Errorf("the brokers accepted the certificate of %s", got)
		}
	}
	put(servers, "")
	n.begin(t, "a")
	fails("the server requires a client certificate")
	put(clients, "client")
	fails("the certificate of the server is signed by an unknown authority")
	put(servers, "other")
	fails("client certificate")
	put(servers, "client")
	n.drains(t)
	if got := presented.Load(); got != client {
		t.Errorf("the brokers got the certificate of %v, want %s", got, client)
	}
}
