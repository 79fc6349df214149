package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/internal/conformance"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/remote"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/sdk"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// nodeProgram runs a program with the SDK until the test ends. It returns the first line, and the
// output after it.
func nodeProgram(t *testing.T, program string, files ...string) (first string, rest *clitest.LockedBuffer) {
	t.Helper()
	installed := sdkCopy(t, sdk.TypeScript, "typescript", "node")
	dir := t.TempDir()
	for _, file := range append(files, program) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	modules := filepath.Join(dir, "node_modules", "@progressor-engine")
	if err := os.MkdirAll(modules, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(installed, filepath.Join(modules, "sdk")); err != nil {
		t.Fatal(err)
	}
	return startNode(t, dir, filepath.Base(program))
}

// startNode runs a program in a directory, with the environment variable PORT=0.
func startNode(t *testing.T, dir, program string) (first string, rest *clitest.LockedBuffer) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", program)
	cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), "PORT=0"), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the program printed nothing")
	}
	rest, first = &clitest.LockedBuffer{}, lines.Text()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines.Scan() {
			fmt.Fprintln(rest, lines.Text())
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		_ = cmd.Wait()
	})
	return first, rest
}

// kindsOf returns the kinds and names of the entries in the journal of a process.
func kindsOf(t *testing.T, p *progressorv1.Process) (kinds []string) {
	t.Helper()
	for _, event := range p.GetHistory() {
		var e struct{ K, N string }
		if err := json.Unmarshal(event.GetPayload(), &e); err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, e.K+" "+e.N)
	}
	return kinds
}

// The order of examples/node runs as docs/functions.md says.
func TestNodeOrder(t *testing.T) {
	t.Parallel()
	first, effects := nodeProgram(t, "../../examples/node/order.mjs", "../../examples/node/services.mjs")
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
	d.Client.OK(t, "namespace", "put", "orders", "--connect-url", strings.TrimPrefix(first, "orders: "),
		"--encoding", "json")
	d.Client.OK(t, "start", "orders", "A-7", "--args", `{"item":"tea","price":200,"parcels":["cup","pot"]}`)
	if r := d.Client.Run(t, "call", "orders", "A-7", "--args", `{"pay":{"amount":1}}`); r.Code == 0 ||
		!strings.Contains(r.Stderr, "the price is 200") {
		t.Errorf("%+v", r)
	}
	d.Client.OK(t, "call", "orders", "A-7", "--args", `{"pay":{"card":"visa","amount":200}}`)
	c := client.New(d.URL)
	clitest.Eventually(t, "the order waits for the end of the return period", func() error {
		resp, err := c.Process.GetProcess(t.Context(),
			&progressorv1.GetProcessRequest{Namespace: "orders", ProcessId: "A-7"})
		if err != nil {
			return err
		}
		kinds := kindsOf(t, resp.GetProcess())
		slices.Sort(kinds)
		want := "call pay, first paid-or-late, start order, step charge, step parcel[0]/label, step parcel[1]/label, " +
			"step reserve, timer pay-within, timer return-period"
		if got := strings.Join(kinds, ", "); got != want {
			return fmt.Errorf("got %s, want %s", got, want)
		}
		return nil
	})
	clitest.WantLines(t, effects.String(), "reserve tea", "charge visa", "label cup", "label pot")
}

// docs/functions.md contains the function of examples/node/order.mjs unchanged.
func TestNodeOrderInDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/functions.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("../../examples/node/order.mjs")
	if err != nil {
		t.Fatal(err)
	}
	_, function, found := strings.Cut(string(code), "const order = ")
	function, _, ends := strings.Cut(function, "\nconst server")
	if !found || !ends || !strings.Contains(string(page), "const order = "+strings.TrimSpace(function)) {
		t.Error("docs/functions.md does not contain the function of order.mjs")
	}
}

