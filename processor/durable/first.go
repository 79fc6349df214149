package durable

import "encoding/json"

// Source is something that First can wait for: a Timer, a Queue or a Future.
type Source interface{ source() source }

type source struct {
	branch   *branch
	id       string                   // "timer NAME", "call NAME" or "child NAME"
	until    entryKey                 // the entry for which it waits
	position func() (at int, ok bool) // its index in the journal
}

// First waits until a timer has fired, a call has arrived or a child has ended, and returns the
// source for which this happened first. The choice is recorded. First does not take the call: Next
// returns it.
//
//	switch durable.First(ctx, "paid-or-late", pays, late) {
//	case pays:
//		pay := pays.Next()
//	case late:
//	}
func First(ctx Ctx, name string, sources ...Source) Source {
	b := ctx.branch
	full := b.name(kindFirst, name)
	if len(sources) == 0 {
		b.owner.misuse("First %s has no sources", full)
	}
	for _, s := range sources {
		if s.source().branch != b {
			b.owner.misuse("First %s: %s belongs to another branch", full, s.source().id)
		}
	}
	if e, ok := b.owner.journal.find(kindFirst, full); ok {
		return b.chosen(full, e, sources)
	}
	var first Source
	var until []entryKey
	for _, s := range sources {
		until = append(until, s.source().until)
	}
	b.await(&wait{until: until, ready: func() bool {
		first = earliest(sources)
		return first != nil
	}})
	id, _ := json.Marshal(first.source().id) // a string can be encoded
	b.record(entry{Kind: kindFirst, Name: full, Value: id})
	return first
}

// chosen returns the source that the journal has recorded.
func (b *branch) chosen(name string, e *entry, sources []Source) Source {
	id := decode[string](b, "the choice of First "+name, e.Value)
	for _, s := range sources {
		if s.source().id == id {
			return s
		}
	}
	b.owner.mismatch("First %s has chosen %s, which is not one of its sources now", name, id)
	return nil
}

// earliest returns the source whose entry is the first in the journal, or nil if there is none.
func earliest(sources []Source) Source {
	var first Source
	at := 0
	for _, s := range sources {
		if i, ok := s.source().position(); ok && (first == nil || i < at) {
			first, at = s, i
		}
	}
	return first
}
