package secrets

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

const (
	// CacheTime is how long a cached secret is used before it is read again.
	CacheTime = 10 * time.Second
	// staleTime is how long a cached secret is used while the database cannot be read.
	staleTime = time.Minute
	// maxCached limits the number of cached secrets.
	maxCached = 10_000
)

// Store reads secrets, and the key in the database that encrypts them.
type Store interface {
	Key(ctx context.Context) ([]byte, error)       // nil if there is none
	CreateKey(ctx context.Context) ([]byte, error) // creates the key if there is none
	Read(ctx context.Context, name string) ([]storage.Secret, error)
}

// Vault seals and opens values. It is safe for concurrent use.
type Vault struct {
	store Store
	now   func() time.Time
	file  []*key // master keys; the first one seals

	mu       sync.Mutex
	database *key // nil until it is read
	cached   map[string]cachedSecret
}

// cachedSecret contains the rows of the secrets with one name.
type cachedSecret struct {
	rows    []storage.Secret
	read    time.Time
	reading bool // a request is reading the rows again; in the meantime, others use these
}

// New returns a Vault. Without master keys, the Vault uses the key in the database.
func New(store Store, masterKeys [][]byte) (*Vault, error) {
	v := &Vault{store: store, now: time.Now, cached: map[string]cachedSecret{}}
	for _, secret := range masterKeys {
		k, err := masterKey(secret)
		if err != nil {
			return nil, err
		}
		v.file = append(v.file, k)
	}
	return v, nil
}

// sealing returns the key with which values are sealed.
func (v *Vault) sealing(ctx context.Context) (*key, error) {
	if len(v.file) > 0 {
		return v.file[0], nil
	}
	return v.ofDatabase(ctx, v.store.CreateKey)
}

// ofDatabase returns the key in the database, or nil if there is none. It calls read if the key is
// not cached.
func (v *Vault) ofDatabase(ctx context.Context, read func(context.Context) ([]byte, error)) (*key, error) {
	v.mu.Lock()
	k := v.database
	v.mu.Unlock()
	if k != nil {
		return k, nil
	}
	secret, err := read(ctx)
	if err != nil || secret == nil {
		return nil, err
	}
	if k, err = newKey(secret, DatabaseKey); err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.database = k
	return k, nil
}

// Open decrypts a value that Seal has encrypted for this place. A value that is not encrypted is
// returned unchanged.
func (v *Vault) Open(ctx context.Context, place, value string) (string, error) {
	id, text, ok := cutSealed(value)
	if !ok {
		return value, nil
	}
	for _, k := range v.file {
		if k.id == id {
			return k.open(place, text)
		}
	}
	if id != DatabaseKey {
		return "", unknownKey(id)
	}
	k, err := v.ofDatabase(ctx, v.store.Key)
	if err != nil {
		return "", err
	}
	if k == nil {
		return "", errNotOpened
	}
	return k.open(place, text)
}

// unknownKey is the error for a value that was encrypted with a key that this program does not
// have.
func unknownKey(id string) error {
	return unusable("it was encrypted with the master key %.20s: add that key to the file of "+
		"--secrets.master-key-file, or put the value again", id)
}

// CheckKey returns an error if a secret cannot be decrypted because its key is not known.
func (v *Vault) CheckKey(s storage.ListedSecret) error {
	if err := v.CheckKeyID(s.KeyID); err != nil {
		return fmt.Errorf("secret %s for %s: %w", s.Name, s.Namespaces, err)
	}
	return nil
}

// CheckKeyID returns an error if the key with this ID is not known.
func (v *Vault) CheckKeyID(id string) error {
	if id == DatabaseKey || slices.ContainsFunc(v.file, func(k *key) bool { return k.id == id }) {
		return nil
	}
	return unknownKey(id)
}

// KeyID returns the ID of the key with which values are sealed.
func (v *Vault) KeyID() string {
	if len(v.file) > 0 {
		return v.file[0].id
	}
	return DatabaseKey
}

// Load reads the key in the database, so that Seal and Open need no connection. A caller in a
// transaction must call it first. If there is neither a key nor a file of keys, Load creates the
// key.
func (v *Vault) Load(ctx context.Context) error {
	if _, err := v.sealing(ctx); err != nil {
		return err
	}
	_, err := v.ofDatabase(ctx, v.store.Key)
	return err
}

