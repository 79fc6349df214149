package secrets

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// table is a table of secrets in memory.
type table struct {
	key   []byte
	rows  map[string][]storage.Secret
	reads int
	err   error
	hangs chan struct{} // if not nil, a read waits until it is closed
}

func (t *table) Key(context.Context) ([]byte, error) { return t.key, t.err }

func (t *table) CreateKey(context.Context) ([]byte, error) {
	if t.key == nil {
		t.key = master(1)
	}
	return t.key, t.err
}

func (t *table) Read(_ context.Context, name string) ([]storage.Secret, error) {
	t.reads++
	if t.hangs != nil {
		<-t.hangs
	}
	return t.rows[name], t.err
}

func newTable() *table {
	return &table{key: bytes.Repeat([]byte{1}, storage.SealKeyBytes), rows: map[string][]storage.Secret{}}
}

// master returns a master key.
func master(b byte) []byte { return bytes.Repeat([]byte{b}, storage.SealKeyBytes) }

func newVault(t *testing.T, stored *table, masterKeys ...[]byte) *Vault {
	t.Helper()
	v, err := New(stored, masterKeys)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// put stores a secret that a vault has encrypted.
func (t *table) put(tt *testing.T, v *Vault, name, namespaces, value string) {
	tt.Helper()
	sealed, err := v.SealSecret(tt.Context(), storage.SecretKey{Name: name, Namespaces: namespaces}, value)
	if err != nil {
		tt.Fatal(err)
	}
	t.rows[name] = append(t.rows[name], storage.Secret{Namespaces: namespaces, Value: sealed})
}

// Headers are encrypted, except for those that are not secret, and can be opened only in the place
// where they were stored. Sealing the same headers again returns the same values.
func TestHeaders(t *testing.T) {
	t.Parallel()
	ctx, v := t.Context(), newVault(t, newTable(), master(2))
	plain := map[string]string{
		"authorization": "Bearer hunter2", "Accept-Language": "en", "X-Key": "hunter2", "X-Empty": "",
		"X-Token": "${secret:token}", "X-Scheme": "Bearer ${secret:token}", "X-Part": "hunter2 ${secret:token}",
	}
	sealed, err := v.SealHeaders(ctx, "shop", plain)
	if err != nil {
		t.Fatal(err)
	}
	again, err := v.SealHeaders(ctx, "shop", plain)
	if err != nil || !maps.Equal(sealed, again) {
		t.Errorf("sealed again: %v, %v; before: %v", again, err, sealed)
	}
	for header, value := range sealed {
		hidden := strings.HasPrefix(value, sealedPrefix)
		if want := strings.Contains(plain[header], "hunter2"); hidden != want || strings.Contains(value, "hunter2") {
			t.Errorf("%s is stored as %s", header, value)
		}
	}
	shown := Masked(sealed)
	for header, value := range plain {
		want := value
		if strings.Contains(value, "hunter2") {
			want = Mask
		}
		if shown[header] != want {
			t.Errorf("%s is shown as %s, want %s", header, shown[header], want)
		}
	}
	only := map[string]string{"authorization": sealed["authorization"]}
	opened, err := v.OpenHeaders(ctx, "shop", only)
	if err != nil || opened["authorization"] != "Bearer hunter2" {
		t.Errorf("opened %v, %v", opened, err)
	}
	for _, c := range []struct{ namespace, header string }{{"shop2", "authorization"}, {"shop", "X-Key"}} {
		opened, err := v.OpenHeaders(ctx, c.namespace, map[string]string{c.header: only["authorization"]})
		if err == nil {
			t.Errorf("in another place: %v", opened)
		}
	}
}

// Master keys can be rotated. If the key of a value is missing, the error names the key and the
// flag, and does not contain the value.
func TestMasterKeys(t *testing.T) {
	t.Parallel()
	ctx, stored := t.Context(), newTable()
	before, rotated := newVault(t, stored, master(2)), newVault(t, stored, master(3), master(2))
	sealed, err := before.SealHeaders(ctx, "shop", map[string]string{"authorization": "hunter2"})
	if err != nil {
		t.Fatal(err)
	}
	if opened, err := rotated.OpenHeaders(ctx, "shop", sealed); err != nil || opened["authorization"] != "hunter2" {
		t.Errorf("after a rotation: %v, %v", opened, err)
	}
	inDatabase, err := newVault(t, stored).SealHeaders(ctx, "shop", map[string]string{"authorization": "hunter2"})
	if err != nil {
		t.Fatal(err)
	}
	if opened, err := before.OpenHeaders(ctx, "shop", inDatabase); err != nil || opened["authorization"] != "hunter2" {
		t.Errorf("encrypted before the master key was set: %v, %v", opened, err)
	}
	for name, v := range map[string]*Vault{"another": newVault(t, stored, master(3)), "none": newVault(t, stored)} {
		_, err := v.OpenHeaders(ctx, "shop", sealed)
		if _, ok := errors.AsType[*UnusableError](err); !ok || strings.Contains(err.Error(), "hunter2") ||
			!strings.Contains(err.Error(), "it was encrypted with the master key "+before.KeyID()) ||
			!strings.Contains(err.Error(), "--secrets.master-key-file") {
			t.Errorf("%s: %v", name, err)
		}
		listed := storage.ListedSecret{Name: "a", Namespaces: "*", KeyID: before.KeyID()}
		if err := v.CheckKey(listed); err == nil || !strings.HasPrefix(err.Error(), "secret a for *: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, id := range []string{before.KeyID(), DatabaseKey} {
		if err := rotated.CheckKey(storage.ListedSecret{KeyID: id}); err != nil {
			t.Error(err)
		}
	}
	stored.key = master(9)
	_, err = newVault(t, stored).OpenHeaders(ctx, "shop", inDatabase)
	if err == nil || !strings.Contains(err.Error(), "put it again") {
		t.Errorf("another key in the database: %v", err)
	}
}

// A key is created in the database only by Load or when a value is encrypted, and only if there are
// no master keys. Decryption creates no key.
func TestKeyInTheDatabaseIsCreated(t *testing.T) {
	t.Parallel()
	ctx, stored := t.Context(), newTable()
	sealed, err := newVault(t, stored).SealHeaders(ctx, "shop", map[string]string{"authorization": "hunter2"})
	if err != nil {
		t.Fatal(err)
	}
	stored.key = nil
	v := newVault(t, stored, master(2))
	if err := v.Load(ctx); err != nil || stored.key != nil {
		t.Errorf("loaded with a master key: %x, %v", stored.key, err)
	}
	for name, v := range map[string]*Vault{"with": v, "without": newVault(t, stored)} {
		_, err := v.OpenHeaders(ctx, "shop", sealed)
		if err == nil || !strings.Contains(err.Error(), "put it again") || stored.key != nil {
			t.Errorf("opened %s a master key: %x, %v", name, stored.key, err)
		}
	}
	if err := newVault(t, stored).Load(ctx); err != nil || stored.key == nil {
		t.Errorf("loaded without a master key: %x, %v", stored.key, err)
	}
	if err := v.Load(ctx); err != nil || v.database == nil {
		t.Errorf("loaded with both keys: %v", err)
	}
}

// If several patterns match a namespace, the namespace uses the secret with the longest pattern.
func TestSecretOfANamespace(t *testing.T) {
	t.Parallel()
	ctx, stored := t.Context(), newTable()
	v := newVault(t, stored)
	for namespaces, value := range map[string]string{"*": "all", "shop/*": "shops", "shop/tea": "tea", "sh*": "sh"} {
		stored.put(t, v, "key", namespaces, value)
	}
	stored.put(t, v, "own", "bank", "bank")
	for namespace, want := range map[string]string{
		"shop/tea": "tea", "shop/teas": "shops", "shopping": "sh", "bank": "all",
	} {
		opened, err := v.OpenHeaders(ctx, namespace, map[string]string{"authorization": "Bearer ${secret:key}"})
		if err != nil || opened["authorization"] != "Bearer "+want {
			t.Errorf("%s uses %v, %v", namespace, opened, err)
		}
	}
	_, err := v.OpenHeaders(ctx, "shop/tea", map[string]string{"authorization": "${secret:own}"})
	if err == nil || err.Error() != "header authorization: there is no secret own for namespace shop/tea: create it "+
		"with progressor secret put" {
		t.Errorf("a secret of another namespace: %v", err)
	}
}

// A secret is read again after 10 s. While the database does not answer, the old secret is used for
// a minute.
func TestCache(t *testing.T) {
	t.Parallel()
	ctx, stored := t.Context(), newTable()
	v, now := newVault(t, stored), time.Unix(1, 0)
	v.now = func() time.Time { return now }
	open := func() (string, error) {
		opened, err := v.OpenHeaders(ctx, "shop", map[string]string{"a": "${secret:key}"})
		return opened["a"], err
	}
	stored.put(t, v, "key", "*", "first")
	for range 3 {
		if value, err := open(); err != nil || value != "first" || stored.reads != 1 {
			t.Fatalf("%q, %v after %d reads", value, err, stored.reads)
		}
	}
	delete(stored.rows, "key")
	stored.put(t, v, "key", "*", "second")
	now = now.Add(CacheTime)
	if value, err := open(); err != nil || value != "second" {
		t.Errorf("after a rotation: %q, %v", value, err)
	}
	stored.err = process.ErrUnavailable
	now = now.Add(staleTime - time.Second)
	if value, err := open(); err != nil || value != "second" {
		t.Errorf("without the database: %q, %v", value, err)
	}
	now = now.Add(time.Second)
	if _, err := open(); !errors.Is(err, process.ErrUnavailable) {
		t.Errorf("a minute later: %v", err)
	}
}

// While a request reads a secret again, the others use the last value.
func TestOneRequestReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stored := t.Context(), newTable()
		v := newVault(t, stored)
		open := func() (string, error) {
			opened, err := v.OpenHeaders(ctx, "shop", map[string]string{"a": "${secret:key}"})
			return opened["a"], err
		}
		stored.put(t, v, "key", "*", "first")
		if value, err := open(); err != nil || value != "first" {
			t.Fatalf("%q, %v", value, err)
		}
		time.Sleep(CacheTime)
		stored.hangs = make(chan struct{})
		ended := make(chan string, 1)
		go func() {
			value, _ := open()
			ended <- value
		}()
		synctest.Wait()
		if value, err := open(); err != nil || value != "first" || stored.reads != 2 {
			t.Errorf("while it is read: %q, %v after %d reads", value, err, stored.reads)
		}
		close(stored.hangs)
		if value := <-ended; value != "first" {
			t.Errorf("after the read: %q", value)
		}
	})
}

