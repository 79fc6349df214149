package codec

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// KeyBytes is the size of a key of AESGCM.
const KeyBytes = 32

const (
	magic     = "\xffPGR" // no UTF-8 text begins with it
	version   = 1
	saltBytes = 16
	nonceSize = 12
	tagBytes  = 16
)

var keyID = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,64}$`)

// AESGCM is a Codec that encrypts with AES-256-GCM. It has one or more keys, each with an ID. One
// of them is used for encryption, and all of them for decryption.
//
// An encoded payload consists of these parts:
//
//   - the header: the bytes FF 50 47 52, the version 1, the length of the key ID and the key ID
//   - a salt of 16 bytes and a nonce of 12 bytes, both random
//   - the ciphertext and the tag of 16 bytes
//
// The key of GCM is HMAC-SHA256(key, "progressor payload key" + salt). The additional data is the
// header and the purpose. Because each payload has its own key of GCM, one key can encrypt any
// number of payloads.
//
// If Payload.Repeat is set, salt and nonce are derived from it and the content with an HMAC. Equal
// payloads then have equal results, but only for the same Repeat.
type AESGCM struct {
	active string
	keys   map[string]aesKey
}

type aesKey struct {
	secret []byte
	nonce  []byte // key of the HMAC that derives salt and nonce
}

// NewAESGCM returns a codec with keys by ID, each of 32 bytes. The key with the ID active encrypts.
// An ID has 1 to 64 letters, digits, dots, hyphens and underscores. It is stored in the clear with
// each payload.
func NewAESGCM(active string, keys map[string][]byte) (*AESGCM, error) {
	c := &AESGCM{active: active, keys: map[string]aesKey{}}
	for id, secret := range keys {
		switch {
		case !keyID.MatchString(id):
			return nil, fmt.Errorf("key %q: the ID must have 1 to 64 letters, digits, dots, hyphens and underscores",
				id)
		case len(secret) != KeyBytes:
			return nil, fmt.Errorf("key %q: must have %d bytes (got %d)", id, KeyBytes, len(secret))
		}
		secret = bytes.Clone(secret)
		c.keys[id] = aesKey{secret, mac(secret, []byte("progressor payload nonce"))}
	}
	if _, ok := c.keys[active]; !ok {
		return nil, fmt.Errorf("key %q: must be one of the keys, because it encrypts", active)
	}
	return c, nil
}

// ReadAESGCM reads the keys of a codec from a file. A line consists of the ID of a key, a space and
// 32 bytes in base64. The first key encrypts. Empty lines and lines that begin with # are ignored.
func ReadAESGCM(path string) (*AESGCM, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("keys of payloads: %w", err)
	}
	active, keys := "", map[string][]byte{}
	for n, line := range strings.Split(string(text), "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		var secret []byte
		if len(fields) == 2 {
			secret, err = base64.StdEncoding.DecodeString(fields[1])
		}
		if len(fields) != 2 || err != nil || len(secret) != KeyBytes || !keyID.MatchString(fields[0]) {
			return nil, fmt.Errorf("%s: line %d: must be the ID of a key, a space and %d bytes in base64", path, n+1,
				KeyBytes)
		}
		if _, twice := keys[fields[0]]; twice {
			return nil, fmt.Errorf("%s: line %d: another key has the ID %q", path, n+1, fields[0])
		}
		if len(keys) == 0 {
			active = fields[0]
		}
		keys[fields[0]] = secret
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s: must have a key", path)
	}
	return NewAESGCM(active, keys)
}

// Encode encrypts a payload with the active key.
func (c *AESGCM) Encode(_ context.Context, p Payload) ([]byte, error) {
	key := c.keys[c.active]
	header := append([]byte(magic), version, byte(len(c.active)))
	header = append(header, c.active...)
	var start [saltBytes + nonceSize]byte
	if p.Repeat == "" {
		_, _ = rand.Read(start[:]) // never returns an error
	} else {
		place := fmt.Appendf(nil, "%s%d %s%d %s", header, len(p.Purpose), p.Purpose, len(p.Repeat), p.Repeat)
		copy(start[:], mac(key.nonce, place, p.Content))
	}
	aead, err := key.aead(start[:saltBytes])
	if err != nil {
		return nil, err
	}
	encoded := make([]byte, 0, len(header)+len(start)+len(p.Content)+tagBytes)
	encoded = append(append(encoded, header...), start[:]...)
	return aead.Seal(encoded, start[saltBytes:], p.Content, additional(header, p.Purpose)), nil
}

// Decode decrypts a payload with the key that its header names.
func (c *AESGCM) Decode(_ context.Context, p Payload) ([]byte, error) {
	header, id, err := splitHeader(p.Content)
	if err != nil {
		return nil, err
	}
	key, ok := c.keys[id]
	if !ok {
		return nil, fmt.Errorf("%w: %q", ErrUnknownKey, id)
	}
	rest := p.Content[len(header):]
	if len(rest) < saltBytes+nonceSize+tagBytes {
		return nil, fmt.Errorf("%w: it has %d bytes", ErrTruncated, len(p.Content))
	}
	aead, err := key.aead(rest[:saltBytes])
	if err != nil {
		return nil, err
	}
	nonce, sealed := rest[saltBytes:saltBytes+nonceSize], rest[saltBytes+nonceSize:]
	content, err := aead.Open([]byte{}, nonce, sealed, additional(header, p.Purpose))
	if err != nil {
		return nil, fmt.Errorf("%w: key %q, purpose %s", ErrInvalid, id, p.Purpose)
	}
	return content, nil
}

// splitHeader returns the header of an encoded payload and the ID of its key.
func splitHeader(content []byte) (header []byte, id string, err error) {
	rest, ok := bytes.CutPrefix(content, []byte(magic))
	switch {
	case !ok:
		return nil, "", ErrPlain
	case len(rest) < 2:
		return nil, "", fmt.Errorf("%w: it has %d bytes", ErrTruncated, len(content))
	case rest[0] != version:
		return nil, "", fmt.Errorf("%w: it has the version %d, and only %d is known", ErrInvalid, rest[0], version)
	case len(rest) < 2+int(rest[1]):
		return nil, "", fmt.Errorf("%w: it has %d bytes", ErrTruncated, len(content))
	}
	end := len(magic) + 2 + int(rest[1])
	id = string(content[len(magic)+2 : end])
	if !keyID.MatchString(id) {
		return nil, "", fmt.Errorf("%w: the ID of its key is %.80q", ErrInvalid, id)
	}
	return content[:end], id, nil
}

// additional returns the additional data of GCM. The header contains its own length.
func additional(header []byte, purpose Purpose) []byte {
	return append(bytes.Clone(header), purpose...)
}

// aead returns the cipher of one payload.
func (k aesKey) aead(salt []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(mac(k.secret, []byte("progressor payload key"), salt))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func mac(key []byte, parts ...[]byte) []byte {
	m := hmac.New(sha256.New, key)
	for _, part := range parts {
		m.Write(part)
	}
	return m.Sum(nil)
}
