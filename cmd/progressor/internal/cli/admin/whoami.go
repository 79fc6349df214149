package admin

import (
	"fmt"
	"strings"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
)

type whoamiCmd struct {
	cli.ClientFlags
}

func (whoamiCmd) Help() string {
	return `Whoami shows the principal of the client: key:ID for a key, user:ISSUER#NAME for a token of an issuer,
cert:URI for a certificate, or root for the root key. The next lines are its grants, including those
of its groups: a role and the namespaces in which the client has it. The groups in the token follow
as group:NAME. Whoami shows anonymous if the engine does not require authentication.

    progressor whoami
    progressor whoami --token-file /run/secrets/progressor`
}

func (c *whoamiCmd) Run(a *cli.App) error {
	ctx, cancel := a.Request()
	defer cancel()
	text, err := c.Page(ctx, "/whoami")
	if err != nil {
		return err
	}
	if c.JSON() {
		lines := strings.Split(text, "\n")
		grants, groups := []string{}, []string{}
		for _, line := range lines[1:] {
			if strings.HasPrefix(line, "group:") {
				groups = append(groups, line)
			} else {
				grants = append(grants, line)
			}
		}
		return output.PrintJSON(a.Stdout, map[string]any{"principal": lines[0], "grants": grants, "groups": groups})
	}
	_, err = fmt.Fprintln(a.Stdout, text)
	return err
}
