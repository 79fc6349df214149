package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// behindClient contains the methods that commands call through a helper of package client, with the
// commands.
var behindClient = map[string]string{
	"Poll": "worker run", "Heartbeat": "worker run", "Complete": "worker run", "CompleteBatch": "worker run",
	"Release": "worker run", "Checkpoint": "worker run", "WatchProcess": "watch",
}

// inDatabase contains the methods whose commands use the database directly, so that they also work
// without an engine.
var inDatabase = map[string]string{
	"ListConsoleLogins": "console-login list", "EndConsoleLogins": "console-login end",
}

// Every method of the API has a command, so that no other client is needed. ProcessorService is an
// exception, because users implement it.
func TestEveryMethodHasACommand(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	err := filepath.WalkDir("internal/cli", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") ||
			strings.Contains(path, "clitest") {
			return err
		}
		content, err := os.ReadFile(path)
		code.Write(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	methods := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("progressor.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			service := f.Services().Get(i)
			if service.Name() == "ProcessorService" {
				continue
			}
			for j := range service.Methods().Len() {
				name := string(service.Methods().Get(j).Name())
				called := regexp.MustCompile(`\.` + name + `(\(\w+,|,|\(\n)`).MatchString(code.String())
				if methods++; called == (behindClient[name]+inDatabase[name] != "") {
					t.Errorf("%s.%s: called by a command: %v, through package client: %q, in the database: %q",
						service.Name(), name, called, behindClient[name], inDatabase[name])
				}
			}
		}
		return true
	})
	if methods < 80 {
		t.Errorf("found only %d methods", methods)
	}
}
