package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
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
	cmd := exec.CommandContext(t.Context(), "node", filepath.Base(program))
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

// docs/functions.md has the function as it is.
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
		t.Error("docs/functions.md does not have the order of order.mjs")
	}
}
