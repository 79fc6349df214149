package signature

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The headers of a signed request.
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp"
	HeaderSignature = "webhook-signature"
)

const (
	secretPrefix = "whsec_"
	version      = "v1,"
	// Standard Webhooks requires keys of this size.
	minKeyBytes = 24
	maxKeyBytes = 64
	// maxSignatures limits how many signatures of a request are checked. A sender has at most two
	// keys, and checking an Ed25519 signature takes 50 µs.
	maxSignatures = 10
)

// Tolerance is the maximum difference between webhook-timestamp and the receiver's clock. Because
// of it, a recorded request is rejected if it is sent again more than five minutes later.
const Tolerance = 5 * time.Minute

// Key is a key that sender and receiver share, or an Ed25519 private or public key. Its String and
// GoString methods do not reveal it.
type Key struct {
	bytes   []byte             // a shared key, or nil
	private ed25519.PrivateKey // nil for shared and public keys
	public  ed25519.PublicKey  // nil for shared keys
}

// String returns a constant, so that logs do not contain the key.
func (Key) String() string { return "signature.Key" }

// GoString returns a constant, like String.
func (k Key) GoString() string { return k.String() }

// ParseKey parses a key. A text that begins with whsec_ contains a shared key, such as the output
// of echo whsec_$(openssl rand -base64 32). A text that begins with whsk_ or whpk_ contains an
// Ed25519 private or public key. The error does not contain the text.
func ParseKey(text string) (Key, error) {
	switch {
	case strings.HasPrefix(text, privatePrefix):
		return parsePrivate(text)
	case strings.HasPrefix(text, publicPrefix):
		return parsePublic(text)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, secretPrefix))
	if err != nil || !strings.HasPrefix(text, secretPrefix) || len(key) < minKeyBytes || len(key) > maxKeyBytes {
		return Key{}, fmt.Errorf("must be %s followed by %d to %d bytes in base64, such as the output of echo "+
			"%s$(openssl rand -base64 32), or %s followed by an Ed25519 private key", secretPrefix, minKeyBytes,
			maxKeyBytes, secretPrefix, privatePrefix)
	}
	return Key{bytes: key}, nil
}

// mac returns the HMAC of content. The key must be a shared key.
func (k Key) mac(content [][]byte) []byte {
	mac := hmac.New(sha256.New, k.bytes)
	for _, part := range content {
		mac.Write(part)
	}
	return mac.Sum(nil)
}

// sign returns a signature of content, preceded by the version of the signature scheme. It returns
// "" if the key is a public key, which cannot sign.
func (k Key) sign(content [][]byte) string {
	switch {
	case k.private != nil:
		return asymmetricVersion + base64.StdEncoding.EncodeToString(ed25519.Sign(k.private, slices.Concat(content...)))
	case k.public != nil:
		return ""
	}
	return version + base64.StdEncoding.EncodeToString(k.mac(content))
}

// accepts reports whether text is a signature of content, preceded by its version, that was made
// with k or with the private key that belongs to k. It returns false for the zero Key, because
// anyone could sign with it.
func (k Key) accepts(text string, content [][]byte) bool {
	if encoded, ok := strings.CutPrefix(text, asymmetricVersion); ok {
		got, err := base64.StdEncoding.DecodeString(encoded)
		return err == nil && k.public != nil && ed25519.Verify(k.public, slices.Concat(content...), got)
	}
	encoded, ok := strings.CutPrefix(text, version)
	if !ok || len(k.bytes) < minKeyBytes {
		return false
	}
	got, err := base64.StdEncoding.DecodeString(encoded)
	return err == nil && hmac.Equal(got, k.mac(content))
}

// contentOf returns the parts of a request that a signature covers.
func contentOf(id, timestamp string, body []byte) [][]byte {
	return [][]byte{[]byte(id + "." + timestamp + "."), body}
}

// Escape encodes a text for use in the ID of a request. The result consists of ASCII characters and
// has no dots or spaces.
func Escape(text string) string { return strings.ReplaceAll(url.QueryEscape(text), ".", "%2E") }

// Sign sets the headers of Standard Webhooks. It adds one signature for each key: while a key is
// replaced, pass both keys, so that receivers with either of them accept the request. id must not
// contain a dot.
func Sign(header http.Header, id string, at time.Time, body []byte, keys ...Key) {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	var signatures []string
	for _, key := range keys {
		if text := key.sign(contentOf(id, timestamp, body)); text != "" {
			signatures = append(signatures, text)
		}
	}
	header.Set(HeaderID, id)
	header.Set(HeaderTimestamp, timestamp)
	if len(signatures) > 0 {
		header.Set(HeaderSignature, strings.Join(signatures, " "))
	}
}

// Verify returns an error unless the request has a signature that was made with one of the keys,
// and a timestamp that differs from now by at most Tolerance. It checks only the first ten
// signatures.
func Verify(header http.Header, body []byte, now time.Time, keys ...Key) error {
	if err := checkHeader(header, now); err != nil {
		return err
	}
	content := contentOf(header.Get(HeaderID), header.Get(HeaderTimestamp), body)
	signatures := strings.Fields(header.Get(HeaderSignature))
	for _, text := range signatures[:min(len(signatures), maxSignatures)] {
		if slices.ContainsFunc(keys, func(key Key) bool { return key.accepts(text, content) }) {
			return nil
		}
	}
	return errors.New("no signature of the request was made with a known key")
}

// checkHeader checks the headers of a signed request, apart from the signatures themselves, which
// also cover the body.
func checkHeader(header http.Header, now time.Time) error {
	id, timestamp, signatures := header.Get(HeaderID), header.Get(HeaderTimestamp), header.Get(HeaderSignature)
	if id == "" || timestamp == "" || signatures == "" {
		return fmt.Errorf("the request is not signed: it needs the headers %s, %s and %s", HeaderID, HeaderTimestamp,
			HeaderSignature)
	}
	// The signature covers ID.timestamp.body. If an ID could contain a dot, the same signature
	// would also be valid for another ID, timestamp and body.
	if strings.Contains(id, ".") {
		return fmt.Errorf("%s must not contain a dot", HeaderID)
	}
	seconds, err := strconv.ParseUint(timestamp, 10, 40)
	if err != nil {
		return fmt.Errorf("%s must be a number of seconds", HeaderTimestamp)
	}
	if now.Sub(time.Unix(int64(seconds), 0)).Abs() > Tolerance {
		return fmt.Errorf("%s differs by more than %s from the clock of this machine", HeaderTimestamp, Tolerance)
	}
	return nil
}

// Handler returns a handler that passes a request to next only if Verify accepts it. It responds
// with 401 to other requests. It keeps the body in memory, so it responds with 413 if the body has
// more than maxBytes. While you replace a key, pass both the old and the new key. Handler can be
// used in processor.WithMiddleware.
func Handler(next http.Handler, maxBytes int64, keys ...Key) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkHeader(r.Header, time.Now()); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBytes))
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			http.Error(w, fmt.Sprintf("the body has more than %d bytes", maxBytes), http.StatusRequestEntityTooLarge)
			return
		}
		if err != nil {
			http.Error(w, "the body could not be read", http.StatusBadRequest)
			return
		}
		if err := Verify(r.Header, body, time.Now(), keys...); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		r = r.WithContext(r.Context()) // net/http requires that its request keeps the original body
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}
