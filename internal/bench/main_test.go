package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/progressor-engine/progressor/storage/storagetest"
)

// TestMain lets the test binary run as `bench --role ROLE`. The bench starts its own program with
// these arguments.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "bench" && os.Args[2] == "--role" {
		env := Environment{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
		if err := (&Command{Role: os.Args[3]}).Run(context.Background(), env); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	storagetest.Main(m)
}

// lockedBuffer collects what the bench and the processes that it starts write at the same time.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
