package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// The queries of docs/runbook.md work.
func TestRunbookQueries(t *testing.T) {
	t.Parallel()
	pool := storagetest.Connect(t, storagetest.DSN(t))
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(readPage(t, "docs/runbook.md"), -1)
	if len(blocks) < 5 {
		t.Errorf("only %d queries", len(blocks))
	}
	for _, block := range blocks {
		err := pool.AcquireFunc(t.Context(), func(c *pgxpool.Conn) error {
			_, err := c.Conn().PgConn().Exec(t.Context(), block[1]).ReadAll()
			return err
		})
		if err != nil {
			t.Errorf("%v:\n%s", err, block[1])
		}
	}
}

// The commands of docs/runbook.md exist, with their flags.
func TestRunbookCommands(t *testing.T) {
	t.Parallel()
	parser, err := cli.Main{Commands: newCommands, Stdout: os.Stdout, Stderr: os.Stderr}.Parser()
	if err != nil {
		t.Fatal(err)
	}
	page := strings.Join(strings.Fields(readPage(t, "docs/runbook.md")), " ")
	commands := regexp.MustCompile("`progressor ([a-z][^`]*)`").FindAllStringSubmatch(page, -1)
	if len(commands) < 20 {
		t.Errorf("only %d commands", len(commands))
	}
	for _, command := range commands {
		if !isCommand(parser.Model.Node, command[1]) {
			t.Errorf("there is no command: progressor %s", command[1])
		}
	}
}

// isCommand reports whether a line begins with a command, or a group of commands, and has only
// flags of that command. Arguments begin with a capital letter or a quote.
func isCommand(node *kong.Node, line string) bool {
	arguments := false
	for word := range strings.FieldsSeq(line) {
		if name, isFlag := strings.CutPrefix(word, "--"); isFlag {
			if !slices.ContainsFunc(node.Flags, func(f *kong.Flag) bool { return f.Name == name }) {
				return false
			}
			continue
		}
		first := word[:1]
		if arguments = arguments || first == "'" || first != strings.ToLower(first); arguments {
			continue
		}
		at := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == word })
		if at < 0 {
			return false
		}
		node = node.Children[at]
	}
	return true
}
