package bench

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/progressor-engine/progressor/storage/storagetest"
)

// TestMain lets the bench spawn the test binary: it starts its own program as `bench --role ROLE`.
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
