package codec_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/processor/codec"
)

// key returns a key of 32 equal bytes.
func key(b byte) []byte { return bytes.Repeat([]byte{b}, codec.KeyBytes) }

// newAESGCM returns a codec. The first key encrypts. A key named k2 consists of the byte 2.
func newAESGCM(t *testing.T, ids ...string) *codec.AESGCM {
	t.Helper()
	keys := map[string][]byte{}
	for _, id := range ids {
		keys[id] = key(id[len(id)-1] - '0')
	}
	c, err := codec.NewAESGCM(ids[0], keys)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func encode(t *testing.T, c codec.Codec, p codec.Payload) []byte {
	t.Helper()
	encoded, err := c.Encode(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

func TestAESGCM(t *testing.T) {
	t.Parallel()
	c := newAESGCM(t, "k1")
	for _, content := range [][]byte{{}, []byte("tea"), bytes.Repeat([]byte("tea"), 100_000)} {
		first := encode(t, c, codec.Payload{Content: content, Purpose: codec.State})
		if want := len(content) + 4 + 1 + 1 + 2 + 16 + 12 + 16; len(first) != want {
			t.Errorf("%d bytes became %d, want %d", len(content), len(first), want)
		}
		decoded, err := c.Decode(t.Context(), codec.Payload{Content: first, Purpose: codec.State})
		if err != nil || !bytes.Equal(decoded, content) {
			t.Errorf("decoded %.20q, %v, want %.20q", decoded, err, content)
		}
		again := encode(t, c, codec.Payload{Content: content, Purpose: codec.State})
		if bytes.Equal(first[8:24], again[8:24]) || bytes.Equal(first[24:36], again[24:36]) {
			t.Error("two payloads have the same salt or nonce")
		}
	}
}

// The format does not change, so that every version can read the payloads of all other versions.
func TestAESGCMFormat(t *testing.T) {
	t.Parallel()
	const want = "ff504752" + "01" + "02" + "6b31" +
		"10f614e1120e5bb7818b45463e443476" + "64634fa38f5e6639be824330" + "2778f8" + "c79e13245db12ed9f0e0e0aff8616c47"
	p := codec.Payload{Content: []byte("tea"), Purpose: codec.Event, Repeat: "r"}
	if got := hex.EncodeToString(encode(t, newAESGCM(t, "k1"), p)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// With a Repeat, equal payloads have equal results, and different payloads have different results.
func TestAESGCMRepeat(t *testing.T) {
	t.Parallel()
	c := newAESGCM(t, "k1", "k2")
	p := codec.Payload{Content: []byte("tea"), Purpose: codec.Message, Repeat: "r"}
	want := encode(t, c, p)
	if !bytes.Equal(encode(t, c, p), want) {
		t.Error("equal payloads have different results")
	}
	starts := map[string]string{string(want[8:36]): "the first one"}
	for name, other := range map[string]codec.Payload{
		"content": {Content: []byte("tee"), Purpose: codec.Message, Repeat: "r"},
		"purpose": {Content: []byte("tea"), Purpose: codec.Event, Repeat: "r"},
		"repeat":  {Content: []byte("tea"), Purpose: codec.Message, Repeat: "s"},
		"border":  {Content: []byte("ea"), Purpose: codec.Message, Repeat: "rt"},
		"none":    {Content: []byte("tea"), Purpose: codec.Message},
	} {
		start := string(encode(t, c, other)[8:36])
		if same, found := starts[start]; found {
			t.Errorf("another %s has the salt and the nonce of %s", name, same)
		}
		starts[start] = name
	}
	if other := encode(t, newAESGCM(t, "k2", "k1"), p); starts[string(other[8:36])] != "" {
		t.Error("another key has the same salt and nonce")
	}
}

// Every change of an encoded payload causes an error. So do another purpose, a missing key, and
// another key with the same ID.
func TestAESGCMRejects(t *testing.T) {
	t.Parallel()
	c := newAESGCM(t, "k1", "x.k2")
	encoded := encode(t, c, codec.Payload{Content: []byte("tea"), Purpose: codec.State, Repeat: "r"})
	decode := func(c codec.Codec, content []byte, purpose codec.Purpose) error {
		decoded, err := c.Decode(t.Context(), codec.Payload{Content: content, Purpose: purpose})
		if err != nil && decoded != nil {
			t.Errorf("got %q in addition to %v", decoded, err)
		}
		return err
	}
	for n := range encoded {
		changed := bytes.Clone(encoded)
		changed[n] ^= 1
		want := codec.ErrInvalid
		switch {
		case n < 4:
			want = codec.ErrPlain
		case n == 6 || n == 7: // the key ID
			want = codec.ErrUnknownKey
		}
		if err := decode(c, changed, codec.State); !errors.Is(err, want) {
			t.Errorf("byte %d was changed: %v, want %v", n, err, want)
		}
		want = codec.ErrTruncated
		switch {
		case n < 4:
			want = codec.ErrPlain
		case n >= 8+16+12+16:
			want = codec.ErrInvalid
		}
		if err := decode(c, encoded[:n], codec.State); !errors.Is(err, want) {
			t.Errorf("only %d bytes: %v, want %v", n, err, want)
		}
	}
	other, err := codec.NewAESGCM("k1", map[string][]byte{"k1": key(9)})
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"another purpose": decode(c, encoded, codec.Event),
		"longer":          decode(c, append(bytes.Clone(encoded), 0), codec.State),
		"another key":     decode(other, encoded, codec.State),
	} {
		if !errors.Is(err, codec.ErrInvalid) || !strings.Contains(err.Error(), `key "k1", purpose`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := decode(newAESGCM(t, "k2"), encoded, codec.State); !errors.Is(err, codec.ErrUnknownKey) ||
		err.Error() != `the payload was encoded with an unknown key: "k1"` {
		t.Errorf("a missing key: %v", err)
	}
	if err := decode(c, []byte(`{"a":1}`), codec.State); !errors.Is(err, codec.ErrPlain) {
		t.Errorf("a payload in the clear: %v", err)
	}
}

// After a rotation, old payloads can be decoded, and new payloads use the new key.
func TestAESGCMRotation(t *testing.T) {
	t.Parallel()
	before := newAESGCM(t, "k1")
	old := encode(t, before, codec.Payload{Content: []byte("tea"), Purpose: codec.State})
	after := newAESGCM(t, "k2", "k1")
	if decoded, err := after.Decode(t.Context(), codec.Payload{Content: old, Purpose: codec.State}); err != nil ||
		string(decoded) != "tea" {
		t.Errorf("got %q, %v", decoded, err)
	}
	recent := encode(t, after, codec.Payload{Content: []byte("tea"), Purpose: codec.State})
	if _, err := before.Decode(t.Context(), codec.Payload{Content: recent, Purpose: codec.State}); !errors.Is(err,
		codec.ErrUnknownKey) {
		t.Errorf("without the new key: %v", err)
	}
}

func TestNewAESGCMRejects(t *testing.T) {
	t.Parallel()
	for want, keys := range map[string]map[string][]byte{
		`key "k1": must be one of the keys, because it encrypts`:                             {"k2": key(2)},
		`key "k1": must have 32 bytes (got 31)`:                                              {"k1": key(1)[1:]},
		`key "a b": the ID must have 1 to 64 letters, digits, dots, hyphens and underscores`: {"a b": key(1)},
		`key "": the ID must have 1 to 64 letters, digits, dots, hyphens and underscores`:    {"": key(1)},
	} {
		if _, err := codec.NewAESGCM("k1", keys); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestReadAESGCM(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys")
	first, second := base64.StdEncoding.EncodeToString(key(1)), base64.StdEncoding.EncodeToString(key(2))
	read := func(text string) (*codec.AESGCM, error) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return codec.ReadAESGCM(path)
	}
	c, err := read("# payloads\r\n\nk1 " + first + "\r\n  k2\t" + second)
	if err != nil {
		t.Fatal(err)
	}
	if encoded := encode(t, c, codec.Payload{Content: []byte("tea")}); string(encoded[6:8]) != "k1" {
		t.Errorf("%q encrypts", encoded[6:8])
	}
	old := encode(t, newAESGCM(t, "k2"), codec.Payload{Content: []byte("tea")})
	if _, err := c.Decode(t.Context(), codec.Payload{Content: old}); err != nil {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"":                                 "must have a key",
		"\n#k1 " + first:                   "must have a key",
		first:                              "line 1: must be the ID of a key, a space and 32 bytes in base64",
		"k1 " + first + "\nk2":             "line 2: must be the ID of a key, a space and 32 bytes in base64",
		"k1 " + first[:40]:                 "line 1: must be the ID of a key, a space and 32 bytes in base64",
		"k1 " + first + " x":               "line 1: must be the ID of a key, a space and 32 bytes in base64",
		"k/1 " + first:                     "line 1: must be the ID of a key, a space and 32 bytes in base64",
		"k1 " + first + "\n\nk1 " + second: `line 3: another key has the ID "k1"`,
	} {
		if _, err := read(text); err == nil || !strings.HasPrefix(err.Error(), path+": ") ||
			!strings.HasSuffix(err.Error(), want) || strings.Contains(err.Error(), first[:20]) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if _, err := codec.ReadAESGCM(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
