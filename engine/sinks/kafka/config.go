package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/progressor-engine/progressor/engine/sinks/format"
)

// Defaults of a Config.
const (
	DefaultTimeout         = 30 * time.Second
	DefaultMaxMessageBytes = 1_000_000 // brokers accept 1,048,588 by default
)

// minMessageBytes is the smallest batch size to which the client can be limited.
const minMessageBytes = 1024

// metadataAge is how long the client waits before it asks again for the leader of a partition. With
// the default of 5 s, each change of a leader could delay a delivery by 5 s.
const metadataAge = 250 * time.Millisecond

// dialTimeout limits a connection attempt, including the TLS handshake.
const dialTimeout = 10 * time.Second

// Config describes a cluster and a topic.
type Config struct {
	Brokers []string // host:port
	// Topic may contain {namespace} and {kind}. A slash in the name of a namespace becomes a dot.
	Topic       string
	CreateTopic bool // ask the brokers to create a missing topic
	Format      format.Format

	TLS  *tls.Config // nil means no TLS
	SASL *SASL       // nil means no authentication
	// Dial opens connections, for example according to the rules for outgoing connections. Default:
	// net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	Timeout         time.Duration // limits a delivery. Default: DefaultTimeout
	MaxMessageBytes int           // limits a record batch, and therefore a message. Default: DefaultMaxMessageBytes
}

// Mechanism is a mechanism of SASL.
type Mechanism string

// The mechanisms.
const (
	Plain       Mechanism = "PLAIN"
	ScramSHA256 Mechanism = "SCRAM-SHA-256"
	ScramSHA512 Mechanism = "SCRAM-SHA-512"
)

// SASL authenticates the client.
type SASL struct {
	Mechanism      Mechanism
	User, Password string
}

// withDefaults returns the configuration with its defaults, or all errors in it.
func (c Config) withDefaults() (Config, error) {
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = DefaultMaxMessageBytes
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	var errs []error
	if len(c.Brokers) == 0 {
		errs = append(errs, errors.New("brokers: must have at least one host:port"))
	}
	for n, broker := range c.Brokers {
		if err := checkBroker(broker); err != nil {
			errs = append(errs, fmt.Errorf("brokers[%d]: %w", n, err))
		}
	}
	if err := checkTopic(c.Topic); err != nil {
		errs = append(errs, fmt.Errorf("topic: %w", err))
	}
	if c.Format < format.Structured || c.Format > format.Protobuf {
		errs = append(errs, fmt.Errorf("format: must be Structured, Binary or Protobuf (got %d)", c.Format))
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout: must be positive (got %s)", c.Timeout))
	}
	if c.MaxMessageBytes < minMessageBytes || c.MaxMessageBytes > 1<<30 {
		errs = append(errs, fmt.Errorf("max_message_bytes: must be between %d and %d (got %d)", minMessageBytes, 1<<30,
			c.MaxMessageBytes))
	}
	if c.SASL != nil {
		if _, err := c.SASL.mechanism(); err != nil {
			errs = append(errs, err)
		}
	}
	return c, errors.Join(errs...)
}

func checkBroker(address string) error {
	host, port, err := net.SplitHostPort(address)
	if n, portErr := strconv.ParseUint(port, 10, 16); err != nil || portErr != nil || host == "" || n == 0 {
		return fmt.Errorf("must be host:port (got %q)", address)
	}
	return nil
}

func (s *SASL) mechanism() (sasl.Mechanism, error) {
	if s.User == "" {
		return nil, errors.New("sasl.user: must not be empty")
	}
	password := scram.Auth{User: s.User, Pass: s.Password}
	switch s.Mechanism {
	case Plain:
		return plain.Auth{User: s.User, Pass: s.Password}.AsMechanism(), nil
	case ScramSHA256:
		return password.AsSha256Mechanism(), nil
	case ScramSHA512:
		return password.AsSha512Mechanism(), nil
	}
	return nil, fmt.Errorf("sasl.mechanism: must be %s, %s or %s (got %q)", Plain, ScramSHA256, ScramSHA512,
		s.Mechanism)
}

// open returns a client that has no connection yet. Flush sends what was produced before, so that
// all records of a chunk for a partition are in one batch.
func (c *Config) open() (*kgo.Client, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...), kgo.ClientID("progressor"), kgo.Dialer(c.dial), kgo.DisableClientMetrics(),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.ManualFlushing(), kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytes(int32(c.MaxMessageBytes)),
		kgo.MaxBufferedRecords(math.MaxInt32), // chunk limits the records
		kgo.MetadataMinAge(metadataAge),
	}
	if c.CreateTopic {
		options = append(options, kgo.AllowAutoTopicCreation())
	}
	if c.SASL != nil {
		mechanism, err := c.SASL.mechanism()
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.SASL(mechanism))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, fmt.Errorf("open a Kafka client: %w", err)
	}
	return client, nil
}

// dial opens a connection to a broker.
func (c *Config) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := c.Dial(ctx, network, address)
	if err != nil || c.TLS == nil {
		return conn, err
	}
	settings := c.TLS.Clone()
	if host, _, err := net.SplitHostPort(address); err == nil && settings.ServerName == "" {
		settings.ServerName = host
	}
	encrypted := tls.Client(conn, settings)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("TLS handshake with %s: %w", address, err), conn.Close())
	}
	return encrypted, nil
}
