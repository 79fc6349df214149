package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
)

// completeCommand is the first argument that a completion script passes. If the words are quoted
// for a shell, = and the name of the shell follow. The other arguments are the command line so far.
// Its last word is to be completed.
const completeCommand = "__complete"

// exitFiles is the exit code that asks the script to complete file names.
const exitFiles = 3

// completion is a value that can replace the last word.
type completion struct{ value, help string }

// completing is a command line whose last word is missing or incomplete.
type completing struct {
	app   *App
	node  *kong.Node // the selected command
	args  []string   // its arguments so far
	flag  *kong.Flag // the flag whose value is the last word; nil if the last word is not a value
	flags []string   // all flags so far, with their values
	word  string     // the last word
}

// complete prints the values that can replace the last word, one per line, each with a tab and a
// description. The words are quoted for shell, or not quoted if shell is "".
func (a *App) complete(shell string, words []string) int {
	if len(words) == 0 {
		words = []string{""}
	}
	quotes := shells[shell]
	typed := quotes.read(words[len(words)-1])
	for n, word := range words {
		if !quotes.lastOnly {
			words[n] = quotes.read(word).text
		}
	}
	words[len(words)-1] = typed.text
	c := &completing{app: a, node: a.settings.program().Node, word: words[len(words)-1]}
	c.read(words[:len(words)-1])
	all, files := c.completions()
	if files {
		return exitFiles
	}
	for _, one := range all {
		if strings.HasPrefix(one.value, c.word) && !strings.ContainsAny(one.value, "\t\n\r") {
			help, _, _ := strings.Cut(output.OneLine(one.help), ". ")
			if quotes.quote != nil {
				one.value = quotes.quote(one.value, typed)
			}
			fmt.Fprintf(a.Stdout, "%s\t%s\n", one.value, strings.TrimSuffix(help, "."))
		}
	}
	return ExitOK
}

// read reads the complete words of a command line.
func (c *completing) read(words []string) {
	for n := 0; n < len(words); n++ {
		word := words[n]
		name, _, hasValue := strings.Cut(word, "=")
		flag := c.findFlag(name)
		switch {
		case word == "--":
			c.args = append(c.args, words[n+1:]...)
			return
		case flag != nil && !hasValue && !flag.IsBool() && n+1 == len(words) && !isShortWithValue(word):
			c.flag = flag
		case flag != nil && !hasValue && !flag.IsBool() && !isShortWithValue(word):
			n++
			c.flags = append(c.flags, word+"="+words[n])
		case flag != nil || strings.HasPrefix(word, "-") && word != "-":
			c.flags = append(c.flags, word)
		case !c.enter(word):
			c.args = append(c.args, word)
		}
	}
}

// isShortWithValue reports whether a word is a short flag with its value, such as -ojson.
func isShortWithValue(word string) bool {
	return !strings.HasPrefix(word, "--") && len(word) > 2
}

// enter selects the subcommand named word, and reports whether it exists.
func (c *completing) enter(word string) bool {
	if len(c.args) > 0 {
		return false
	}
	for _, child := range c.node.Children {
		if child.Type == kong.CommandNode && (child.Name == word || slices.Contains(child.Aliases, word)) {
			c.node = child
			return true
		}
	}
	if c.node.DefaultCmd != nil {
		c.node = c.node.DefaultCmd
	}
	return false
}

// findFlag returns the flag of a word such as --output or -o, or nil.
func (c *completing) findFlag(word string) *kong.Flag {
	for _, flag := range c.allFlags() {
		alias := slices.ContainsFunc(flag.Aliases, func(a string) bool { return word == "--"+a })
		if word == "--"+flag.Name || alias || flag.Short != 0 && strings.HasPrefix(word, "-"+string(flag.Short)) {
			return flag
		}
	}
	return nil
}

