package server

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/configfile"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/protoyaml"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const redacted = "REDACTED"

type configCmd struct {
	Print configPrintCmd `cmd:"" help:"Print the configuration of serve, without secrets, with the source of each value."`
	Check configCheckCmd `cmd:"" help:"Check the configuration, without connecting anywhere."`
}

type configPrintCmd struct {
	configFlag
	serveSettings
	cli.OutputFlag
}

func (configPrintCmd) Help() string {
	return `Print shows the configuration that serve would use, as a configuration file. Passwords and headers
are redacted, and secrets of sinks are left out.

    progressor config print -c progressor.yaml
    PROGRESSOR_LISTEN=127.0.0.1:9090 progressor config print`
}

func (c *configPrintCmd) Run(a *cli.App, ctx *kong.Context) error {
	a.WarnUnknown()
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, flag := range ctx.Flags() {
		if !cli.IsSetting(flag.Value) || flag.Name == "output" {
			continue
		}
		value := fmt.Sprint(flag.Target.Interface())
		if flag.Name == "db.dsn" {
			value = redactDSN(value)
		}
		insertSetting(root, strings.Split(configfile.Key(flag.Name), "."), value, a.Source(ctx, flag))
	}
	if err := appendLists(root, a.ConfigFile()); err != nil {
		return err
	}
	if c.JSON() {
		var tree any
		if err := root.Decode(&tree); err != nil {
			return fmt.Errorf("convert the configuration to JSON: %w", err)
		}
		return output.PrintJSON(a.Stdout, tree)
	}
	encoder := yaml.NewEncoder(a.Stdout)
	encoder.SetIndent(2)
	return encoder.Encode(root)
}

// appendLists adds the lists of the file, without secrets.
func appendLists(root *yaml.Node, f *configfile.File) error {
	namespaces, err := listNode(f.Namespaces,
		func(n configfile.Namespace) *progressorv1.Namespace { return redactNamespace(n.Namespace) })
	if err != nil {
		return fmt.Errorf("convert the namespaces to YAML: %w", err)
	}
	templates, err := listNode(f.Templates, func(t configfile.Template) *progressorv1.Template { return t.Template })
	if err != nil {
		return fmt.Errorf("convert the templates to YAML: %w", err)
	}
	crons, err := listNode(f.Crons, func(c configfile.Cron) *progressorv1.Cron { return redactCron(c.Cron) })
	if err != nil {
		return fmt.Errorf("convert the crons to YAML: %w", err)
	}
	sinks, err := listNode(f.Sinks, func(m configfile.Sink) *progressorv1.Sink { return redactSink(m.Sink) })
	if err != nil {
		return fmt.Errorf("convert the sinks to YAML: %w", err)
	}
	for _, list := range []struct {
		key  string
		node *yaml.Node
	}{{"namespaces", namespaces}, {"templates", templates}, {"crons", crons}, {"sinks", sinks}} {
		if len(list.node.Content) > 0 {
			root.Content = append(root.Content, scalar(list.key, ""), list.node)
		}
	}
	return nil
}

func scalar(value, comment string) *yaml.Node {
	node := &yaml.Node{}
	node.SetString(value)
	node.Tag, node.LineComment = "", comment // without a tag, numbers and booleans have no quotes
	if value == "" {
		node.Style = yaml.DoubleQuotedStyle
	}
	return node
}

// insertSetting adds a value to the mapping of its group, and creates that mapping if it is
// missing.
func insertSetting(node *yaml.Node, key []string, value, source string) {
	if len(key) == 1 {
		node.Content = append(node.Content, scalar(key[0], ""), scalar(value, source))
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key[0] {
			insertSetting(node.Content[i+1], key[1:], value, source)
			return
		}
	}
	group := &yaml.Node{Kind: yaml.MappingNode}
	node.Content = append(node.Content, scalar(key[0], ""), group)
	insertSetting(group, key[1:], value, source)
}

// listNode converts messages without their secrets to a list of the configuration file.
func listNode[E any, M proto.Message](elements []E, redact func(E) M) (*yaml.Node, error) {
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, e := range elements {
		text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(redact(e))
		if err != nil {
			return nil, err
		}
		node, err := protoyaml.Parse(text)
		if err != nil {
			return nil, err
		}
		blockStyle(node)
		list.Content = append(list.Content, node)
	}
	return list, nil
}

