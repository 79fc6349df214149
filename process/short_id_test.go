package process

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// Short IDs have the order of their UUIDs. The UUIDs of this test differ in each bit that is not
// constant.
func TestShortIDsHaveTheOrderOfTheirUUIDs(t *testing.T) {
	ids := []uuid.UUID{uuid.MustParse("00000000-0000-7000-8000-000000000000")}
	for bit := range 128 {
		id := ids[0]
		id[bit/8] |= 0x80 >> (bit % 8)
		if id.Version() == 7 && id.Variant() == uuid.RFC4122 && id != ids[0] {
			ids = append(ids, id)
		}
	}
	if len(ids) != 1+122 {
		t.Fatalf("%d UUIDs", len(ids))
	}
	for range 1000 {
		ids = append(ids, uuid.Must(uuid.NewV7()))
	}
	ids = append(ids, uuid.MustParse("ffffffff-ffff-7fff-bfff-ffffffffffff"))
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return strings.Compare(a.String(), b.String()) })
	for n, id := range ids {
		short := ShortID(id)
		if len(short) != 21 || strings.Trim(short, idDigits) != "" {
			t.Errorf("%s: %q", id, short)
		}
		if n > 0 && ShortID(ids[n-1]) >= short {
			t.Errorf("%s is %s, but %s is %s", ids[n-1], ShortID(ids[n-1]), id, short)
		}
	}
}
