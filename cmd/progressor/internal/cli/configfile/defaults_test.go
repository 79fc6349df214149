package configfile

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/protoyaml"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// The defaults of a file apply to the fields that its namespaces do not set, regardless of the
// position of the defaults in the file.
func TestDefaultsOfNamespaces(t *testing.T) {
	file, err := Parse([]byte(`
namespaces:
  - namespace: plain
  - namespace: own
    processor: {pull: {}}
    step-timeout: 500ms
    max_running: 0
    retention: 0s
    retryPolicy: {max_attempts: 3, non_retryable_errors: [b]}
defaults:
  processor: {connect: {url: 'http://a'}}
  stepTimeout: 30s
  max_running: 7
  retention: 720h
  history_mode: none
  retry_policy: {max-attempts: 10, max_interval: 5m, non_retryable_errors: [a, c]}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{`
namespace: plain
processor: {connect: {url: 'http://a'}}
step_timeout: 30s
max_running: 7
retention: 720h
history_mode: none
retry_policy: {max_attempts: 10, max_interval: 5m, non_retryable_errors: [a, c]}
`, `
namespace: own
processor: {pull: {}}
step_timeout: 0.5s
retention: 0s
history_mode: none
retry_policy: {max_attempts: 3, max_interval: 5m, non_retryable_errors: [b]}
`} {
		ns := &progressorv1.Namespace{}
		if err := protoyaml.Unmarshal([]byte(want), ns); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(ns, file.Namespaces[i].Namespace, protocmp.Transform()); diff != "" {
			t.Errorf("namespace (-want +got):\n%s", diff)
		}
	}
}