// allFlags returns the flags of the selected command and its parents.
func (c *completing) allFlags() []*kong.Flag {
	var flags []*kong.Flag
	for node := c.node; node != nil; node = node.Parent {
		if node.DefaultCmd != nil {
			flags = append(flags, node.DefaultCmd.Flags...)
		}
		flags = append(flags, node.Flags...)
	}
	return flags
}

// completions returns the values for the last word, or reports that it is the name of a file.
func (c *completing) completions() (all []completion, files bool) {
	name, typed, hasValue := strings.Cut(c.word, "=")
	flag := c.findFlag(name)
	switch {
	case c.flag != nil:
		return c.values(c.flag.Value, "", c.word)
	case strings.HasPrefix(c.word, "--") && hasValue && flag != nil:
		return c.values(flag.Value, name+"=", typed)
	case strings.HasPrefix(c.word, "-"):
		return c.flagNames(), false
	}
	if len(c.args) == 0 {
		for _, child := range c.node.Children {
			if child.Type == kong.CommandNode && !child.Hidden {
				all = append(all, completion{child.Name, child.Help})
			}
		}
	}
	arguments := c.node.Positional
	if c.node.DefaultCmd != nil {
		arguments = c.node.DefaultCmd.Positional
	}
	if at := min(len(c.args), len(arguments)-1); at >= 0 && (at == len(c.args) || arguments[at].IsCumulative()) {
		values, files := c.values(arguments[at], "", c.word)
		return append(all, values...), files
	}
	return all, false
}

func (c *completing) flagNames() (all []completion) {
	for _, flag := range c.allFlags() {
		if flag.Hidden {
			continue
		}
		all = append(all, completion{"--" + flag.Name, FlagHelp(flag.Value)})
		if flag.Tag.Negatable != "" {
			all = append(all, completion{"--no-" + flag.Name, FlagHelp(flag.Value)})
		}
	}
	return all
}

// values returns the values of a flag or an argument, each with a prefix. typed is the beginning of
// the value. If the value is a list, only its last element is completed. The tag complete contains
// the kind of an object, the name of an enum of the API, or a list.
func (c *completing) values(v *kong.Value, prefix, typed string) (all []completion, files bool) {
	if n := strings.LastIndexByte(typed, ','); n >= 0 && v.IsSlice() {
		prefix, typed = prefix+typed[:n+1], typed[n+1:]
	}
	of, shown := v.Tag.Get("complete"), v.Tag.PlaceHolder
	switch {
	case v.Enum != "":
		all = choices(v.EnumSlice())
	case v.Name == "ns":
		all = c.objects("namespace", typed)
	case strings.Contains(of, ","):
		all = choices(strings.Split(of, ","))
	case lookups[of] != nil:
		all = c.objects(of, typed)
	case of != "":
		all = enumNames(of)
	case strings.Contains(shown, "|") && strings.ToLower(shown) == shown:
		all = choices(strings.Split(shown, "|"))
	default:
		kind, _, _ := strings.Cut(shown, "|")
		asFile := strings.HasPrefix(typed, "@") && !strings.HasPrefix(typed, "@@") && strings.Contains(shown, "@FILE")
		return nil, kind == "DIR" || kind == "FILE" || asFile
	}
	for n := range all {
		all[n].value = prefix + all[n].value
	}
	return all, false
}

func choices(values []string) (all []completion) {
	for _, value := range values {
		all = append(all, completion{value, ""})
	}
	return all
}

// enumNames returns the short value names of an API enum.
func enumNames(name string) (all []completion) {
	enum, err := protoregistry.GlobalTypes.FindEnumByName(protoreflect.FullName("progressor.v1." + name))
	if err != nil {
		panic(err) // a mistake in the tag of a flag
	}
	values := enum.Descriptor().Values()
	for n := range values.Len() {
		if number := values.Get(n).Number(); number != 0 {
			all = append(all, completion{strings.ToLower(output.Enum(enum.New(number))), ""})
		}
	}
	return all
}
