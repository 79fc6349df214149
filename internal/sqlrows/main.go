package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sqlrows:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: sqlrows DIRECTORY")
	}
	files, err := filepath.Glob(filepath.Join(args[0], "*.sql.go"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s: contains no code of sqlc", args[0])
	}
	var all []statement
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		found, err := statements(text)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, found...)
	}
	code, err := generate(all)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(args[0], "rows.go"), code, 0o644)
}
