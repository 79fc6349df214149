package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// These tests use programs of other projects, in other languages. If one is not available, the test
// is skipped, and its output names the program.

// output runs a command in a directory and returns its output. If the command fails, the test
// fails.
func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

// offline reports whether the output of a package manager says that it cannot reach its registry.
func offline(out []byte) bool {
	for _, sign := range []string{
		"ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", // npm
		"no such host", "connection refused", "i/o timeout", "network is unreachable", "module lookup disabled", // go
		"Failed to establish a new connection", // pip
	} {
		if strings.Contains(string(out), sign) {
			return true
		}
	}
	return false
}

// fetched runs a command that needs a registry. It skips the test if the registry cannot be
// reached.
func fetched(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(name); errors.Is(err, exec.ErrNotFound) {
		t.Skipf("%s is not installed", name)
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		if offline(out) {
			t.Skipf("%s cannot reach its registry: %s", name, out)
		}
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// examples/node works with an engine over each protocol.
func TestNodeClient(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("installs packages")
	}
	for _, name := range []string{"node", "npm", "npx"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed", name)
		}
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir() // node_modules and generated files stay out of the tree
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, "examples", "node"))); err != nil {
		t.Fatal(err)
	}
	fetched(t, dir, "npm", "ci", "--no-audit", "--no-fund")
	output(t, dir, "npx", "--no-install", "buf", "generate", filepath.Join(root, "proto"))

	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
	for _, protocol := range []string{"connect", "grpc", "grpc-web"} {
		for script, services := range map[string]string{"shop.js": "4 services", "queue.js": "7 services"} {
			out := output(t, dir, "node", script, d.URL, protocol)
			if !strings.HasPrefix(out, protocol+": ") || !strings.Contains(out, " methods of "+services) {
				t.Errorf("%s %s: %s", script, protocol, out)
			}
		}
	}
	d.Stop(t)
}

// The lock file of examples/node contains no download URLs. With them, it would work only with one
// registry.
func TestNodeLockNamesNoRegistry(t *testing.T) {
	text, err := os.ReadFile("../../examples/node/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"integrity"`) || strings.Contains(string(text), `"resolved"`) || strings.Contains(string(text), "://") {
		t.Error("package-lock.json has download addresses, or no digests: run npm install in the directory of .npmrc")
	}
}

// grpcurl learns the API only from reflection. docs/api.md shows these calls.
func TestGrpcurl(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds grpcurl")
	}
	grpcurl := filepath.Join(t.TempDir(), "grpcurl")
	fetched(t, "../..", "go", "build", "-modfile=tools/grpcurl/go.mod", "-o", grpcurl,
		"github.com/fullstorydev/grpcurl/cmd/grpcurl")
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
	d.Client.OK(t, "namespace", "put", "echo", "--builtin", "echo")
	address := strings.TrimPrefix(d.URL, "http://")
	ask := func(args ...string) string {
		t.Helper()
		return output(t, ".", grpcurl, append([]string{"-plaintext"}, args...)...)
	}
	clitest.WantLines(t, ask(address, "list"), "grpc.health.v1.Health", "progressor.v1.InsightService",
		"progressor.v1.NamespaceService", "progressor.v1.ProcessService")
	clitest.WantLines(t, ask(address, "describe", "progressor.v1.ProcessService.Call"),
		"rpc Call ( .progressor.v1.CallRequest ) returns ( .progressor.v1.CallResponse ) {",
		"option (.progressor.v1.needs) = { permission: PERMISSION_PROCESS_CALL, scope: SCOPE_NAMESPACE };")
	clitest.WantLines(t, ask(address, "describe", "progressor.v1.Rejection"), "string reason = 1;")
	clitest.WantLines(t, ask("-d", `{"service":"progressor.v1.ProcessService"}`, address,
		"grpc.health.v1.Health/Check"), `"status": "SERVING"`)
	clitest.WantLines(t, ask("-d",
		`{"namespace":"echo","process_id":"order-1","args":"b25l","metadata":{"tenant":"acme"}}`, address,
		"progressor.v1.ProcessService/Start"),
		`"processId": "order-1"`, `"response": "b25l"`)
	clitest.WantLines(t, ask("-d", `{"namespace":"echo","filter":"metadata.tenant = acme"}`, address,
		"progressor.v1.ProcessService/ListProcesses"),
		`"processId": "order-1"`, `"status": "PROCESS_STATUS_RUNNING"`)
	d.Client.OK(t, "cancel", "echo", "order-1", "--grace", "0s")
	clitest.WantLines(t, ask("-d", `{"namespace":"echo","process_id":"order-1"}`, address,
		"progressor.v1.ProcessService/WatchProcess"),
		`"payload": "b25l"`, `"status": "PROCESS_STATUS_CANCELLED"`)

	// Reflection also describes the details of an error.
	cmd := exec.CommandContext(t.Context(), grpcurl, "-plaintext", "-d", `{"namespace":"echo","process_id":"nobody"}`,
		address, "progressor.v1.ProcessService/GetProcess")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("an unknown process is not reported as an error:\n%s", out)
	}
	clitest.WantLines(t, string(out), "Code: NotFound", "Message: process not found: echo/nobody",
		`"reason": "REASON_PROCESS_NOT_FOUND"`, `"processId": "nobody"`)
	d.Stop(t)
}
