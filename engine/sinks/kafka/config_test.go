package kafka_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/progressor-engine/progressor/engine/sinks/kafka"
)

func TestConfigErrors(t *testing.T) {
	t.Parallel()
	good := kafka.Config{Brokers: []string{"localhost:9092"}, Topic: "p.{namespace}.{kind}", Format: 1}
	if d, err := kafka.New(good); err != nil {
		t.Error(err)
	} else {
		d.Close()
	}
	type edit func(*kafka.Config)
	brokers := func(list ...string) edit { return func(c *kafka.Config) { c.Brokers = list } }
	topic := func(name string) edit { return func(c *kafka.Config) { c.Topic = name } }
	login := func(m kafka.Mechanism, user string) edit {
		return func(c *kafka.Config) { c.SASL = &kafka.SASL{Mechanism: m, User: user} }
	}
	for wanted, change := range map[string]edit{
		"brokers: must have at least one host:port":        brokers(),
		`brokers[1]: must be host:port (got "b")`:          brokers("a:1", "b"),
		`brokers[0]: must be host:port (got ":9092")`:      brokers(":9092"),
		`brokers[0]: must be host:port (got "a:0")`:        brokers("a:0"),
		`brokers[0]: must be host:port (got "http://a:1")`: brokers("http://a:1"),

		"topic: must not be empty":                                       topic(""),
		"topic: must have no placeholders except {namespace} and {kind}": topic("a{process}"),
		"topic: must contain only letters, digits, '.', '_',":            topic("a{kind"),
		`and placeholders (got "a/b")`:                                   topic("a/b"),
		"topic: must not be . or ..":                                     topic(".."),
		"topic: must have at most 249 characters (got 250)":              topic(strings.Repeat("x", 250)),

		"sasl.user: must not be empty": login(kafka.Plain, ""),
		`sasl.mechanism: must be PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 (got "GSSAPI")`: login("GSSAPI", "u"),

		"format: must be":                             func(c *kafka.Config) { c.Format = 0 },
		"timeout: must be positive (got -1s)":         func(c *kafka.Config) { c.Timeout = -time.Second },
		"max_message_bytes: must be between 1024 and": func(c *kafka.Config) { c.MaxMessageBytes = 1000 },
	} {
		bad := good
		change(&bad)
		if _, err := kafka.New(bad); err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("%v\nwant %s", err, wanted)
		}
	}
}

// A topic that does not exist does not turn a change into a dead letter: the error is not
// permanent. With create_topic, the topic is created.
func TestUnknownTopic(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.AllowAutoTopicCreation())
	d := open(t, c.config("new"))
	wantRetried(t, d.Deliver(t.Context(), changes(2, 1, 1)), "topic new does not exist: create it, or set create_topic")
	config := c.config("new")
	config.CreateTopic = true
	deliver(t, open(t, config), changes(2, 1, 3))
	c.wantAll("new", 2, 3)
	deliver(t, d, changes(2, 4, 5)) // now the topic exists
	c.wantAll("new", 2, 5)
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.NumBrokers(1))
	c.newTopic("t")
	config := c.config("t")
	var refused atomic.Bool
	refused.Store(true)
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if refused.Load() {
			broker := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2)}
			return nil, &net.OpError{Op: "dial", Addr: broker, Err: syscall.ECONNREFUSED}
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	d := open(t, config)
	begin := time.Now()
	err := d.Deliver(t.Context(), changes(2, 1, 3))
	wantRetried(t, err, "deliver to Kafka at 127.0.0.1:")
	wantRetried(t, err, "connect: connection refused")
	if strings.Contains(err.Error(), "10.0.0.2") {
		t.Errorf("the error shows an address that was not configured: %v", err)
	}
	if took := time.Since(begin); took > testTimeout/2 {
		t.Errorf("the error was returned after %s", took)
	}
	refused.Store(false)
	deliver(t, d, changes(2, 1, 3))
	c.wantAll("t", 2, 3)
}

// A client authenticates itself with each mechanism. Without a permission, a request fails with a
// hint.
func TestAuthentication(t *testing.T) {
	t.Parallel()
	write := kfake.ACL{
		Resource: kmsg.ACLResourceTypeTopic, Name: "t", Pattern: kmsg.ACLResourcePatternTypeLiteral,
		Operation: kmsg.ACLOperationWrite, Allow: true,
	}
	options := []kfake.Opt{kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(4, "t")}
	for _, m := range []kafka.Mechanism{kafka.Plain, kafka.ScramSHA256, kafka.ScramSHA512} {
		options = append(options, kfake.User(string(m), "writer-"+string(m), "secret", write),
			kfake.User(string(m), "guest-"+string(m), "secret"))
	}
	c := newCluster(t, options...)
	for _, m := range []kafka.Mechanism{kafka.Plain, kafka.ScramSHA256, kafka.ScramSHA512} {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			config := c.config("t")
			config.SASL = &kafka.SASL{Mechanism: m, User: "writer-" + string(m), Password: "secret"}
			deliver(t, open(t, config), changes(2, 1, 3))
			config.SASL = &kafka.SASL{Mechanism: m, User: "writer-" + string(m), Password: "wrong"}
			wantRetried(t, open(t, config).Deliver(t.Context(), changes(2, 1, 1)), "check sasl.user and sasl.password")
			config.SASL = &kafka.SASL{Mechanism: m, User: "guest-" + string(m), Password: "secret"}
			wantRetried(t, open(t, config).Deliver(t.Context(), changes(2, 1, 1)),
				"not authorized to write to topic t: grant the user WRITE")
			config.SASL = nil
			wantRetried(t, open(t, config).Deliver(t.Context(), changes(2, 1, 1)), "SASL")
		})
	}
}

// certificate returns a self-signed certificate for 127.0.0.1, and a pool that trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestTLS(t *testing.T) {
	t.Parallel()
	pair, trusted := certificate(t)
	c := newCluster(t, kfake.SeedTopics(4, "t"), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}}))
	config := c.config("t")
	config.TLS = &tls.Config{RootCAs: trusted}
	deliver(t, open(t, config), changes(2, 1, 3))
	total := int64(0)
	for _, p := range c.PartitionInfos("t") {
		total += p.HighWatermark
	}
	if total != 6 {
		t.Errorf("%d of 6 changes are stored", total)
	}
	config.TLS = &tls.Config{}
	wantRetried(t, open(t, config).Deliver(t.Context(), changes(2, 1, 1)), "signed by an unknown authority")
	config.TLS = nil
	wantRetried(t, open(t, config).Deliver(t.Context(), changes(2, 1, 1)), "TLS")
}
