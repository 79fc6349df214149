package durable

import (
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Now returns the time of the first run of this line, from the clock of the processor.
func Now(ctx Ctx, name string) time.Time {
	return value(ctx, name, func() time.Time { return time.Now().UTC().Round(0) })
}

// UUID returns a random UUID (version 4), always the same one for this name.
func UUID(ctx Ctx, name string) string {
	return value(ctx, name, uuid.NewString)
}

// Rand returns a random number from 0 to n-1, always the same one for this name. It is not suited
// for secrets. It panics if n is less than 1.
func Rand(ctx Ctx, name string, n int) int {
	return value(ctx, name, func() int { return rand.IntN(n) })
}

// value returns a recorded value, or records one. This needs no additional task: the next result
// stores the value, before any step that could depend on it runs.
func value[T any](ctx Ctx, name string, first func() T) T {
	b := ctx.branch
	full := b.name(kindValue, name)
	e, ok := b.owner.journal.find(kindValue, full)
	if !ok {
		v := first()
		text, err := encode(v)
		if err != nil {
			b.owner.misuse("the value %s %s", full, err)
		}
		b.record(entry{Kind: kindValue, Name: full, Value: text})
		return v
	}
	return decode[T](b, "the value "+full, e.Value)
}

// Version returns the version of a change that was current when the function started, from the
// Versions of Func, or 0 if there was none. It is also in the metadata, as versions.NAME.
//
//	if durable.Version(ctx, "fees") >= 2 { … }
func Version(ctx Ctx, name string) int {
	ctx.branch.enter()
	return ctx.branch.owner.journal.start().Versions[name]
}

// Publish sets the state of the process to v as JSON. Clients can read it at any time, without this
// function. It is stored with the next result.
func Publish(ctx Ctx, v any) {
	b := ctx.branch
	b.enter()
	b.verify()
	text, err := encode(v)
	if err != nil {
		b.owner.misuse("the published value %s", err)
	}
	b.owner.effects.published = text
}

// SetMetadata sets fields of the metadata of the process, by which clients can search. A nil value
// removes the field.
func SetMetadata(ctx Ctx, fields map[string]any) {
	b := ctx.branch
	b.enter()
	b.verify()
	merged := b.owner.mergeMetadata(fields)
	if err := checkMetadata(merged); err != nil {
		b.owner.misuse("the metadata cannot be stored: %s", err)
	}
	b.owner.effects.metadata, b.owner.effects.metadataStored = merged, false
}

// checkMetadata returns an error if the engine would not store a result with these fields.
func checkMetadata(fields map[string]any) error {
	response, err := processor.Result().Metadata(fields).Done()
	if err != nil {
		return err
	}
	return processor.Check(progressorv1.TaskType_TASK_TYPE_TIMEOUT, response)
}
