// Package requestid identifies requests in logs, traces and the audit.
package requestid

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
)

// Header is the canonical name of the header that contains the ID of a request. The response has
// the same header.
const Header = "X-Request-Id"

// maxLength is the maximum length of an ID that a client chooses, in bytes.
const maxLength = 128

// From returns the ID of a request with these values of Header: the ID that the client has chosen,
// if it is valid, or else a new one. An ID has 1 to 128 letters, digits and characters of -_.:/+=@,
// so it needs no escaping in headers and logs.
func From(values []string) string {
	if len(values) == 1 && valid(values[0]) {
		return values[0]
	}
	var id [16]byte
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	var text [2 * len(id)]byte
	hex.Encode(text[:], id[:])
	return string(text[:])
}

func valid(id string) bool {
	if id == "" || len(id) > maxLength {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '-', c == '_', c == '.', c == ':', c == '/', c == '+', c == '=', c == '@':
		default:
			return false
		}
	}
	return true
}

// identified is the context of a request. It needs one allocation. With context.WithValue, it would
// need two.
type identified struct {
	context.Context
	id string
}

type key struct{}

// Value returns the context itself for the key of this package.
func (c *identified) Value(k any) any {
	if k == (key{}) {
		return c
	}
	return c.Context.Value(k)
}

// In returns a context with the ID of a request.
func In(ctx context.Context, id string) context.Context { return &identified{ctx, id} }

// Of returns the request ID in ctx, or "".
func Of(ctx context.Context) string {
	if c, ok := ctx.Value(key{}).(*identified); ok {
		return c.id
	}
	return ""
}
