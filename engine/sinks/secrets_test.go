package sinks_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/engine/secrets"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

// signed is a webhook that records the data to check the signature of the last request.
type signed struct {
	mu                  sync.Mutex
	content, signatures string
}

func (s *signed) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.content = r.Header.Get("webhook-id") + "." + r.Header.Get("webhook-timestamp") + "." + string(body)
	s.signatures = r.Header.Get("webhook-signature")
}

// by reports whether the last request was signed with the given key.
func (s *signed) by(key string) bool {
	raw, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(key, "whsec_"))
	mac := hmac.New(sha256.New, raw)
	s.mu.Lock()
	defer s.mu.Unlock()
	mac.Write([]byte(s.content))
	return s.content != "" && s.signatures == "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// hook is the secret to which the sinks of these tests refer.
var hook = storage.SecretKey{Name: "hook", Namespaces: "n*"}

// putHook stores the secret, and makes the node read it again.
func (s *site) putHook(t *testing.T, n *node, value string) {
	t.Helper()
	sealed, err := n.Secrets().SealSecret(t.Context(), hook, value)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := s.db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := storage.PutSecret(t.Context(), conn.Conn(), hook, sealed); err != nil {
		t.Fatal(err)
	}
	if got, err := n.Secrets().ResolveNow(t.Context(), "ns", "${secret:hook}"); err != nil || got != value {
		t.Fatalf("%q, %v", got, err)
	}
}

// The key of a webhook can be a reference to a secret. A rotated secret is used without a put. If
// the secret is removed, the sink fails with an error that names the secret. It continues when the
// secret exists again.
func TestSinkRefersToASecret(t *testing.T) {
	t.Parallel()
	const second = "whsec_YW5vdGhlci1rZXktZm9yLXRoZS10ZXN0cy0xMjM0"
	s := newSite(t)
	n, to := s.start(), &signed{}
	server := httptest.NewServer(to)
	t.Cleanup(server.Close)
	m := &progressorv1.Sink{Namespace: "ns", SinkId: "s", Target: &progressorv1.Sink_Webhook{
		Webhook: &progressorv1.WebhookTarget{Url: server.URL, Secrets: []string{"${secret:hook}"}},
	}}
	put := func() error {
		_, err := n.Sinks.Put(t.Context(), &progressorv1.PutSinkRequest{Sink: m}, kim)
		return err
	}
	if err := put(); err == nil ||
		!strings.Contains(err.Error(), "sink.webhook.secrets: there is no secret hook for namespace ns") {
		t.Errorf("without the secret: %v", err)
	}
	s.putHook(t, n, "not a key")
	if err := put(); err == nil || !strings.Contains(err.Error(), "sink.webhook.secrets[0]: must be whsec_") {
		t.Errorf("with a secret that is not a key: %v", err)
	}
	s.putHook(t, n, secret)
	if err := put(); err != nil {
		t.Fatal(err)
	}
	const stored = "SELECT count(*) FROM sinks WHERE secrets::text LIKE '%${secret:hook}%'"
	if count := enginetest.Count(t, s.db, stored); count != 1 {
		t.Error("the reference is not stored")
	}
	n.begin(t, "a")
	eventually(t, "a request is signed", func() bool { return to.by(secret) })
	s.putHook(t, n, second)
	n.call(t, "a")
	eventually(t, "a request is signed with the rotated secret", func() bool { return to.by(second) })
	m.GetWebhook().Secrets = nil // keeps the reference
	if err := put(); err != nil {
		t.Fatal(err)
	}
	conn, err := s.db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	removed, err := storage.RemoveSecret(t.Context(), conn.Conn(), hook)
	conn.Release()
	if err != nil || !removed {
		t.Fatalf("%v, %v", removed, err)
	}
	if _, err := n.Secrets().ResolveNow(t.Context(), "ns", "${secret:hook}"); err == nil {
		t.Error("a removed secret is found")
	}
	n.call(t, "a")
	eventually(t, "the error names the secret", func() bool {
		return strings.Contains(n.status(t).GetLastError(), "there is no secret hook for namespace ns")
	})
	s.putHook(t, n, second)
	n.drains(t)
}

// startWithKey starts a node whose file of master keys has one key.
func (s *site) startWithKey(key byte) *node {
	s.t.Helper()
	return s.startWith(func(c *engine.Config) {
		vault, err := secrets.New(c.Store.Secrets(), [][]byte{bytes.Repeat([]byte{key}, storage.SealKeyBytes)})
		if err != nil {
			s.t.Fatal(err)
		}
		c.Secrets = vault
	})
}

// After the loss of the master key, a put with all secrets replaces those that cannot be decrypted,
// and a put without them fails. No key is created in the database.
func TestPutAfterTheKeyIsLost(t *testing.T) {
	t.Parallel()
	s, r := newSite(t), newReceiver(t)
	hook := sinkTo(r)
	unsigned := proto.CloneOf(hook)
	unsigned.GetWebhook().Secrets, unsigned.GetWebhook().Unsigned = nil, true
	brokers := &progressorv1.Sink{Namespace: "ns", SinkId: "k", Target: &progressorv1.Sink_Kafka{
		Kafka: &progressorv1.KafkaTarget{
			Brokers: []string{"127.0.0.1:1"}, Topic: "t",
			Sasl: &progressorv1.KafkaSasl{Mechanism: "PLAIN", User: "u", Password: "p"},
		},
	}}
	n := s.startWithKey(1)
	n.put(t, hook)
	n.put(t, brokers)
	n.Stop()
	n = s.startWithKey(2)
	const lost = " it was encrypted with the master key "
	for field, m := range map[string]*progressorv1.Sink{
		"sink.webhook.secrets:": hook, "sink.kafka.sasl.password:": brokers,
	} {
		without := proto.CloneOf(m)
		if hook := without.GetWebhook(); hook != nil {
			hook.Secrets = nil
		} else {
			without.GetKafka().Sasl.Password = ""
		}
		_, err := n.Sinks.Put(t.Context(), &progressorv1.PutSinkRequest{Sink: without}, kim)
		if err == nil || !strings.HasPrefix(err.Error(), "sink ns/"+m.GetSinkId()+": "+field+lost) {
			t.Errorf("a put without secrets: %v", err)
		}
		if err := n.Declare(t.Context(), without, kim); err == nil || !strings.Contains(err.Error(), field+lost) {
			t.Errorf("a declaration without secrets: %v", err)
		}
	}
	if err := n.Declare(t.Context(), hook, kim); err != nil {
		t.Errorf("declared with the key of the webhook: %v", err)
	}
	n.put(t, brokers)
	n.begin(t, "a")
	n.drains(t)
	want(t, "delivered", r.text(), "a created, a stored 1")
	n.Stop()
	n = s.startWithKey(3)
	if err := n.Declare(t.Context(), brokers, kim); err != nil {
		t.Errorf("declared with the password: %v", err)
	}
	if err := n.Declare(t.Context(), unsigned, kim); err != nil {
		t.Errorf("without a signature: %v", err)
	}
	if count := enginetest.Count(t, s.db, "SELECT count(*) FROM seal_keys"); count != 0 {
		t.Error("a key was created in the database")
	}
}
