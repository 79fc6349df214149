package flows

import (
	"encoding/binary"
	"math/bits"

	"github.com/google/uuid"
)

// idDigits are the digits of generated run IDs, in the order in which PostgreSQL compares them.
const idDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// idLength is the length of a generated run ID: 62^21 is more than 2^122.
const idLength = 21

// newRunID returns an ID for a run whose client has chosen none. About a hundred rows and index
// entries of a run with three steps contain the ID, so it is short.
func newRunID() (string, error) {
	id, err := uuid.NewV7()
	return shortID(id), err
}

// shortID returns the 122 bits of a UUIDv7 that are not constant, in base 62. Short IDs have the
// order of their UUIDs, so that new rows are neighbors in the indexes.
func shortID(id uuid.UUID) string {
	high, low := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	high = high>>16<<12 | high&0xfff // without the version
	low = high<<62 | low&(1<<62-1)   // without the variant
	high >>= 2
	var text [idLength]byte
	for n := range text {
		var digit uint64
		high, digit = bits.Div64(0, high, uint64(len(idDigits)))
		low, digit = bits.Div64(digit, low, uint64(len(idDigits)))
		text[idLength-1-n] = idDigits[digit]
	}
	return string(text[:])
}
