package secrets

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/progressor-engine/progressor/storage"
)

// sealedPrefix begins a sealed value: ${sealed:KEY:BASE64}.
const sealedPrefix = "${sealed:"

// DatabaseKey is the ID of the key in the database.
const DatabaseKey = "database"

// key encrypts with AES-256-GCM.
type key struct {
	id    string // identifies the key in sealed values
	aead  cipher.AEAD
	nonce []byte // key of the HMAC that derives nonces
	mac   []byte // key of MAC
}

// masterKey returns a key of the file of master keys. Its ID is derived from it.
func masterKey(secret []byte) (*key, error) {
	return newKey(secret, hex.EncodeToString(derive(secret, "id")[:6]))
}

func newKey(secret []byte, id string) (*key, error) {
	block, err := aes.NewCipher(derive(secret, "encryption"))
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return &key{id: id, aead: aead, nonce: derive(secret, "nonce"), mac: derive(secret, "mac")}, nil
}

func derive(secret []byte, purpose string) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("progressor " + purpose))
	return mac.Sum(nil)
}

// seal encrypts a value for one place. The nonce is derived from the value and the place. Therefore
// the same value in the same place has the same sealed form, and storing a configuration again does
// not change it.
func (k *key) seal(place, value string) string {
	mac := hmac.New(sha256.New, k.nonce)
	fmt.Fprintf(mac, "%d %s%s", len(place), place, value)
	nonce := mac.Sum(nil)[:k.aead.NonceSize()]
	sealed := k.aead.Seal(nonce, nonce, []byte(value), []byte(place))
	return sealedPrefix + k.id + ":" + base64.RawURLEncoding.EncodeToString(sealed) + "}"
}

// sum returns the MAC of a message.
func (k *key) sum(message string) []byte {
	mac := hmac.New(sha256.New, k.mac)
	mac.Write([]byte(message))
	return mac.Sum(nil)[:MACBytes]
}

// UnusableError reports why a value cannot be used, for example because its secret does not exist.
type UnusableError struct{ message string }

func unusable(format string, args ...any) error { return &UnusableError{fmt.Sprintf(format, args...)} }

func (e *UnusableError) Error() string { return e.message }

var errNotOpened = unusable("the stored value cannot be decrypted: put it again")

// open decrypts the base64 of a sealed value. It fails if the value was sealed for another place.
func (k *key) open(place, text string) (string, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(sealed) < k.aead.NonceSize() {
		return "", errNotOpened
	}
	nonce, sealed := sealed[:k.aead.NonceSize()], sealed[k.aead.NonceSize():]
	value, err := k.aead.Open(nil, nonce, sealed, []byte(place))
	if err != nil {
		return "", errNotOpened
	}
	return string(value), nil
}

// cutSealed splits a sealed value into the ID of its key and its base64. It returns false for a
// value that is not sealed.
func cutSealed(value string) (id, text string, ok bool) {
	inner, ok := strings.CutPrefix(value, sealedPrefix)
	if !ok {
		return "", "", false
	}
	id, text, _ = strings.Cut(strings.TrimSuffix(inner, "}"), ":")
	return id, text, true
}

// othersAccess contains the permissions that a file of master keys must not grant. Other users must
// have no access. The group may only read the file, because Kubernetes gives a Secret to the group
// of the engine.
const othersAccess fs.FileMode = 0o037

// ReadMasterKeys reads a file of master keys, each 32 bytes in base64, one per line. The first key
// encrypts, and all keys decrypt.
func ReadMasterKeys(path string) ([][]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&othersAccess != 0 {
		return nil, fmt.Errorf("%s: other users must have no access to it (mode %04o): run chmod 600 %[1]s", path, mode)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	const generate = "the output of openssl rand -base64 32"
	var keys [][]byte
	for n, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		secret, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(secret) != storage.SealKeyBytes {
			return nil, fmt.Errorf("%s: line %d must be %d bytes in base64, such as %s", path, n+1,
				storage.SealKeyBytes, generate)
		}
		keys = append(keys, secret)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s: must have a key: write %s to it", path, generate)
	}
	return keys, nil
}
