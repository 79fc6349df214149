package auth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// table is a table of keys in memory.
type table struct {
	mu    sync.Mutex
	rows  map[string]storage.KeyState
	reads int
	uses  []string // IDs of keys whose use was noted
	err   error
	hangs chan struct{} // if not nil, a read sends to it and waits until its context ends
}

func (t *table) ReadKey(ctx context.Context, id string) (storage.KeyState, error) {
	if t.hangs != nil {
		select {
		case t.hangs <- struct{}{}:
			<-ctx.Done()
		case <-ctx.Done():
		}
		return storage.KeyState{}, ctx.Err()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reads++
	row, ok := t.rows[id]
	switch {
	case t.err != nil:
		return row, t.err
	case !ok:
		return row, process.ErrKeyNotFound
	}
	return row, nil
}

// ReadGrants returns the grants of principals without a key. The table stores principals like keys.
func (t *table) ReadGrants(ctx context.Context, principals []string) (storage.PrincipalGrants, error) {
	var all storage.PrincipalGrants
	for _, principal := range principals {
		row, err := t.ReadKey(ctx, principal)
		if err != nil && !errors.Is(err, process.ErrKeyNotFound) {
			return all, err
		}
		all.Roles, all.Patterns = append(all.Roles, row.Roles...), append(all.Patterns, row.Patterns...)
	}
	return all, nil
}

func (t *table) set(change func(*table)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(t)
}

// add creates a key and returns its ID and its token.
func (t *table) add() (id, token string) {
	id, token = NewToken()
	hash := Hash(token)
	t.set(func(t *table) { t.rows[id] = storage.KeyState{SecretHash: hash[:]} })
	return id, token
}

// clock is the time of a test.
type clock struct{ now time.Time }

func newTest(t *testing.T, root string) (*Authenticator, *table, *clock) {
	t.Helper()
	keys, at := &table{rows: map[string]storage.KeyState{}}, &clock{time.Now()}
	a := New(keys, root, prometheus.NewRegistry())
	a.now = func() time.Time { return at.now }
	a.failed.pause = 0
	return a, keys, at
}

const address = "192.0.2.1:4711"

// secretOf returns the secret of a token, with the _ before it.
func secretOf(token string) string { return token[strings.LastIndex(token, "_"):] }

func TestKeys(t *testing.T) {
	t.Parallel()
	root := tokenOf(rootID)
	a, keys, _ := newTest(t, root)
	id, token := keys.add()
	_, other := keys.add()
	for _, tt := range []struct {
		name    string
		headers []string
		want    string
		err     error
	}{
		{"key", []string{"Bearer " + token}, "key:" + id, nil},
		{"scheme in lower case", []string{"bearer " + token}, "key:" + id, nil},
		{"root key", []string{"Bearer " + root}, "root", nil},
		{"no header", nil, "", ErrMissing},
		{"empty header", []string{""}, "", ErrMissing},
		{"two credentials", []string{"Bearer " + token, "Bearer " + token}, "", ErrMalformed},
		{"two tokens", []string{"Bearer " + token + ", Bearer " + token}, "", ErrMalformed},
		{"another scheme", []string{"Basic " + token}, "", ErrMalformed},
		{"no scheme", []string{token}, "", ErrMalformed},
		{"only a scheme", []string{"Bearer"}, "", ErrMalformed},
		{"no token", []string{"Bearer "}, "", ErrMalformed},
		{"only an ID", []string{"Bearer pgr_" + id + "_"}, "", ErrMalformed},
		{"the secret of another key", []string{"Bearer pgr_" + id + secretOf(other)}, "", ErrInvalid},
		{"another ID", []string{"Bearer pgr_" + strings.Repeat("a", idBytes) + secretOf(token)}, "", ErrInvalid},
		{"another root key", []string{"Bearer " + tokenOf(rootID)}, "", ErrInvalid},
		{"ID in upper case", []string{"Bearer pgr_" + strings.ToUpper(id) + secretOf(token)}, "", ErrMalformed},
		{"secret in upper case", []string{"Bearer pgr_" + id + strings.ToUpper(secretOf(token))}, "", ErrInvalid},
		{"cut", []string{"Bearer " + token[:len(token)-1]}, "", ErrMalformed},
		{"too long", []string{"Bearer " + token + "0"}, "", ErrMalformed},
		{"huge", []string{"Bearer pgr_" + strings.Repeat("a", 1<<20)}, "", ErrMalformed},
	} {
		p, err := a.Authenticate(t.Context(), tt.headers, fmt.Sprintf("192.0.2.%d:1", len(tt.name)))
		if !errors.Is(err, tt.err) || (p == nil) != (tt.err != nil) || p != nil && p.Name != tt.want {
			t.Errorf("%s: %v, %v; want %q, %v", tt.name, p, err, tt.want, tt.err)
		}
	}
	if p, err := New(keys, "", nil).Authenticate(t.Context(), []string{"Bearer " + root}, address); err == nil {
		t.Errorf("a root key is accepted by an engine that has none: %v", p)
	}
}

// The requests of a client cause a read of the database at most once in 10 s. After that time, a
// key that was revoked or deleted, or has expired, is rejected.
func TestCache(t *testing.T) {
	t.Parallel()
	a, keys, at := newTest(t, "")
	id, token := keys.add()
	try := func() error {
		_, err := a.Authenticate(t.Context(), []string{"Bearer " + token}, address)
		return err
	}
	for range 100 {
		if err := try(); err != nil {
			t.Fatal(err)
		}
	}
	if keys.reads != 1 {
		t.Errorf("%d reads for 100 requests", keys.reads)
	}
	keys.set(func(k *table) { row := k.rows[id]; row.Revoked = true; k.rows[id] = row })
	at.now = at.now.Add(CacheTime)
	if err := try(); !errors.Is(err, ErrInvalid) {
		t.Errorf("revoked: %v", err)
	}
	keys.set(func(k *table) { row := k.rows[id]; row.Revoked, row.Expired = false, true; k.rows[id] = row })
	at.now = at.now.Add(CacheTime)
	if err := try(); !errors.Is(err, ErrInvalid) {
		t.Errorf("expired: %v", err)
	}
	keys.set(func(k *table) { delete(k.rows, id) })
	at.now = at.now.Add(CacheTime)
	if err := try(); !errors.Is(err, ErrInvalid) {
		t.Errorf("deleted: %v", err)
	}
}

// Requests wait for the read of their key by another request, so that none uses an old state while
// the database responds. If the read takes longer than refreshWait, they use the old state for a
// minute.
func TestDatabaseHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, keys, at := newTest(t, "")
		_, token := keys.add()
		try := func(ctx context.Context) <-chan error {
			result := make(chan error, 1)
			go func() {
				_, err := a.Authenticate(ctx, []string{"Bearer " + token}, address)
				result <- err
			}()
			return result
		}
		if err := <-try(t.Context()); err != nil {
			t.Fatal(err)
		}
		at.now = at.now.Add(CacheTime)
		keys.hangs = make(chan struct{})
		reading, stop := context.WithCancel(t.Context())
		first := try(reading)
		<-keys.hangs
		began, second := time.Now(), try(t.Context())
		time.Sleep(100 * time.Millisecond) // on the virtual clock
		synctest.Wait()
		if len(second) > 0 {
			t.Error("while the database may still respond, a request uses the old state")
		}
		if err := <-second; err != nil || time.Since(began) != refreshWait {
			t.Errorf("while another request reads the key: %v after %s", err, time.Since(began))
		}
		at.now = at.now.Add(staleTime)
		gone, leave := context.WithCancel(t.Context())
		leave()
		if err := <-try(gone); !errors.Is(err, process.ErrUnavailable) {
			t.Errorf("a minute later, for a client that has disconnected: %v", err)
		}
		stop()
		if err := <-first; err != nil {
			t.Errorf("the request that reads the key: %v", err)
		}
	})
}

