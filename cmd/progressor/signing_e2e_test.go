package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/processor/signature"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// receiver is a processor and a target of crons that checks signatures.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	keys []signature.Key
	last map[string]string // ID and error of the last request, by path
}

func newReceiver(t *testing.T, keys ...signature.Key) *receiver {
	t.Helper()
	rec := &receiver{keys: keys, last: map[string]string{}}
	rec.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		rec.mu.Lock()
		defer rec.mu.Unlock()
		if err == nil {
			err = signature.Verify(r.Header, body, time.Now(), rec.keys...)
		}
		rec.last[r.URL.Path] = fmt.Sprintf("%s: %v", r.Header.Get(signature.HeaderID), err)
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"result":{}}`)
	}))
	t.Cleanup(rec.Close)
	return rec
}

// use replaces the keys with which the receiver checks signatures.
func (r *receiver) use(keys ...signature.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = keys
}

// got returns an error unless the last request to path had a valid signature and an ID that begins
// with id.
func (r *receiver) got(path, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := r.last[path]; !strings.HasPrefix(last, id) || !strings.HasSuffix(last, ": <nil>") {
		return fmt.Errorf("%s got %q", path, last)
	}
	return nil
}

// Requests to processors and requests of crons are signed. A key can be replaced without a rejected
// request.
func TestSignedRequests(t *testing.T) {
	t.Parallel()
	const first, second = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
	var keys []signature.Key
	for _, text := range []string{first, second} {
		key, err := signature.ParseKey(text)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	dsn, to := storagetest.DSN(t), newReceiver(t, keys[0])
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", dsn).Client
	namespace := func(args ...string) []string {
		return append([]string{"namespace", "put", "shop", "--connect-url", to.URL + "/processor", "--encoding",
			"json"}, args...)
	}
	rejects := func(why string, args ...string) {
		t.Helper()
		r := d.Run(t, args...)
		if r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, why) || strings.Contains(r.Stderr, "hunter2") {
			t.Errorf("%v: %+v, want %q", args, r, why)
		}
	}
	rejects("there is no secret first for namespace shop", namespace("--signing-secret", "first")...)
	for name, value := range map[string]string{"first": first, "second": second, "word": "hunter2"} {
		if r := putSecret(t, dsn, name, "shop", value); r.Code != cli.ExitOK {
			t.Fatalf("%+v", r)
		}
	}
	rejects("the secret word must be whsec_", namespace("--signing-secret", "word")...)
	rejects("PROTOCOL_GRPC", namespace("--signing-secret", "first", "--encoding", "proto", "--protocol", "grpc")...)
	d.OK(t, namespace("--signing-secret", "first")...)
	rejects("the secret word must be whsec_", "cron", "create", "shop", "play", "@yearly", "--http", to.URL+"/cron",
		"--signing-secret", "word")
	d.OK(t, "cron", "create", "shop", "tick.tock", "@yearly", "--http", to.URL+"/cron", "--signing-secret", "first",
		"--args", "hello")

	d.OK(t, "start", "shop", "order-1")
	if err := to.got("/processor", "task_shop_"); err != nil {
		t.Error(err)
	}
	d.OK(t, "cron", "trigger", "shop", "tick.tock")
	clitest.Eventually(t, "the cron sends a signed request", func() error {
		return to.got("/cron", "cron_shop_tick%2Etock_")
	})
	// While the namespace has both keys, the receiver accepts requests with either of them.
	d.OK(t, namespace("--signing-secret", "second", "--signing-secret", "first")...)
	d.OK(t, "call", "shop", "order-1")
	to.use(keys[1])
	d.OK(t, "call", "shop", "order-1")
	d.OK(t, namespace("--signing-secret", "second")...)
	d.OK(t, "call", "shop", "order-1")
	if err := to.got("/processor", "task_shop_"); err != nil {
		t.Error(err)
	}
}
