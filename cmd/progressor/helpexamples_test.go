package main

import (
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/storage/storagetest"
)

// words splits a line as a shell does that knows single quotes.
func words(line string) (list []string) {
	for n, part := range strings.Split(line, "'") {
		if n%2 == 1 {
			list = append(list, part)
			continue
		}
		list = append(list, strings.Fields(part)...)
	}
	return list
}

// The examples of --help for processes and jobs work on the namespaces of progressor dev, in the
// order in which a new user reads them.
func TestHelpExamples(t *testing.T) {
	t.Parallel()
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
	d.client.ok(t, "namespace", "put", "demo", "--builtin", "orders")
	d.client.ok(t, "namespace", "put", "echo", "--builtin", "echo")
	ran := 0
	for _, help := range []string{
		startCmd{}.Help(), callCmd{}.Help(), getCmd{}.Help(), putCmd{}.Help(), suspendCmd{}.Help(), restartHistoryCmd{}.Help(), cancelCmd{}.Help(), removeCmd{}.Help(), bulkStartCmd{}.Help(), errorsCmd{}.Help(),
		jobEnqueueCmd{}.Help(), jobGetCmd{}.Help(), jobUpdateCmd{}.Help(), jobListCmd{}.Help(), jobCancelCmd{}.Help(), jobResultCmd{}.Help(), jobRetryCmd{}.Help(),
	} {
		for line := range strings.Lines(help) {
			line, example := strings.CutPrefix(strings.TrimRight(line, "`\n"), "    progressor ")
			left, right, piped := strings.Cut(line, " | progressor ")
			if !example || strings.ContainsAny(line, "@>") && !strings.Contains(line, "created_time") || strings.Contains(line, ".json") || strings.Contains(line, ".ndjson") {
				continue
			}
			ran++
			out := d.client.ok(t, words(left)...)
			if piped {
				p := d.client
				p.stdin = out
				p.ok(t, words(right)...)
			}
		}
	}
	if ran < 30 {
		t.Errorf("only %d examples", ran)
	}
}
