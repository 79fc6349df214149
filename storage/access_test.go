package storage_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// operator is the actor that changes keys in these tests.
var operator = process.Actor{Name: "key:operator", Source: "192.0.2.1:1"}

// key creates a key that is a client in the namespaces shop/* and a worker in the namespace mail.
func (b *bench) key(id string, ttl time.Duration) {
	b.t.Helper()
	k := storage.NewKey{KeyID: id, Name: "billing", Hash: make([]byte, 32), TTL: ttl, Grants: []storage.GrantKey{
		{Principal: "key:" + id, Role: "client", Namespaces: "shop/*"},
		{Principal: "key:" + id, Role: "worker:a", Namespaces: "mail"},
	}}
	must(b.t, 0, b.Access().CreateKey(b.t.Context(), k, operator))
}

// listed returns the only key with an ID.
func (b *bench) listed(id string) storage.ListedKey {
	b.t.Helper()
	list, err := b.Access().ListKeys(b.t.Context(), storage.KeyQuery{KeyID: id, Limit: 10})
	if must(b.t, list, err); len(list) != 1 {
		b.t.Fatalf("%d keys %s", len(list), id)
	}
	return list[0]
}

// A rotated key has a successor with the same name, grants and lifetime. The old key ends after the
// overlap, but never later than it would have ended without the rotation. A key can be rotated only
// once. The audit records each rotation, and the key and grants of the successor.
func TestRotateKey(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	rotate := func(r storage.Rotation) (storage.APIKey, error) {
		r.Hash = make([]byte, 32)
		return b.Access().RotateKey(t.Context(), r, operator)
	}
	b.key("old", 2*time.Hour)
	old, err := rotate(storage.Rotation{KeyID: "old", NewID: "new", Overlap: time.Hour})
	must(t, old, err)
	if left := time.Until(*old.ExpireTime); *old.ReplacedBy != "new" || left > time.Hour || left < 59*time.Minute ||
		old.RevokedTime != nil {
		t.Errorf("the old key: %+v", old)
	}
	k := b.listed("new")
	if got := k.ExpireTime.Sub(k.CreatedTime).Round(time.Second); got != 2*time.Hour || k.Name != "billing" ||
		fmt.Sprint(k.Roles, k.Patterns) != "[client worker:a] [shop/* mail]" || k.CreatedBy != operator.Name {
		t.Errorf("the new key, valid for %s: %+v", got, k)
	}
	_, err = rotate(storage.Rotation{KeyID: "old", NewID: "third"})
	if replaced, ok := errors.AsType[*process.KeyReplacedError](err); !ok || replaced.By != "new" {
		t.Errorf("rotated again: %v", err)
	}
	// The overlap does not extend the old key. Without an overlap, it is revoked.
	old, err = rotate(storage.Rotation{KeyID: "new", NewID: "third", Overlap: 3 * time.Hour, TTL: time.Hour})
	if left := time.Until(*must(t, old, err).ExpireTime); left > 2*time.Hour {
		t.Errorf("the overlap has extended the key to %s", left)
	}
	old, err = rotate(storage.Rotation{KeyID: "third", NewID: "fourth"})
	if must(t, old, err).RevokedTime == nil {
		t.Errorf("without an overlap: %+v", old)
	}
	if _, err := rotate(storage.Rotation{KeyID: "third", NewID: "fifth"}); !errors.Is(err, process.ErrKeyNotFound) {
		t.Errorf("a revoked key: %v", err)
	}
	must(t, 0, exec(b, "UPDATE api_keys SET expire_time = statement_timestamp() WHERE key_id = 'fourth'"))
	if _, err := rotate(storage.Rotation{KeyID: "fourth", NewID: "fifth"}); !errors.Is(err, process.ErrKeyNotFound) {
		t.Errorf("an expired key: %v", err)
	}
	got := ask[string](b, `SELECT string_agg(method || ' ' || subject, ', ' ORDER BY audit_id) FROM audit
		WHERE actor = $1 AND (method <> 'AddGrant' OR subject LIKE '%new%')`, operator.Name)
	if want := "CreateKey old, CreateKey new, AddGrant key:new client shop/*, AddGrant key:new worker:a mail, " +
		"RotateKey old, CreateKey third, RotateKey new, CreateKey fourth, RotateKey third"; got != want {
		t.Errorf("audit: %s\nwant: %s", got, want)
	}
}