// Seal encrypts a value for a place, such as a field of a stored object. A value that consists of a
// reference is returned unchanged.
func (v *Vault) Seal(ctx context.Context, place, value string) (string, error) {
	if onlyReference.MatchString(value) {
		return value, nil
	}
	k, err := v.sealing(ctx)
	if err != nil {
		return "", err
	}
	return k.seal(place, value), nil
}

// MACBytes is the size of a message authentication code in bytes.
const MACBytes = 16

// MAC returns a message authentication code, which cannot be computed without the key of the Vault.
func (v *Vault) MAC(ctx context.Context, message string) ([]byte, error) {
	k, err := v.sealing(ctx)
	if err != nil {
		return nil, err
	}
	return k.sum(message), nil
}

// IsMAC reports whether mac is the MAC of a message with any master key. The key in the database
// counts only if there are no master keys, because everyone who can read the database knows it. A
// MAC of that key therefore becomes invalid when master keys are configured.
func (v *Vault) IsMAC(ctx context.Context, message string, mac []byte) (bool, error) {
	keys := v.file
	if len(keys) == 0 {
		k, err := v.ofDatabase(ctx, v.store.Key)
		if err != nil || k == nil {
			return false, err
		}
		keys = []*key{k}
	}
	return slices.ContainsFunc(keys, func(k *key) bool { return hmac.Equal(mac, k.sum(message)) }), nil
}

func headerPlace(namespace, header string) string {
	return "header\n" + namespace + "\n" + strings.ToLower(header)
}

func secretPlace(k storage.SecretKey) string { return "secret\n" + k.Namespaces + "\n" + k.Name }

// SealHeaders returns headers of a namespace with sealed values. It does not seal references, and
// it keeps each Mask.
func (v *Vault) SealHeaders(
	ctx context.Context, namespace string, headers map[string]string,
) (map[string]string, error) {
	sealed := maps.Clone(headers)
	for header, value := range sealed {
		if value == Mask || !isSecret(header, value) {
			continue
		}
		var err error
		if sealed[header], err = v.Seal(ctx, headerPlace(namespace, header), value); err != nil {
			return nil, err
		}
	}
	return sealed, nil
}

// OpenHeaders returns the stored headers of a namespace in the form in which they are sent. Sealed
// values are decrypted, and references are replaced.
func (v *Vault) OpenHeaders(
	ctx context.Context, namespace string, headers map[string]string,
) (map[string]string, error) {
	opened, err := v.DecryptHeaders(ctx, namespace, headers)
	if err != nil {
		return nil, err
	}
	for header, value := range opened {
		if opened[header], err = v.Resolve(ctx, namespace, value); err != nil {
			return nil, fmt.Errorf("header %s: %w", header, err)
		}
	}
	return opened, nil
}

// DecryptHeaders returns the stored headers of a namespace with decrypted values. It does not
// replace references.
func (v *Vault) DecryptHeaders(
	ctx context.Context, namespace string, headers map[string]string,
) (map[string]string, error) {
	opened := maps.Clone(headers)
	for header, value := range opened {
		var err error
		if opened[header], err = v.Open(ctx, headerPlace(namespace, header), value); err != nil {
			return nil, fmt.Errorf("header %s: %w", header, err)
		}
	}
	return opened, nil
}

// Resolve replaces the references in a value with the secrets of a namespace. References in a
// secret itself are not replaced.
func (v *Vault) Resolve(ctx context.Context, namespace, value string) (string, error) {
	if !strings.Contains(value, referencePrefix) {
		return value, nil
	}
	var failed error
	value = reference.ReplaceAllStringFunc(value, func(found string) string {
		name := reference.FindStringSubmatch(found)[1]
		secret, err := v.secret(ctx, namespace, name)
		if err == nil && isPEM(secret) {
			err = unusable("the secret %s is in PEM, and can only be used as a certificate_secret", name)
		}
		failed = errors.Join(failed, err)
		return secret
	})
	return value, failed
}

// secret returns the value of a secret for a namespace. If several patterns match, the most
// specific one applies.
func (v *Vault) secret(ctx context.Context, namespace, name string) (string, error) {
	rows, err := v.rows(ctx, name)
	if err != nil {
		return "", err
	}
	best := -1
	for n, row := range rows {
		if !process.MatchNamespace(row.Namespaces, namespace) {
			continue
		}
		if best < 0 || row.Namespaces == namespace ||
			rows[best].Namespaces != namespace && len(row.Namespaces) > len(rows[best].Namespaces) {
			best = n
		}
	}
	if best < 0 {
		return "", unusable("there is no secret %s for namespace %s: create it with progressor secret put", name,
			namespace)
	}
	row := rows[best]
	value, err := v.Open(ctx, secretPlace(storage.SecretKey{Name: name, Namespaces: row.Namespaces}), row.Value)
	if err != nil {
		return "", fmt.Errorf("secret %s: %w", name, err)
	}
	return value, nil
}

