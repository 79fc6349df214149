package signature

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
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
	// Standard Webhooks demands keys of this size.
	minKeyBytes = 24
	maxKeyBytes = 64
)

// Tolerance is the maximum difference between webhook-timestamp and the receiver's clock. A request
// that was recorded cannot be sent again later.
const Tolerance = 5 * time.Minute

// Key is a key that sender and receiver share. Its format does not show it.
type Key struct{ bytes []byte }

// String returns a text without the key.
func (Key) String() string { return "signature.Key" }

// GoString returns a text without the key.
func (k Key) GoString() string { return k.String() }

// ParseKey returns the key of a text such as the output of echo whsec_$(openssl rand -base64 32).
// The error does not contain the text.
func ParseKey(text string) (Key, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, secretPrefix))
	if err != nil || !strings.HasPrefix(text, secretPrefix) || len(key) < minKeyBytes || len(key) > maxKeyBytes {
		return Key{}, fmt.Errorf("must be %s and %d to %d bytes in base64, such as the output of echo "+
			"%s$(openssl rand -base64 32)", secretPrefix, minKeyBytes, maxKeyBytes, secretPrefix)
	}
	return Key{key}, nil
}

func (k Key) sign(id, timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, k.bytes)
	_, _ = io.WriteString(mac, id+"."+timestamp+".") // a hash never returns an error
	mac.Write(body)
	return mac.Sum(nil)
}

// Escape returns a text for a part of an ID: without dots, spaces and characters beyond ASCII.
func Escape(text string) string { return strings.ReplaceAll(url.QueryEscape(text), ".", "%2E") }

// Sign sets the headers of Standard Webhooks. A request has a signature of each key, so that a key
// can be replaced without a rejected request. id must not contain a dot.
func Sign(header http.Header, id string, at time.Time, body []byte, keys ...Key) {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, len(keys))
	for n, key := range keys {
		signatures[n] = version + base64.StdEncoding.EncodeToString(key.sign(id, timestamp, body))
	}
	header.Set(HeaderID, id)
	header.Set(HeaderTimestamp, timestamp)
	if len(keys) > 0 {
		header.Set(HeaderSignature, strings.Join(signatures, " "))
	}
}

// Verify returns an error unless one of the keys has signed the request, and its timestamp differs
// from now by at most Tolerance.
func Verify(header http.Header, body []byte, now time.Time, keys ...Key) error {
	if err := checkHeader(header, now); err != nil {
		return err
	}
	valid := make([][]byte, 0, len(keys))
	for _, key := range keys {
		if len(key.bytes) >= minKeyBytes { // not the zero Key, which is not secret
			valid = append(valid, key.sign(header.Get(HeaderID), header.Get(HeaderTimestamp), body))
		}
	}
	for _, text := range strings.Fields(header.Get(HeaderSignature)) {
		encoded, ok := strings.CutPrefix(text, version)
		got, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil {
			continue // a signature of another version
		}
		for _, want := range valid {
			if hmac.Equal(got, want) {
				return nil
			}
		}
	}
	return errors.New("the request has no signature of a known key")
}

// checkHeader checks what can be checked without the body.
func checkHeader(header http.Header, now time.Time) error {
	id, timestamp, signatures := header.Get(HeaderID), header.Get(HeaderTimestamp), header.Get(HeaderSignature)
	if id == "" || timestamp == "" || signatures == "" {
		return fmt.Errorf("the request is not signed: it needs the headers %s, %s and %s", HeaderID, HeaderTimestamp,
			HeaderSignature)
	}
	// With a dot, the ID could contain the timestamp of another request.
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

// Handler returns a handler that passes only signed requests to next. It responds with 401 to
// others, and with 413 to those with a body of more than maxBytes, because it holds the body in
// memory. Give it the old and the new key while a key is replaced. Use it in
// processor.WithMiddleware.
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
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}
