package durable

import (
	"errors"
	"fmt"
	"strconv"
)

// EachOption configures Each.
type EachOption func(*eachOptions)

type eachOptions struct{ limit int }

// Limit sets how many items are handled at a time; the default is no limit.
func Limit(n int) EachOption { return func(o *eachOptions) { o.limit = n } }

// Each calls f for each item, in branches that run concurrently, and waits for all of them. It
// returns the values in the order of the items, and the joined errors (see errors.Join). The names
// in a branch have the scope of its item, such as "parcel[1]/label". Steps of several branches that
// are ready at the same time run in parallel, in one task.
//
// A branch must use only its own Ctx. Branches must not share variables that one of them changes,
// because a replay can run the branches in another order.
func Each[Item, Out any](
	ctx Ctx, name string, items []Item, f func(ctx Ctx, item Item) (Out, error), opts ...EachOption,
) ([]Out, error) {
	b := ctx.branch
	full := b.name(kindEach, name)
	o := eachOptions{limit: len(items)}
	for _, opt := range opts {
		opt(&o)
	}
	if o.limit < 1 && len(items) > 0 {
		b.owner.misuse("Limit of %s must be at least 1", full)
	}
	b.verify()
	values, errs := make([]Out, len(items)), make([]error, len(items))
	running, left := 0, len(items)
	for i, item := range items {
		scope := full + "[" + strconv.Itoa(i) + "]"
		child := b.owner.newBranch(scope+"/", func(child *branch) {
			running++
			values[i], errs[i] = f(Ctx{child}, item)
			running--
			left--
		})
		child.wait = &wait{ready: func() bool { return running < o.limit }}
	}
	b.await(&wait{ready: func() bool { return left == 0 }})
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("%s[%d]: %w", full, i, err)
		}
	}
	return values, errors.Join(errs...)
}

// kindEach is the kind under which the names of Each are counted. The journal has no entries of
// this kind.
const kindEach = "each"
