package auth

import (
	"context"
	"errors"
	"slices"
	"testing"
)

func (t *table) NoteKeyUse(_ context.Context, id string) error {
	t.set(func(t *table) { t.uses = append(t.uses, id) })
	return errors.New("the table is read-only") // the error has no effect
}

// The use of a key is recorded once for each state that is read, unless that state shows that a use
// was already recorded. A request with a wrong secret does not count as a use.
func TestUseIsNoted(t *testing.T) {
	t.Parallel()
	a, keys, at := newTest(t, "")
	id, token := keys.add()
	try := func(token string) {
		for range 3 {
			_, _ = a.Authenticate(t.Context(), []string{"Bearer " + token}, address)
		}
		at.now = at.now.Add(CacheTime)
	}
	want := func(what string, uses int) {
		t.Helper()
		if len(keys.uses) != uses || slices.ContainsFunc(keys.uses, func(used string) bool { return used != id }) {
			t.Errorf("%s: noted %q", what, keys.uses)
		}
	}
	_, other := keys.add()
	try("pgr_" + id + secretOf(other))
	want("a wrong secret", 0)
	try(token)
	want("used", 1)
	keys.set(func(k *table) { row := k.rows[id]; row.Used = true; k.rows[id] = row })
	try(token)
	want("noted by another node", 1)
	keys.set(func(k *table) { row := k.rows[id]; row.Used = false; k.rows[id] = row })
	try(token)
	want("used again later", 2)
	keys.set(func(k *table) { row := k.rows[id]; row.Revoked = true; k.rows[id] = row })
	try(token)
	want("revoked", 2)
}