// While the database cannot be read, known keys work for a minute. Clients with unknown keys get
// UNAVAILABLE, and not an error that means an invalid token.
func TestDatabaseDown(t *testing.T) {
	t.Parallel()
	a, keys, at := newTest(t, "")
	_, known := keys.add()
	_, unknown := keys.add()
	try := func(token string) error {
		_, err := a.Authenticate(t.Context(), []string{"Bearer " + token}, address)
		return err
	}
	if err := try(known); err != nil {
		t.Fatal(err)
	}
	keys.set(func(k *table) { k.err = errors.New("connection refused") })
	at.now = at.now.Add(staleTime)
	if err := try(known); err != nil {
		t.Errorf("a known key: %v", err)
	}
	if err := try(unknown); !errors.Is(err, process.ErrUnavailable) {
		t.Errorf("an unknown key: %v", err)
	}
	at.now = at.now.Add(time.Second)
	if err := try(known); !errors.Is(err, process.ErrUnavailable) {
		t.Errorf("after a minute: %v", err)
	}
}

// counted returns the count of an outcome.
func counted(t *testing.T, a *Authenticator, outcome string) (n int) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(a.total)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "outcome" && label.GetValue() == outcome {
					n += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return n
}

// TestGuessing sends 500 random tokens from one address. At least 400 of them are limited, and all
// requests together cause at most 100 reads. A client of the same address can still use its cached
// key. The number of remembered addresses is bounded.
func TestGuessing(t *testing.T) {
	t.Parallel()
	a, keys, _ := newTest(t, "")
	_, token := keys.add()
	good := func() {
		t.Helper()
		if _, err := a.Authenticate(t.Context(), []string{"Bearer " + token}, address); err != nil {
			t.Error(err)
		}
	}
	good()
	limited := 0
	for range 500 {
		_, guess := NewToken()
		if _, err := a.Authenticate(t.Context(), []string{"Bearer " + guess}, address); errors.Is(err, ErrLimited) {
			limited++
		} else if !errors.Is(err, ErrInvalid) {
			t.Fatalf("%v", err)
		}
	}
	if limited < 400 || keys.reads > 100 {
		t.Errorf("%d of 500 guesses were limited, with %d reads", limited, keys.reads)
	}
	good()
	if _, err := a.Authenticate(t.Context(), nil, "192.0.2.9:1"); !errors.Is(err, ErrMissing) {
		t.Errorf("another address: %v", err)
	}
	if got := counted(t, a, "limited"); got != limited {
		t.Errorf("%d limited guesses were counted, want %d", got, limited)
	}
	for n := range 3 * maxAddresses {
		a.failed.take(fmt.Sprintf("[2001:db8:%x:%x::1]:1", n>>8, n&0xff))
	}
	if len(a.failed.byKey) > maxAddresses {
		t.Errorf("%d addresses are remembered", len(a.failed.byKey))
	}
}

