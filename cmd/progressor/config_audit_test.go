package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

var method = regexp.MustCompile(`Put\w+`)

// The audit records the changes that a configuration file makes. It records nothing for a start
// that changes nothing.
func TestConfigurationFileIsAudited(t *testing.T) {
	t.Parallel()
	const text = `
namespaces:
  - namespace: play
    processor: {connect: {url: 'http://127.0.0.1:1', headers: {Authorization: Bearer one}}}
templates:
  - {namespace: play, type: order, steps: [{step_id: a, job: {}}]}
`
	dsn := storagetest.DSN(t)
	for _, step := range []struct {
		text string
		want string // the methods of the entries so far, newest first
	}{
		{text, "PutTemplate PutNamespace"},
		{text, "PutTemplate PutNamespace"},
		{strings.Replace(text, "Bearer one", "Bearer two", 1), "PutNamespace PutTemplate PutNamespace"},
		{strings.Replace(text, "order", "pay", 1), "PutTemplate PutNamespace PutNamespace PutTemplate PutNamespace"},
	} {
		d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", dsn, "-c",
			clitest.WriteConfig(t, step.text))
		var methods []string
		for line := range strings.Lines(d.Client.OK(t, "audit", "play")) {
			if strings.Contains(line, "configuration file") {
				methods = append(methods, method.FindString(line))
			}
		}
		if got := strings.Join(methods, " "); got != step.want {
			t.Errorf("%s, want %s", got, step.want)
		}
		d.Stop(t)
	}
}