// The SDK for Node passes the conformance kit.
func TestNodeConforms(t *testing.T) {
	t.Parallel()
	dir := sdkCopy(t, sdk.TypeScript, "typescript", "node")
	program := clitest.Program{Commands: newCommands}
	r := program.Run(t, "conformance", "run", "--cmd", "exec node "+filepath.Join(dir, "test", "conformance.mjs"))
	if r.Code != 0 || !strings.Contains(r.Stdout, " 0 of them differ") {
		t.Errorf("%d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	}
}

// If the tasks of a process alternate between Go and Node, its outcome does not change.
func TestNodeAlternatesWithGo(t *testing.T) {
	t.Parallel()
	url, _ := startNode(t, sdkCopy(t, sdk.TypeScript, "typescript", "node"), "test/conformance.mjs")
	inGo, tasks := conformance.Functions(), 0
	err := conformance.Run(t.Context(), time.Minute, func(name string) processor.Processor {
		inNode := dialJSON(t, url+"/"+name)
		return processor.Func(func(
			ctx context.Context, req *progressorv1.ProcessRequest,
		) (*progressorv1.ProcessResponse, error) {
			if tasks++; tasks%2 == 0 {
				return inNode.Process(ctx, req)
			}
			return inGo[name].Process(ctx, req)
		})
	}, func(r conformance.Result) {
		for _, d := range r.Differences {
			if r.Function != "retries" { // the body counts failures separately in each program
				t.Errorf("%s: %+v", r.Scenario, d)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

func dialJSON(t *testing.T, url string) processor.Processor {
	t.Helper()
	p, err := remote.Dial("conformance", &progressorv1.ConnectProcessor{
		Url: url, Encoding: progressorv1.ConnectProcessor_ENCODING_JSON,
	}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// With an engine, a process that the Go function has started continues in Node after a deploy, and
// the other way round.
func TestNodeContinuesGo(t *testing.T) {
	t.Parallel()
	url, _ := startNode(t, sdkCopy(t, sdk.TypeScript, "typescript", "node"), "test/conformance.mjs")
	inGo := httptest.NewServer(conformance.Handler(conformance.Functions()))
	t.Cleanup(inGo.Close)
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
	serve := func(url string) {
		d.Client.OK(t, "namespace", "put", "orders", "--connect-url", url+"/order", "--encoding", "json")
	}
	c := client.New(d.URL)
	has := func(id, entry string) {
		t.Helper()
		clitest.Eventually(t, id+" has the entry "+entry, func() error {
			resp, err := c.Process.GetProcess(t.Context(),
				&progressorv1.GetProcessRequest{Namespace: "orders", ProcessId: id})
			if err != nil {
				return err
			}
			if kinds := kindsOf(t, resp.GetProcess()); !slices.Contains(kinds, entry) {
				return fmt.Errorf("got %s: %s", strings.Join(kinds, ", "), resp.GetProcess().GetDetail())
			}
			return nil
		})
	}
	for id, from := range map[string][2]string{"go-to-node": {inGo.URL, url}, "node-to-go": {url, inGo.URL}} {
		serve(from[0])
		d.Client.OK(t, "start", "orders", id, "--args", `{"item":"tea","price":200,"parcels":["cup","pot"]}`)
		has(id, "timer pay-within")
		serve(from[1])
		d.Client.OK(t, "call", "orders", id, "--args", `{"pay":{"card":"declined","amount":200}}`)
		has(id, "undo reserve")
	}
}

// A program that serves no functions does not pass. A program that ends is reported.
func TestConformanceDifferences(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed")
	}
	program := clitest.Program{Commands: newCommands}
	const empty = `exec node -e 'require("http").createServer((_, to) => to.end("{}"))` +
		`.listen(process.env.PORT, "127.0.0.1")'`
	r := program.Run(t, "conformance", "run", "--cmd", empty, "-o", "json")
	var report struct {
		Different int
		Scenarios []struct {
			Differences []struct{ Expected, Got string }
		}
	}
	if err := json.Unmarshal([]byte(r.Stdout), &report); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	if r.Code != cli.ExitFailed || report.Different != len(report.Scenarios) ||
		!strings.Contains(report.Scenarios[0].Differences[0].Expected, `"k":"start"`) {
		t.Errorf("%+v", r)
	}
	r = program.Run(t, "conformance", "run", "--cmd", "exit 3")
	if r.Code != cli.ExitFailed || !strings.Contains(r.Stderr, "ended before it listened") {
		t.Errorf("%+v", r)
	}
}