// blockStyle formats a node that was read from JSON in the usual style of YAML.
func blockStyle(node *yaml.Node) {
	node.Style = 0
	for _, child := range node.Content {
		blockStyle(child)
	}
}

// redactNamespace hides the headers of a processor, because they may contain tokens.
func redactNamespace(ns *progressorv1.Namespace) *progressorv1.Namespace {
	ns = proto.CloneOf(ns)
	for name := range ns.GetProcessor().GetConnect().GetHeaders() {
		ns.Processor.GetConnect().Headers[name] = redacted
	}
	if p := ns.GetProcessor().GetConnect(); p != nil {
		p.Url = redactURL(p.GetUrl())
		for n, text := range p.GetMoreUrls() {
			p.MoreUrls[n] = redactURL(text)
		}
	}
	return ns
}

// redactURL hides the password of a URL.
func redactURL(text string) string {
	if u, err := url.Parse(text); err == nil && u.User != nil {
		return u.Redacted()
	}
	return text
}

var (
	// dsnPassword matches a password in a connection string of key=value pairs. A backslash escapes
	// the next character, even a space.
	dsnPassword = regexp.MustCompile(`(?i)\b(password|sslpassword)(\s*=\s*)('(?:[^'\\]|\\.)*'|(?:\\.|[^\s\\])+)`)
	// passwordBegin matches the beginning of a password in a connection string that cannot be
	// parsed.
	passwordBegin = regexp.MustCompile(`(?i)password\s*=`)
)

// redactDSN hides the passwords of a connection string, which is a URL or has key=value pairs.
func redactDSN(dsn string) string {
	if scheme, rest, ok := strings.Cut(dsn, "://"); ok && !strings.ContainsAny(scheme, "= ") {
		return scheme + "://" + redactUser(redactQuery(rest))
	}
	if _, err := pgxpool.ParseConfig(dsn); err != nil {
		// The end of the password cannot be found.
		if begin := passwordBegin.FindStringIndex(dsn); begin != nil {
			return dsn[:begin[1]] + redacted
		}
	}
	return dsnPassword.ReplaceAllString(dsn, "${1}${2}"+redacted)
}

// redactUser hides the password in the user information of a URL without its scheme.
func redactUser(rest string) string {
	authority := rest
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority = rest[:i]
	}
	// The last @ of the authority ends the user information. A later @ usually belongs to a path or
	// a parameter. But if the password contains an unescaped slash, the @ comes after it. So if
	// there is a colon, use the last @ of the complete URL.
	at := strings.LastIndex(authority, "@")
	if at < 0 {
		at = strings.LastIndex(rest, "@")
	}
	if at >= 0 {
		if user, _, has := strings.Cut(rest[:at], ":"); has {
			return user + ":" + redacted + rest[at:]
		}
	}
	return rest
}

// redactQuery hides the passwords among the parameters of a URL. Their names may be escaped.
func redactQuery(text string) string {
	before, query, ok := strings.Cut(text, "?")
	if !ok {
		return text
	}
	parameters := strings.Split(query, "&")
	for i, parameter := range parameters {
		name, _, _ := strings.Cut(parameter, "=")
		plain, err := url.QueryUnescape(name)
		if err != nil || strings.Contains(strings.ToLower(plain), "password") {
			parameters[i] = name + "=" + redacted
		}
	}
	return before + "?" + strings.Join(parameters, "&")
}

type configCheckCmd struct {
	configFlag
	serveSettings
}

func (configCheckCmd) Help() string {
	return `Check validates the configuration without connecting to anything. The exit code is 2 if it is
invalid. Environment variables that begin with PROGRESSOR_ but are not settings cause a
warning; serve and dev ignore them. A path in --auth.console.url also causes a warning.

    progressor config check -c progressor.yaml`
}

func (c *configCheckCmd) Run(a *cli.App) error {
	if err := c.check(a.ConfigFile()); err != nil {
		return cli.UsageError(err)
	}
	a.WarnUnknown()
	if text := c.Auth.Console.warning(); text != "" {
		fmt.Fprintln(a.Stderr, "progressor: "+text)
	}
	f := a.ConfigFile()
	_, err := fmt.Fprintf(a.Stdout, "the configuration is valid: %s, %s, %s, %s\n",
		output.Counted(len(f.Namespaces), "namespace"), output.Counted(len(f.Crons), "cron"),
		output.Counted(len(f.Templates), "template"), output.Counted(len(f.Sinks), "sink"))
	return err
}
