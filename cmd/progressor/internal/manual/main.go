package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "manual: set the path of the page, such as docs/cli.md")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "manual:", err)
		os.Exit(1)
	}
}

func write(path string) error {
	text, err := render()
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}
