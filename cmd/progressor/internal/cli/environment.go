package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/progressor-engine/progressor/internal/spelling"
)

// UnknownVariable is an environment variable that is named like a setting but is not one. Similar
// is the variable that was probably meant, or "".
type UnknownVariable struct{ Name, Similar string }

// serviceLink matches variables that Kubernetes sets for a service named progressor, such as
// PROGRESSOR_PORT_8080_TCP.
var serviceLink = regexp.MustCompile(
	`^PROGRESSOR_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// unknown returns the variables that are named like settings but do not belong to a flag of the
// program. They are probably misspelled. They are not an error, because two versions of the program
// may share an environment.
func (s *settings) unknown(program *kong.Node) []UnknownVariable {
	if s.environ == nil {
		return nil
	}
	known := variables(program, []string{EnvName("config"), EnvName(colorFlag)})
	settings := make([]string, len(known))
	for n, name := range known {
		settings[n] = strings.TrimPrefix(name, EnvName(""))
	}
	var unknown []UnknownVariable
	for _, entry := range s.environ() {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, EnvName("")) || slices.Contains(known, name) || serviceLink.MatchString(name) {
			continue
		}
		u := UnknownVariable{Name: name}
		if setting := spelling.Similar(strings.TrimPrefix(name, EnvName("")), settings); setting != "" {
			u.Similar = EnvName("") + setting
		}
		unknown = append(unknown, u)
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

// UnknownVariables returns the variables of the environment that are named like settings but do not
// belong to a flag of the program.
func (a *App) UnknownVariables() []UnknownVariable {
	return a.settings.unknown(a.settings.program().Node)
}

// WarnUnknown prints warnings about unknown variables.
func (a *App) WarnUnknown() {
	for _, u := range a.UnknownVariables() {
		text := ""
		if u.Similar != "" {
			text = "; did you mean " + u.Similar + "?"
		}
		fmt.Fprintf(a.Stderr, "progressor: unknown environment variable %s is ignored%s\n", u.Name, text)
	}
}
