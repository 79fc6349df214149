package main

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
)

// Import is a batch of files.
type Import struct {
	Files []string `json:"files"`
}

// Summary says which files were not imported, and why.
type Summary struct {
	Imported int               `json:"imported"`
	Failed   map[string]string `json:"failed,omitempty"`
}

// newImport returns a function that imports files, five at a time. A file that fails does not stop
// the others. Each step has its own tries, and a crash repeats only the steps that were running.
func newImport(do send) processor.Processor {
	return durable.Func("import", func(ctx durable.Ctx, in Import) (Summary, error) {
		faults, err := durable.Each(ctx, "file", in.Files, func(ctx durable.Ctx, file string) (string, error) {
			return fault(importFile(ctx, do, file)), nil
		}, durable.Limit(5))
		if err != nil {
			return Summary{}, err
		}
		all := Summary{Failed: map[string]string{}}
		for i, fault := range faults {
			if fault == "" {
				all.Imported++
			} else {
				all.Failed[in.Files[i]] = fault
			}
		}
		return all, nil
	})
}

func importFile(ctx durable.Ctx, do send, file string) error {
	for _, name := range []string{"check", "load"} {
		if err := durable.Run(ctx, name, func(c context.Context) error {
			_, err := do(c, name+" "+file)
			return err
		}, durable.Retry(3, time.Second)); err != nil {
			return err
		}
	}
	return nil
}

// fault returns the message of an error, or "".
func fault(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
