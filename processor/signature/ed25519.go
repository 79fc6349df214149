package signature

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"strings"
)

// The prefixes of Ed25519 keys, and the version of their signatures.
const (
	privatePrefix     = "whsk_"
	publicPrefix      = "whpk_"
	asymmetricVersion = "v1a,"
)

// CanSign reports whether the key can sign. All keys can, except public keys.
func (k Key) CanSign() bool { return k.private != nil || k.public == nil }

// Public returns the public key of an Ed25519 key as a text. With it, a receiver can check
// signatures, but cannot create them. It returns "" for a shared key.
func (k Key) Public() string {
	if k.public == nil {
		return ""
	}
	return publicPrefix + base64.StdEncoding.EncodeToString(k.public)
}

// parsePrivate parses a private key: the seed, optionally followed by the public key.
func parsePrivate(text string) (Key, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, privatePrefix))
	if err == nil && (len(raw) == ed25519.SeedSize || len(raw) == ed25519.PrivateKeySize) {
		private := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
		public, ok := private.Public().(ed25519.PublicKey)
		if ok && (len(raw) == ed25519.SeedSize || public.Equal(ed25519.PublicKey(raw[ed25519.SeedSize:]))) {
			return Key{private: private, public: public}, nil
		}
	}
	return Key{}, fmt.Errorf("must be %s followed by an Ed25519 private key in base64, such as the output of echo "+
		"%s$(openssl genpkey -algorithm ed25519 -outform DER | tail -c 32 | base64)", privatePrefix, privatePrefix)
}

func parsePublic(text string) (Key, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, publicPrefix))
	if err != nil || len(raw) != ed25519.PublicKeySize {
		return Key{}, fmt.Errorf("must be %s followed by an Ed25519 public key in base64", publicPrefix)
	}
	return Key{public: raw}, nil
}
