package cli

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
)

// PageFlags are the flags of paged lists. The command sets rows, the name of the listed items.
type PageFlags struct {
	PageSize  int32  `placeholder:"N" help:"Maximum number of ${rows} per page. Default: that of the engine."`
	PageToken string `placeholder:"TOKEN" help:"Token from the previous page."`
	All       bool   `help:"Print all pages."`
}

// page is a response with a page of a list.
type page interface {
	proto.Message
	GetNextPageToken() string
}

// PrintPages reads a page, or with --all that page and all following ones, and prints them as JSON
// or with show.
func PrintPages[P page](
	a *App, format OutputFlag, flags PageFlags, read func(ctx context.Context, token string) (P, error),
	show func(all P) error,
) error {
	one := func(token string) (P, error) {
		ctx, cancel := a.Request()
		defer cancel()
		return read(ctx, token)
	}
	all, err := one(flags.PageToken)
	if err != nil {
		return err
	}
	for flags.All && all.GetNextPageToken() != "" {
		next, err := one(all.GetNextPageToken())
		if err != nil {
			return err
		}
		m := all.ProtoReflect()
		m.Clear(m.Descriptor().Fields().ByName("next_page_token")) // the last page has none
		proto.Merge(all, next)
	}
	if format.JSON() {
		return output.PrintMessage(a.Stdout, all)
	}
	if err := show(all); err != nil {
		return err
	}
	return printMore(a, all.GetNextPageToken())
}

// printMore prints how to get the next page.
func printMore(a *App, token string) error {
	if token == "" {
		return nil
	}
	_, err := fmt.Fprintf(a.Stdout, "\nmore: --page-token %s, or --all\n", output.ShellWord(token))
	return err
}
