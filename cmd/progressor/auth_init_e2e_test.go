package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// An operator sets up authentication with one command. The engine then accepts the new token, and
// uses the new master key.
func TestAuthInit(t *testing.T) {
	t.Parallel()
	dsn, dir := storagetest.DSN(t), t.TempDir()
	masterKey, token := filepath.Join(dir, "master-key"), filepath.Join(dir, "token")
	program := clitest.Program{Commands: newCommands, Env: map[string]string{"PROGRESSOR_DB_DSN": dsn}}
	none := filepath.Join(dir, "none")
	if r := program.Run(t, "auth", "init", "--dir", none); !strings.Contains(r.Stderr, "no such file or directory") {
		t.Errorf("without the directory: %+v", r)
	}
	out := program.OK(t, "auth", "init", "--dir", dir)
	if !strings.Contains(out, "wrote  "+masterKey) || !strings.Contains(out, "wrote  "+token) {
		t.Errorf("the output is\n%s", out)
	}
	for _, file := range []string{masterKey, token} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", file, info.Mode(), err)
		}
	}
	value := filepath.Join(dir, "value")
	if err := os.WriteFile(value, []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	program.OK(t, "secret", "put", "stripe", "--namespaces", "shop", "--value-file", value,
		"--secrets.master-key-file", masterKey)
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--auth.mode", "required", "--db.dsn", dsn,
		"--secrets.master-key-file", masterKey)
	if r := d.Client.Run(t, "namespace", "list"); r.Code == cli.ExitOK {
		t.Errorf("without a token: %+v", r)
	}
	operator := d.Client
	operator.Env = map[string]string{"PROGRESSOR_ADDRESS": d.URL, "PROGRESSOR_TOKEN_FILE": token}
	if out := operator.OK(t, "whoami"); !strings.HasSuffix(out, "\nroot *\n") {
		t.Errorf("whoami: %q", out)
	}
	operator.OK(t, "namespace", "put", "shop", "--builtin", "echo")

	before, err := os.ReadFile(masterKey)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ args, contains string }{
		{"auth init --dir " + dir, "already has the name operator: use its token, or run progressor key create"},
		{"auth init --name other --dir " + dir, token + ": the file exists: use its token, or remove it"},
		{"auth init --name other --dir " + t.TempDir(), "the database has secrets of another master key"},
		{"auth init --name= --dir " + dir, "--name: must have 1 to 256 bytes (got 0)"},
	} {
		r := program.Run(t, strings.Fields(tt.args)...)
		if r.Code == cli.ExitOK || !strings.Contains(r.Stderr, tt.contains) {
			t.Errorf("%s: %+v, must contain %q", tt.args, r, tt.contains)
		}
	}
	if err := os.Remove(token); err != nil {
		t.Fatal(err)
	}
	out = program.OK(t, "auth", "init", "--name", "other", "--dir", dir)
	if !strings.Contains(out, "kept   "+masterKey) {
		t.Errorf("the second output is\n%s", out)
	}
	if after, err := os.ReadFile(masterKey); err != nil || string(after) != string(before) {
		t.Errorf("the master key has changed: %v", err)
	}
	if keys := program.OK(t, "key", "list"); strings.Count(keys, "valid") != 2 {
		t.Errorf("keys:\n%s", keys)
	}
}
