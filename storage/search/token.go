package search

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/progressor-engine/progressor/process"
)

// A page token is the key of the last row that was read, after a hash of the list that it belongs
// to: the namespace, the order and the filter in canonical form. It contains no page number, so
// rows that are added or removed in between shift nothing.
const (
	tokenVersion = 1
	signBytes    = 8
	timeBytes    = 8
	headBytes    = 1 + signBytes + timeBytes
)

func sign(q Query, order string) []byte {
	h := sha256.New()
	for _, part := range []string{q.Namespace, order, q.Filter.String()} {
		_, _ = h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		_, _ = h.Write([]byte(part))
	}
	return h.Sum(nil)[:signBytes]
}

func token(q Query, order string, p position) string {
	raw := append([]byte{tokenVersion}, sign(q, order)...)
	raw = binary.BigEndian.AppendUint64(raw, uint64(p.at.UnixMicro()))
	return base64.RawURLEncoding.EncodeToString(append(raw, p.id...))
}

// parseToken parses a token. It rejects tokens of other lists.
func parseToken(text string, q Query, order string) (position, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	// The decoder ignores line breaks.
	if err != nil || len(raw) < headBytes || raw[0] != tokenVersion || strings.ContainsAny(text, "\r\n") {
		return position{}, process.InvalidPageToken()
	}
	if string(raw[1:1+signBytes]) != string(sign(q, order)) {
		return position{}, &process.InvalidError{
			Field:   "page_token",
			Message: "belongs to another list: namespace, filter and order_by must not change between pages",
		}
	}
	micros := int64(binary.BigEndian.Uint64(raw[1+signBytes : headBytes]))
	p := position{at: time.UnixMicro(micros).UTC(), id: string(raw[headBytes:])}
	year := p.at.Year()
	if year < 1 || year > lastYear || !utf8.ValidString(p.id) || strings.ContainsRune(p.id, 0) ||
		len(p.id) > process.MaxProcessIDBytes {
		return position{}, process.InvalidPageToken()
	}
	return p, nil
}
