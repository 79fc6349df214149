package process

import (
	"encoding/binary"
	"math/bits"

	"github.com/google/uuid"
)

// idDigits are the digits of short IDs, in the order in which PostgreSQL compares them.
const idDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// idLength is the length of a short ID: 62^21 is more than 2^122.
const idLength = 21

// ShortID returns a UUID in base 62, without the 6 bits of its version and variant. IDs are short
// because many rows and index entries contain them: about 20 for a job, and a hundred for a run
// with three steps. Short IDs sort in the order of their UUIDs. Short IDs of UUIDv7 sort after the
// textual UUIDv7 that earlier versions generated.
func ShortID(id uuid.UUID) string {
	high, low := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	high = high>>16<<12 | high&0xfff // remove the version
	low = high<<62 | low&(1<<62-1)   // remove the variant
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
