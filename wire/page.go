package wire

import (
	"encoding/base64"
	"slices"
	"unicode/utf8"

	"github.com/progressor-engine/progressor/process"
)

// TokenAfter returns the token of a page that begins after a name.
func TokenAfter(name string) string { return base64.RawURLEncoding.EncodeToString([]byte(name)) }

// NameAfter returns the name in the token of a page, or "" for the first page.
func NameAfter(pageToken string) (string, error) {
	name, err := base64.RawURLEncoding.Strict().DecodeString(pageToken)
	if err != nil || !utf8.Valid(name) || slices.Contains(name, 0) {
		return "", process.InvalidPageToken()
	}
	return string(name), nil
}
