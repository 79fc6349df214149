package admin

import (
	"fmt"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
)

type whoamiCmd struct {
	cli.ClientFlags
}

func (whoamiCmd) Help() string {
	return `Whoami shows the principal of the token: key:ID for a key, or root for the root key. It shows
anonymous if the engine does not require authentication.

    progressor whoami
    progressor whoami --token-file /run/secrets/progressor`
}

func (c *whoamiCmd) Run(a *cli.App) error {
	ctx, cancel := a.Request()
	defer cancel()
	name, err := c.Page(ctx, "/whoami")
	switch {
	case err != nil:
		return err
	case c.JSON():
		return output.PrintJSON(a.Stdout, map[string]string{"principal": name})
	}
	_, err = fmt.Fprintln(a.Stdout, name)
	return err
}