// Clients without a valid token do not prevent others at their address from using a key that the
// node does not know yet. The lookups of such keys are limited for all addresses together.
func TestNewKeys(t *testing.T) {
	t.Parallel()
	a, keys, _ := newTest(t, "")
	a.failed.budget = newBudget(rate.Every(time.Hour), failureRate)
	for range 2 * failureRate {
		if _, err := a.Authenticate(t.Context(), nil, address); err == nil {
			t.Fatal("a request without a token is accepted")
		}
	}
	_, token := keys.add()
	if _, err := a.Authenticate(t.Context(), []string{"Bearer " + token}, address); err != nil {
		t.Errorf("a new key after %d failures: %v", 2*failureRate, err)
	}
	a.unknown = rate.NewLimiter(0, 0)
	_, token = keys.add()
	if _, err := a.Authenticate(t.Context(), []string{"Bearer " + token}, "192.0.2.9:1"); !errors.Is(err, ErrBusy) {
		t.Errorf("too many new keys: %v", err)
	}
}

// Each failure takes at least the configured pause, whatever its reason.
func TestFailuresTakeTheSameTime(t *testing.T) {
	t.Parallel()
	a, keys, _ := newTest(t, "")
	a.failed.pause = 30 * time.Millisecond
	id, _ := keys.add()
	_, unknown := NewToken()
	for _, headers := range [][]string{nil, {"Basic x"}, {"Bearer " + unknown},
		{"Bearer pgr_" + id + secretOf(unknown)}} {
		begin := time.Now()
		if _, err := a.Authenticate(t.Context(), headers, address); err == nil {
			t.Errorf("%q is accepted", headers)
		}
		if took := time.Since(begin); took < a.failed.pause {
			t.Errorf("%.30q: rejected after %s", headers, took)
		}
	}
}

func TestNetworks(t *testing.T) {
	t.Parallel()
	for _, same := range [][2]string{{"192.0.2.1:1", "192.0.2.1:2"}, {"[2001:db8::1]:1", "[2001:db8::2]:1"},
		{"[::ffff:192.0.2.1]:1", "192.0.2.1:2"}, {"", "x"}} {
		if networkOf(same[0]) != networkOf(same[1]) {
			t.Errorf("%q and %q are different clients", same[0], same[1])
		}
	}
	for _, other := range [][2]string{{"192.0.2.1:1", "192.0.2.2:1"}, {"[2001:db8::1]:1", "[2001:db8:0:1::1]:1"}} {
		if networkOf(other[0]) == networkOf(other[1]) {
			t.Errorf("%q and %q are one client", other[0], other[1])
		}
	}
}