// rows returns the secrets with one name. They are at most 10 s old. While the database cannot be
// read, or another request reads the secrets, they may be up to a minute old.
func (v *Vault) rows(ctx context.Context, name string) ([]storage.Secret, error) {
	if rows, usable := v.known(name); usable {
		return rows, nil
	}
	rows, err := v.store.Read(ctx, name)
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil {
		last, ok := v.cached[name]
		if !ok || v.now().Sub(last.read) >= staleTime {
			return nil, err
		}
		last.reading = false
		v.cached[name] = last
		return last.rows, nil
	}
	if len(v.cached) >= maxCached {
		clear(v.cached)
	}
	v.cached[name] = cachedSecret{rows: rows, read: v.now()}
	return rows, nil
}

// known returns the cached secrets with one name. If usable is false, the caller must read them.
func (v *Vault) known(name string) (rows []storage.Secret, usable bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	last, ok := v.cached[name]
	age := v.now().Sub(last.read)
	if ok && (age < CacheTime || age < staleTime && last.reading) {
		return last.rows, true
	}
	if ok {
		last.reading = true
		v.cached[name] = last
	}
	return nil, false
}

// ResolveNow is like Resolve, but reads the secrets again, so that it also finds a secret that was
// just put.
func (v *Vault) ResolveNow(ctx context.Context, namespace, value string) (string, error) {
	for _, found := range reference.FindAllStringSubmatch(value, -1) {
		v.forget(found[1])
	}
	return v.Resolve(ctx, namespace, value)
}

// forget removes the secrets of a name from the cache.
func (v *Vault) forget(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.cached, name)
}

// CheckReferences returns an error if a namespace may not use a secret to which headers refer.
// field is the name of the field of the headers.
func (v *Vault) CheckReferences(ctx context.Context, namespace, field string, headers map[string]string) error {
	for header, value := range headers {
		_, err := v.ResolveNow(ctx, namespace, value)
		if _, ok := errors.AsType[*UnusableError](err); ok {
			return invalid(field, header, "%s", err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

const (
	// MaxSecretBytes is the maximum size of a secret, which is also the maximum size of a header.
	MaxSecretBytes = 8192
	// maxPEMBytes is the maximum size of a secret in PEM, which may have several certificates.
	maxPEMBytes = 32 << 10
)

// isPEM reports whether a secret is in PEM, such as a certificate with its key. Only such secrets
// have line breaks.
func isPEM(value string) bool { return strings.HasPrefix(value, "-----BEGIN ") }

// SealSecret validates a secret and returns its sealed value for the table secrets.
func (v *Vault) SealSecret(ctx context.Context, at storage.SecretKey, value string) (string, error) {
	limit, allowed := MaxSecretBytes, "\t"
	if isPEM(value) {
		limit, allowed = maxPEMBytes, "\t\r\n"
	}
	switch {
	case !name.MatchString(at.Name):
		return "", &process.InvalidError{
			Field: "name", Message: "must be 1 to 64 characters of a-z, A-Z, 0-9, _, . and -",
		}
	case !process.ValidPattern(at.Namespaces):
		return "", &process.InvalidError{
			Field:   "namespaces",
			Message: fmt.Sprintf("must be NAME, PREFIX* or *, such as shop/* (got %.200q)", at.Namespaces),
		}
	case value == "" || len(value) > limit:
		return "", &process.InvalidError{
			Field: "value", Message: fmt.Sprintf("must have 1 to %d bytes (got %d)", limit, len(value)),
		}
	case strings.ContainsFunc(value, func(r rune) bool {
		return r < ' ' && !strings.ContainsRune(allowed, r) || r == 0x7f
	}):
		return "", &process.InvalidError{
			Field: "value", Message: "must not contain control characters, such as line breaks, except in PEM",
		}
	}
	k, err := v.sealing(ctx)
	if err != nil {
		return "", err
	}
	return k.seal(secretPlace(at), value), nil
}
