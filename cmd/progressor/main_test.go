package main

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/commands"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// newCommands returns all commands for the tests.
var newCommands = commands.New

// testsAtOnce is the minimum number of tests that run at once, unless -parallel is set. It is more
// than the number of processors of a small machine, because most tests wait for other programs.
const testsAtOnce = 4

// programVariable is the environment variable that makes the test binary behave like progressor.
const programVariable = "TEST_PROGRESSOR"

func TestMain(m *testing.M) {
	// progressor bench runs this binary with the command serve, and the tests of terminals set
	// programVariable.
	if len(os.Args) > 1 && os.Args[1] == "serve" || os.Getenv(programVariable) != "" {
		main()
	}
	if kind := os.Getenv(newBuildVariable); kind != "" {
		serveNewBuild(kind)
	}
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		if err := parallel.Value.Set(strconv.Itoa(max(testsAtOnce, runtime.GOMAXPROCS(0)))); err != nil {
			panic(err)
		}
	}
	storagetest.Main(m)
}

// background starts a command line and waits until it is ready and prints its address.
func background(t *testing.T, env map[string]string, args ...string) *clitest.Daemon {
	t.Helper()
	return clitest.Start(t, newCommands, env, args...)
}
