package storage

import (
	"encoding/base64"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/progressor-engine/progressor/process"
)

// CursorText encodes a position in several lanes for clients: the number of the last row of each
// lane. version identifies the kind of rows.
func CursorText(version byte, generation uuid.UUID, lanes map[int64]int64) string {
	b := append([]byte{version}, generation[:]...)
	for _, lane := range slices.Sorted(maps.Keys(lanes)) {
		b = binary.AppendUvarint(b, uint64(lane))
		b = binary.AppendUvarint(b, uint64(lanes[lane]))
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseCursor parses the result of CursorText. field is the field of the request, for errors.
func ParseCursor(version byte, field, text string) (generation uuid.UUID, lanes map[int64]int64, err error) {
	lanes = map[int64]int64{}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil && len(b) > len(generation) && b[0] == version {
		copy(generation[:], b[1:])
		b = b[1+len(generation):]
		for len(b) > 0 {
			lane, n := binary.Uvarint(b)
			number, m := binary.Uvarint(b[max(n, 0):])
			if n <= 0 || m <= 0 {
				break
			}
			lanes[int64(lane)], b = int64(number), b[n+m:]
		}
	}
	if CursorText(version, generation, lanes) != text {
		return generation, lanes, &process.InvalidError{
			Field: field, Message: "must be the cursor of a previous response",
		}
	}
	return generation, lanes, nil
}
