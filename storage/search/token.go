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

// A page token consists of a version, a hash of the list (its namespace, order and filter in
// canonical form), and the key of the last row of the page. It contains no page number, so that
// rows that are added or removed between two requests do not shift the next page.
const (
	tokenVersion = 1
	hashBytes    = 8
	timeBytes    = 8
	headBytes    = 1 + hashBytes + timeBytes
)

func listHash(q Query, order string) []byte {
	h := sha256.New()
	for _, part := range []string{q.Namespace, order, q.Filter.String()} {
		_, _ = h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		_, _ = h.Write([]byte(part))
	}
	return h.Sum(nil)[:hashBytes]
}

func token(q Query, order string, p position) string {
	raw := append([]byte{tokenVersion}, listHash(q, order)...)
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
	if string(raw[1:1+hashBytes]) != string(listHash(q, order)) {
		return position{}, &process.InvalidError{
			Field:   "page_token",
			Message: "belongs to another list: namespace, filter and order_by must not change between pages",
		}
	}
	micros := int64(binary.BigEndian.Uint64(raw[1+hashBytes : headBytes]))
	p := position{at: time.UnixMicro(micros).UTC(), id: string(raw[headBytes:])}
	year := p.at.Year()
	if year < 1 || year > lastYear || !utf8.ValidString(p.id) || strings.ContainsRune(p.id, 0) ||
		len(p.id) > process.MaxProcessIDBytes {
		return position{}, process.InvalidPageToken()
	}
	return p, nil
}
