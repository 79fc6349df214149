package storage

import (
	"context"
	"slices"
	"testing"
)

// named is an effect whose batch has this name.
type named string

func (named) Bytes() int                                     { return 0 }
func (n named) Batch() string                                { return string(n) }
func (named) Write(context.Context, DB, []BoundEffect) error { return nil }

// early is an effect whose statement runs first.
type early struct{ named }

func (early) Early() {}

// The effects of a flush are written by one statement for each batch, in the order in which the
// batches appear. Early batches come first.
func TestEffectBatches(t *testing.T) {
	t.Parallel()
	var batches effectBatches
	batches.add(&Completion{TaskAttempt: TaskAttempt{TaskID: 1}}, named("a"), named("b"), named("a"))
	batches.add(&Completion{TaskAttempt: TaskAttempt{TaskID: 2}}, early{"c"}, named("b"), early{"c"})
	var names []string
	var tasks [][]int64
	for _, batch := range batches {
		names = append(names, batch.name)
		var taskIDs []int64
		for _, effect := range batch.all {
			taskIDs = append(taskIDs, effect.TaskID)
		}
		tasks = append(tasks, taskIDs)
	}
	if want := []string{"c", "a", "b"}; !slices.Equal(names, want) {
		t.Errorf("batches %q, want %q", names, want)
	}
	if want := [][]int64{{2, 2}, {1, 1}, {1, 2}}; !slices.EqualFunc(tasks, want, slices.Equal) {
		t.Errorf("tasks of the effects %v, want %v", tasks, want)
	}
}
