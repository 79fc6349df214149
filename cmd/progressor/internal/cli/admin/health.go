package admin

import (
	"fmt"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
)

type healthCmd struct {
	Live bool `help:"Only check whether the engine runs (/livez), not whether it accepts requests."`

	cli.ClientFlags
}

func (healthCmd) Help() string {
	return `Health asks an engine whether it accepts requests (/readyz), and prints "ok" or the
reason why it does not. The exit code is 0 if the engine accepts requests. It is 8 if the engine
does not accept requests or cannot be reached. The command needs no token, so a container can use it
as its health check. "namespace health" shows whether tasks run.

    progressor health
    progressor health --live
    progressor health --address http://10.0.0.7:9090`
}

func (c *healthCmd) Run(a *cli.App) error {
	ctx, cancel := a.Request()
	defer cancel()
	path := "/readyz"
	if c.Live {
		path = "/livez"
	}
	text, err := c.PublicPage(ctx, path)
	if err != nil {
		return err
	}
	if c.JSON() {
		return output.PrintJSON(a.Stdout, map[string]string{"status": text})
	}
	_, err = fmt.Fprintln(a.Stdout, text)
	return err
}
