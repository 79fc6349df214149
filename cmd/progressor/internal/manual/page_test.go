package main

import (
	"os"
	"testing"
)

// docs/cli.md is up to date.
func TestPage(t *testing.T) {
	want, err := render()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/cli.md is out of date: run make generate")
	}
}