// A reference is checked when a configuration is put. A secret that was just put is found.
func TestReferences(t *testing.T) {
	t.Parallel()
	ctx, stored := t.Context(), newTable()
	v := newVault(t, stored)
	headers := map[string]string{"authorization": "Bearer ${secret:key}"}
	err := v.CheckReferences(ctx, "shop", "headers", headers)
	invalid, ok := errors.AsType[*process.InvalidError](err)
	if !ok || invalid.Field != `headers["authorization"]` ||
		!strings.Contains(invalid.Message, "there is no secret key") {
		t.Errorf("a missing secret: %v", err)
	}
	stored.put(t, v, "key", "shop", "x")
	if err := v.CheckReferences(ctx, "shop", "headers", headers); err != nil {
		t.Errorf("a secret that was just put: %v", err)
	}
	stored.err = process.ErrUnavailable
	if err := v.CheckReferences(ctx, "shop", "headers", headers); !errors.Is(err, process.ErrUnavailable) {
		t.Errorf("without the database: %v", err)
	}
	for value, want := range map[string]string{
		"${secret:key":                  "a reference must end with }",
		"${secret:}":                    "where NAME is 1 to 64 characters",
		"${secret:a b}":                 "where NAME is 1 to 64 characters",
		"${secret:a}${secret:b":         "a reference must end with }",
		"x ${sealed:database:AAAA}":     "must not contain ${sealed:",
		"${secret:key}":                 "",
		"Bearer ${secret:a}${secret:b}": "",
	} {
		err := CheckHeaders("headers", map[string]string{"x": value})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", value, err)
		}
	}
}

