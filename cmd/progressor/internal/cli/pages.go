package cli

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
)

// PageFlags are the flags of paged lists. The command sets the variable rows, the name of the
// listed items.
type PageFlags struct {
	PageSize  int32  `placeholder:"N" help:"Maximum number of ${rows} per page, at most 1000. Default: 100."`
	PageToken string `placeholder:"TOKEN" help:"Token from the previous page."`
	All       bool   `help:"Print all pages."`
}

// listCommand is a command that embeds OutputFlag and PageFlags.
type listCommand interface {
	JSON() bool
	Pages() PageFlags
}

// Pages returns the flags, for PrintPages.
func (f PageFlags) Pages() PageFlags { return f }

// page is a response with a page of a list.
type page interface {
	proto.Message
	GetNextPageToken() string
}

// PrintPages reads a page with call. With --all, it also reads all following pages. It prints the
// pages together, as JSON or with show.
func PrintPages[Q proto.Message, P page](
	a *App, c listCommand, call func(context.Context, Q) (P, error), req Q, show func(all P) error,
) error {
	flags := c.Pages()
	read := func(token string) (P, error) {
		ctx, cancel := a.Request()
		defer cancel()
		setField(req, "page_size", protoreflect.ValueOfInt32(flags.PageSize))
		setField(req, "page_token", protoreflect.ValueOfString(token))
		return call(ctx, req)
	}
	all, err := read(flags.PageToken)
	if err != nil {
		return err
	}
	for flags.All && all.GetNextPageToken() != "" {
		next, err := read(all.GetNextPageToken())
		if err != nil {
			return err
		}
		setField(all, "next_page_token", protoreflect.ValueOfString("")) // the last page has no token
		proto.Merge(all, next)
	}
	if c.JSON() {
		return output.PrintMessage(a.Stdout, all)
	}
	if err := show(all); err != nil {
		return err
	}
	return printMore(a, all.GetNextPageToken())
}

func setField(m proto.Message, name protoreflect.Name, value protoreflect.Value) {
	m.ProtoReflect().Set(m.ProtoReflect().Descriptor().Fields().ByName(name), value)
}

// printMore prints how to get the next page.
func printMore(a *App, token string) error {
	if token == "" {
		return nil
	}
	_, err := fmt.Fprintf(a.Stdout, "\nmore: --page-token %s, or --all\n", output.ShellWord(token))
	return err
}

// None returns the sentence for an empty list. what is a plural noun. next is a command that
// creates an entry, or "".
func None(what, namespace string, filtered bool, next string) string {
	text := "no " + what
	if namespace != "" {
		text += " in namespace " + output.OneLine(namespace)
	}
	switch {
	case filtered:
		return text + " that match the filter"
	case next != "":
		return text + ": " + next
	}
	return text
}
