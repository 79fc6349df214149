package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// UnknownVariable is an environment variable that is named like a setting but is not one.
type UnknownVariable struct{ Name, Nearest string }

// serviceLink matches variables that Kubernetes sets for a service named progressor, such as
// PROGRESSOR_PORT_8080_TCP.
var serviceLink = regexp.MustCompile(
	`^PROGRESSOR_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// unknown returns the variables that are named like settings but do not belong to a flag of the
// program, probably typing errors. They are not an error, because one environment may serve two
// versions of the program.
func (s *settings) unknown(program *kong.Node) []UnknownVariable {
	if s.environ == nil {
		return nil
	}
	known := variables(program, []string{EnvName("config")})
	var unknown []UnknownVariable
	for _, entry := range s.environ() {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, EnvName("")) || slices.Contains(known, name) || serviceLink.MatchString(name) {
			continue
		}
		nearest := slices.MinFunc(known, func(a, b string) int { return distance(name, a) - distance(name, b) })
		unknown = append(unknown, UnknownVariable{name, nearest})
	}
	slices.SortFunc(unknown, func(a, b UnknownVariable) int { return strings.Compare(a.Name, b.Name) })
	return unknown
}

// variables adds the names of the variables that a command and its subcommands read.
func variables(node *kong.Node, names []string) []string {
	for _, flag := range node.Flags {
		if IsSetting(flag.Value) && !slices.Contains(names, EnvName(flag.Name)) {
			names = append(names, EnvName(flag.Name))
		}
	}
	for _, child := range node.Children {
		names = variables(child, names)
	}
	return names
}

// distance returns the number of letters to insert, delete or replace to turn one name into the
// other.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := diagonal
			if a[i] != b[j] {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// UnknownVariables returns the variables of the environment that are named like settings but do not
// belong to a flag of the program.
func (a *App) UnknownVariables() []UnknownVariable { return a.settings.unknown(a.kong.Model.Node) }

// WarnUnknown prints warnings about unknown variables.
func (a *App) WarnUnknown() {
	for _, u := range a.UnknownVariables() {
		fmt.Fprintf(a.Stderr, "progressor: unknown environment variable %s is ignored; did you mean %s?\n", u.Name,
			u.Nearest)
	}
}
