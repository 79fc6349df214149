package cli

import (
	"io"
	"strings"
	"testing"
	"time"
)

// The error of a program that ends before it listens contains its exit status, even if it is 0.
func TestProgramEndsBeforeItListens(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"0", "3"} {
		p, err := StartProgram(t.Context(), "exit "+status, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		err = p.Await(t.Context(), time.Minute)
		if err == nil || !strings.HasSuffix(err.Error(), ": exit status "+status) {
			t.Errorf("exit %s: %v", status, err)
		}
		p.Stop()
	}
}