// While the database is read-only, RotateKey, RevokeKey and NoteKeyUse return ErrUnavailable.
func TestAccessReadOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.key("one", 0)
	b.readOnly(true)
	_, rotated := b.Access().RotateKey(t.Context(), storage.Rotation{KeyID: "one", NewID: "two"}, operator)
	_, revoked := b.Access().RevokeKey(t.Context(), "one", operator)
	for _, err := range []error{rotated, revoked, b.NoteKeyUse(t.Context(), "one")} {
		if !errors.Is(err, process.ErrUnavailable) {
			t.Error(err)
		}
	}
	b.readOnly(false)
}

// Keys, grants and logins are listed in pages, without gaps.
func TestAccessPages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for n := range 5 {
		b.key(fmt.Sprintf("k%d", n), 0)
		b.login(fmt.Sprintf("l%d", n), "alice")
	}
	must(t, 0, exec(b, "UPDATE api_keys SET created_time = now()"))
	must(t, 0, exec(b, "UPDATE api_keys SET revoked_time = now() WHERE key_id = 'k3'"))
	must(t, 0, exec(b, "UPDATE console_logins SET created_time = now()"))
	a, ctx := b.Access(), t.Context()
	var keys, grants, logins string
	for q := (storage.KeyQuery{Limit: 2, ValidOnly: true}); ; {
		page, err := a.ListKeys(ctx, q)
		if must(t, page, err); len(page) == 0 {
			break
		}
		for n := range page {
			q.AfterID = page[n].KeyID
			keys += q.AfterID + " "
		}
	}
	for q := (storage.GrantQuery{Limit: 3}); ; {
		page, err := a.ListGrants(ctx, q)
		if must(t, page, err); len(page) == 0 {
			break
		}
		for _, g := range page {
			q.After = storage.GrantKey{Principal: g.Principal, Role: g.Role, Namespaces: g.Namespaces}
			grants += g.Principal[4:] + g.Role[:1]
		}
	}
	for q := (storage.LoginQuery{Limit: 2, Principal: "user:https://a#alice"}); ; {
		page, err := a.ListLogins(ctx, q)
		if must(t, page, err); len(page) == 0 {
			break
		}
		for n := range page {
			q.AfterTime, q.AfterID = page[n].CreatedTime, page[n].LoginID
			logins += q.AfterID + " "
		}
	}
	if keys != "k4 k2 k1 k0 " || grants != "k0ck0wk1ck1wk2ck2wk3ck3wk4ck4w" || logins != "l4 l3 l2 l1 l0 " {
		t.Errorf("keys %q, grants %q, logins %q", keys, grants, logins)
	}
}

// The use of a key is recorded at most once per minute, and ReadKey reports whether it was recorded
// within the last minute.
func TestKeyUse(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.key("one", 0)
	noted := func() bool {
		t.Helper()
		s, err := b.ReadKey(t.Context(), "one")
		return must(t, s, err).Used
	}
	note := func() time.Time {
		t.Helper()
		must(t, 0, b.NoteKeyUse(t.Context(), "one"))
		return *b.listed("one").UsedTime
	}
	if b.listed("one").UsedTime != nil || noted() {
		t.Error("a new key counts as used")
	}
	first := note()
	if !noted() || !note().Equal(first) {
		t.Errorf("stored again within a minute: %s", first)
	}
	must(t, 0, exec(b, "UPDATE api_keys SET used_time = used_time - interval '61 s'"))
	if noted() || note().Before(first) {
		t.Error("not stored after a minute")
	}
}