// A put with the mask keeps the stored value of a header, but not if the requests go to another
// host.
func TestKeepStored(t *testing.T) {
	t.Parallel()
	stored := map[string]string{"Authorization": "${sealed:database:AAAA}"}
	kept := map[string]string{"authorization": Mask, "Accept": Mask, "x": "new"}
	if err := KeepStored("headers", kept, stored, true); err != nil || kept["x"] != "new" || kept["Accept"] != Mask ||
		kept["authorization"] != stored["Authorization"] {
		t.Errorf("kept %v, %v", kept, err)
	}
	for name, c := range map[string]struct {
		stored     map[string]string
		sameTarget bool
		want       string
	}{
		"elsewhere": {stored, false, "keeps the stored value only for the same hosts"},
		"nothing":   {nil, true, "there is none: set the value"},
	} {
		err := KeepStored("headers", map[string]string{"authorization": Mask}, c.stored, c.sameTarget)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Invalid secrets are rejected. The errors do not contain the value.
func TestInvalidSecrets(t *testing.T) {
	t.Parallel()
	v := newVault(t, newTable())
	for _, c := range []struct{ name, namespaces, value, field string }{
		{"a b", "*", "hunter2", "name"}, {"", "*", "hunter2", "name"},
		{strings.Repeat("a", 65), "*", "hunter2", "name"},
		{"a", "*b", "hunter2", "namespaces"}, {"a", "", "hunter2", "namespaces"},
		{"a", "*", "", "value"}, {"a", "*", "hunter2\nx", "value"},
		{"a", "*", "hunter2" + strings.Repeat("x", MaxSecretBytes), "value"},
	} {
		_, err := v.SealSecret(t.Context(), storage.SecretKey{Name: c.name, Namespaces: c.namespaces}, c.value)
		invalid, ok := errors.AsType[*process.InvalidError](err)
		if !ok || invalid.Field != c.field || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q for %q: %v", c.name, c.namespaces, err)
		}
	}
	if _, err := v.SealSecret(t.Context(), storage.SecretKey{Name: strings.Repeat("a", 64), Namespaces: "shop/*"},
		strings.Repeat("x", MaxSecretBytes)); err != nil {
		t.Error(err)
	}
}

// A file of master keys must not be accessible by other users. Errors describe the problem and do
// not contain keys.
func TestMasterKeyFile(t *testing.T) {
	t.Parallel()
	line := base64.StdEncoding.EncodeToString(master(7))
	for _, c := range []struct {
		text string
		mode os.FileMode
		want string // "" if the file is valid
	}{
		{line + "\n", 0o600, ""}, {line, 0o440, ""}, {"\n" + line + "\r\n" + line + "\n", 0o400, ""},
		{line, 0o604, "other users must have no access to it (mode 0604): run chmod 600"},
		{line, 0o660, "other users must have no access to it (mode 0660)"},
		{line + "\nhunter2\n", 0o600, "line 2 must be 32 bytes in base64"},
		{line[:20] + "\n", 0o600, "line 1 must be 32 bytes in base64"},
		{"\n", 0o600, "must have a key: write the output of openssl rand -base64 32 to it"},
	} {
		path := filepath.Join(t.TempDir(), "keys")
		if err := errors.Join(os.WriteFile(path, []byte(c.text), 0o600), os.Chmod(path, c.mode)); err != nil {
			t.Fatal(err)
		}
		keys, err := ReadMasterKeys(path)
		switch {
		case c.want == "" && (err != nil || !bytes.Equal(keys[0], master(7))):
			t.Errorf("%q: %v", c.text, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), line[:10]) || strings.Contains(err.Error(), "hunter2")):
			t.Errorf("%q with mode %o: %v", c.text, c.mode, err)
		}
	}
	if _, err := ReadMasterKeys(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// A MAC is valid only for its message, and only while its key is known.
func TestMAC(t *testing.T) {
	t.Parallel()
	stored := &table{}
	plain, old := newVault(t, stored), newVault(t, stored, master(2))
	is := func(v *Vault, message string, mac []byte) bool {
		t.Helper()
		ok, err := v.IsMAC(t.Context(), message, mac)
		if err != nil {
			t.Error(err)
		}
		return ok
	}
	if is(plain, "a", make([]byte, MACBytes)) || stored.key != nil {
		t.Error("a MAC is valid without a key, or created one")
	}
	byPlain, err := plain.MAC(t.Context(), "a")
	if err != nil || len(byPlain) != MACBytes {
		t.Fatalf("%x, %v", byPlain, err)
	}
	byOld, err := old.MAC(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	rotated := newVault(t, stored, master(3), master(2))
	for name, c := range map[string]struct {
		vault   *Vault
		message string
		mac     []byte
		want    bool
	}{
		"the key of the database": {newVault(t, stored), "a", byPlain, true},
		"another message":         {plain, "b", byPlain, false},
		"no MAC":                  {plain, "a", nil, false},
		"a part of the MAC":       {plain, "a", byPlain[:8], false},
		"another key":             {plain, "a", byOld, false},
		"a replaced key":          {rotated, "a", byOld, true},
	} {
		if got := is(c.vault, c.message, c.mac); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	stored.err = errors.New("no connection")
	if _, err := newVault(t, stored).IsMAC(t.Context(), "a", byPlain); err == nil {
		t.Error("a MAC is checked without the key of the database")
	}
}
