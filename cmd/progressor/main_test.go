package main

import (
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/commands"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// newCommands returns the commands that the tests run: all of them.
var newCommands = commands.New

func TestMain(m *testing.M) { storagetest.Main(m) }

// background starts a command line and waits until it is ready and prints its address.
func background(t *testing.T, env map[string]string, args ...string) *clitest.Daemon {
	t.Helper()
	return clitest.Start(t, newCommands, env, args...)
}