// A file with a root key is created once, for its owner only. A file is rejected if others can read
// it, if it contains no root key, or if its owner is neither root nor the current user.
func TestRootKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "data", "token")
	token, err := RootKey(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if again, err := RootKey(path); err != nil || again != token {
		t.Errorf("the second start: %v", err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := RootKey(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others can read: %v", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if info, err = os.Stat(path); err != nil {
		t.Fatal(err)
	}
	owner := os.Geteuid()
	for user, trusted := range map[int]bool{owner: true, owner + 1: owner == 0} {
		err := checkOwner(path, info, user)
		if trusted != (err == nil) || err != nil && !strings.Contains(err.Error(), "must belong to the user") {
			t.Errorf("the file of user %d, for user %d: %v", owner, user, err)
		}
	}
	if owner == 0 { // only root can give files to others
		if err := os.Chown(path, 12345, -1); err != nil {
			t.Fatal(err)
		}
		if _, err := RootKey(path); err == nil || !strings.Contains(err.Error(), "it belongs to 12345") {
			t.Errorf("a file of another user: %v", err)
		}
		if err := os.Chown(path, 0, -1); err != nil {
			t.Fatal(err)
		}
	}
	_, key := NewToken()
	for _, text := range []string{"", "x", key} {
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, err := RootKey(path); err == nil || strings.Contains(err.Error(), key) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// BenchmarkAuthenticate measures the cost of a request with a cached key.
func BenchmarkAuthenticate(b *testing.B) {
	keys := &table{rows: map[string]storage.KeyState{}}
	_, token := keys.add()
	a := New(keys, "", nil)
	headers := []string{"Bearer " + token}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Authenticate(b.Context(), headers, address); err != nil {
			b.Fatal(err)
		}
	}
}

// A client with a certificate has the grants of its URI. They are cached like the grants of a key,
// and used for a minute if the database cannot be read.
func TestCertificatePrincipals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const uri = "spiffe://example.org/a"
		keys := &table{rows: map[string]storage.KeyState{}}
		a := New(keys, "", nil)
		who := func() (*Principal, error) { return a.AuthenticateCertificate(t.Context(), uri, nil, address) }
		p, err := who()
		if err != nil || p.Name != "cert:"+uri || len(p.Grants()) > 0 {
			t.Fatalf("%+v, %v", p, err)
		}
		keys.set(func(k *table) {
			k.rows["cert:"+uri] = storage.KeyState{Roles: []string{"viewer"}, Patterns: []string{"shop/*"}}
		})
		if now, err := who(); err != nil || len(now.Grants()) > 0 || keys.reads != 1 {
			t.Errorf("%v, %v: the grants are not cached", now.Grants(), err)
		}
		time.Sleep(CacheTime)
		if now, err := a.Current(t.Context(), p); err != nil || strings.Join(now.Grants(), ",") != "viewer shop/*" {
			t.Errorf("%v, %v", now.Grants(), err)
		}
		keys.set(func(k *table) { k.err = errors.New("no database") })
		time.Sleep(CacheTime)
		if now, err := who(); err != nil || len(now.Grants()) != 1 {
			t.Errorf("without the database: %v, %v", now.Grants(), err)
		}
		time.Sleep(staleTime)
		if _, err := who(); !errors.Is(err, process.ErrUnavailable) {
			t.Errorf("without the database for a long time: %v", err)
		}
		_, err = a.AuthenticateCertificate(t.Context(), uri, []string{"Bearer x"}, address)
		if !errors.Is(err, ErrTwo) {
			t.Errorf("with a token: %v", err)
		}
		keys.set(func(k *table) { k.hangs = make(chan struct{}, 1) })
		began := time.Now()
		_, err = a.AuthenticateCertificate(t.Context(), uri+"/2", nil, address)
		if !errors.Is(err, process.ErrUnavailable) || time.Since(began) != readTimeout {
			t.Errorf("the database hangs: %v after %s", err, time.Since(began))
		}
	})
}
