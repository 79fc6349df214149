package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// lifetime is how long the logins of these tests are valid.
const lifetime = time.Hour

// login creates a login of a user.
func (b *bench) login(id, name string) {
	b.t.Helper()
	l := storage.NewLogin{
		LoginID: id, Hash: make([]byte, 32), Principal: "user:https://a#" + name, Lifetime: lifetime,
		Groups: []string{"group:x", "group:y z"},
	}
	must(b.t, 0, b.CreateLogin(b.t.Context(), l, process.Actor{Name: l.Principal, Source: "192.0.2.1:1"}))
}

// A login is valid until it expires, is deleted, or has not been used for the idle time. A use is
// recorded at most once per minute, and only with the right secret. The audit records the beginning
// and the deletion of a login.
func TestConsoleLogins(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	by := process.Actor{Name: "user:https://a#alice", Source: "192.0.2.2:2"}
	b.login("one", "alice")
	read := func(idle time.Duration) storage.LoginState {
		t.Helper()
		l, err := b.ReadLogin(t.Context(), "one", make([]byte, 32), idle)
		return must(t, l, err)
	}
	l := read(10 * time.Minute)
	if l.Principal != by.Name || len(l.Hash) != 32 || fmt.Sprint(l.Groups) != "[group:x group:y z]" ||
		l.Left > 10*time.Minute || l.Left < 9*time.Minute {
		t.Errorf("%+v", l)
	}
	if l = read(2 * lifetime); l.Left > lifetime || l.Left < lifetime-time.Minute {
		t.Errorf("valid for %s", l.Left)
	}
	used := func() time.Duration {
		return ask[time.Duration](b, "SELECT statement_timestamp() - used_time FROM console_logins")
	}
	set := func(what string) { must(t, 0, exec(b, "UPDATE console_logins SET "+what)) }
	set("used_time = used_time - interval '20 s'")
	if l = read(10 * time.Minute); l.Left > 10*time.Minute-20*time.Second || used() < 20*time.Second {
		t.Errorf("used 20 s ago: valid for %s", l.Left)
	}
	set("used_time = used_time - interval '41 s'")
	wrong := bytes.Repeat([]byte{1}, 32)
	l, err := b.ReadLogin(t.Context(), "one", wrong, 10*time.Minute)
	if l = must(t, l, err); bytes.Equal(l.Hash, wrong) || used() < time.Minute {
		t.Errorf("with another secret: used %s ago", used())
	}
	if l = read(10 * time.Minute); l.Left < 9*time.Minute+30*time.Second || used() > 30*time.Second {
		t.Errorf("used more than a minute ago: valid for %s, then used %s ago", l.Left, used())
	}
	set("used_time = used_time - interval '10 min'")
	if l = read(10 * time.Minute); l.Left > 0 || used() < 10*time.Minute {
		t.Errorf("not used for 10 minutes: valid for %s", l.Left)
	}
	set("used_time = statement_timestamp(), expire_time = statement_timestamp() - interval '1 s'")
	if l = read(10 * time.Minute); l.Left > 0 {
		t.Errorf("expired: valid for %s", l.Left)
	}
	must(t, 0, b.DeleteLogin(t.Context(), "one", by))
	if err := b.DeleteLogin(t.Context(), "one", by); !errors.Is(err, process.ErrKeyNotFound) {
		t.Errorf("deleted again: %v", err)
	}
	if _, err := b.ReadLogin(t.Context(), "one", make([]byte, 32), lifetime); !errors.Is(err, process.ErrKeyNotFound) {
		t.Errorf("deleted: %v", err)
	}
	equal(t, "audit", ask[string](b, `SELECT string_agg(concat_ws(' ', actor, source, method, subject), '; '
		ORDER BY audit_id) FROM audit WHERE method IN ('Login', 'Logout')`),
		"user:https://a#alice 192.0.2.1:1 Login one; user:https://a#alice 192.0.2.2:2 Logout one")
}

// A user has at most 20 logins. Another login ends the oldest one, but no login of another user.
func TestConsoleLoginsOfAUser(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.login("other", "bob")
	for n := range storage.MaxLogins + 2 {
		b.login(fmt.Sprintf("n%02d", n), "alice")
	}
	equal(t, "logins", ask[string](b, "SELECT string_agg(login_id, ' ' ORDER BY login_id) FROM console_logins"),
		"n02 n03 n04 n05 n06 n07 n08 n09 n10 n11 n12 n13 n14 n15 n16 n17 n18 n19 n20 n21 other")
	equal(t, "audit", b.logouts(), "n00 n01")
}

// logouts returns the logins whose end is in the audit.
func (b *bench) logouts() string {
	b.t.Helper()
	return ask[string](b, `SELECT coalesce(string_agg(subject, ' ' ORDER BY audit_id), '') FROM audit
		WHERE method = 'Logout' AND actor = 'user:https://a#alice' AND source = '192.0.2.1:1'`)
}

// A login replaces the previous login of its browser if the browser knows the secret of that login.
func TestConsoleLoginsOfABrowser(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for n := range storage.MaxLogins {
		b.login(fmt.Sprintf("n%02d", n), "alice")
	}
	create := func(id, former string, hash []byte) {
		t.Helper()
		l := storage.NewLogin{
			LoginID: id, Hash: make([]byte, 32), Principal: "user:https://a#alice", Lifetime: lifetime,
			FormerID: former, FormerHash: hash,
		}
		must(t, 0, b.CreateLogin(t.Context(), l, process.Actor{Name: l.Principal, Source: "192.0.2.1:1"}))
	}
	logins := func() string {
		return ask[string](b, "SELECT string_agg(login_id, ' ' ORDER BY login_id) FROM console_logins")
	}
	create("o1", "n07", make([]byte, 32))
	equal(t, "the former login ends, and no other", logins(),
		"n00 n01 n02 n03 n04 n05 n06 n08 n09 n10 n11 n12 n13 n14 n15 n16 n17 n18 n19 o1")
	equal(t, "audit", b.logouts(), "n07")
	create("o2", "n08", bytes.Repeat([]byte{1}, 32))
	equal(t, "another secret", logins(),
		"n01 n02 n03 n04 n05 n06 n08 n09 n10 n11 n12 n13 n14 n15 n16 n17 n18 n19 o1 o2")
	equal(t, "audit", b.logouts(), "n07 n00")
}

// Logins that have expired are deleted, and others are not.
func TestExpiredLoginsAreDeleted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for n := range 5 {
		b.login(fmt.Sprint("n", n), fmt.Sprint("user", n))
	}
	must(t, 0, exec(b, `UPDATE console_logins SET expire_time = statement_timestamp() - interval '1 s'
		WHERE login_id IN ('n1', 'n3')`))
	more, err := b.ForgetLogins(t.Context())
	if must(t, more, err) {
		t.Error("ForgetLogins reports that there are more")
	}
	equal(t, "logins", ask[string](b, "SELECT string_agg(login_id, ' ' ORDER BY login_id) FROM console_logins"),
		"n0 n2 n4")
}
