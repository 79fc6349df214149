package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// unknownVariable is a variable of the environment that looks like a setting, and is none.
type unknownVariable struct{ name, nearest string }

// serviceLink is what Kubernetes sets in every container beside a service that is called progressor, such as PROGRESSOR_PORT_8080_TCP.
var serviceLink = regexp.MustCompile(`^PROGRESSOR_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// unknown are the variables whose names begin as those of settings do and belong to none of a program's flags: typing errors, most likely.
// They are no reason to stop: one environment may serve programs of two versions.
func (s *settings) unknown(program *kong.Node) []unknownVariable {
	if s.environ == nil {
		return nil
	}
	known := variables(program, []string{envName("config")})
	var unknown []unknownVariable
	for _, entry := range s.environ() {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, envName("")) || slices.Contains(known, name) || serviceLink.MatchString(name) {
			continue
		}
		nearest := slices.MinFunc(known, func(a, b string) int { return distance(name, a) - distance(name, b) })
		unknown = append(unknown, unknownVariable{name, nearest})
	}
	slices.SortFunc(unknown, func(a, b unknownVariable) int { return strings.Compare(a.name, b.name) })
	return unknown
}

// variables adds the names of the environment that a command, and those below it, take.
func variables(node *kong.Node, names []string) []string {
	for _, flag := range node.Flags {
		if isSetting(flag.Value) && !slices.Contains(names, envName(flag.Name)) {
			names = append(names, envName(flag.Name))
		}
	}
	for _, child := range node.Children {
		names = variables(child, names)
	}
	return names
}

// distance is how many letters have to be put in, taken out or changed to make one name of the other.
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

// warnUnknown tells a person of them.
func (a *app) warnUnknown() {
	for _, u := range a.settings.unknown(a.kong.Model.Node) {
		fmt.Fprintf(a.Stderr, "progressor: unknown variable %s of the environment is ignored; the nearest is %s\n", u.name, u.nearest)
	}
}
