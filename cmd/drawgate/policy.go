package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/internal/present"
)

func (a *app) policyCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Show, switch off and switch on a server's policies",
		Long: `Show the policies that a server has in force, and switch them off for a time. The server is that of --server or $` + envServer + `: its address for
administrators, with an access token of role admin in $` + envToken + ` if it asks for one.`,
	}
	cmd.AddCommand(a.policyListCmd(), a.policyDisableCmd(), a.policyEnableCmd())
	return cmd
}

func (a *app) policyListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "Show the policies in force", Args: noArgs,
		Example: `  drawgate policy list --server http://127.0.0.1:7878`,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				list, err := c.Policies(ctx)
				if err != nil {
					return err
				}
				if a.json {
					a.printJSON(list)
					return nil
				}
				present.WritePolicies(a.out, list)
				return nil
			})
		}),
	}
}

func (a *app) policyDisableCmd() *cobra.Command {
	var d time.Duration
	cmd := &cobra.Command{
		Use: "disable NAME --for DURATION", Short: "Switch a policy off for a time", Args: cobra.ExactArgs(1),
		Long: `Switch a policy off for a time: takes pass as if it were not there, and nothing is counted under it. It comes back by itself. This
affects only this server, not others with the same store: name each of them.`,
		Example: `  drawgate policy disable per-ip --for 1h`,
		RunE: action(func(cmd *cobra.Command, args []string) error {
			if d <= 0 {
				return usage("--for is missing: say for how long, such as --for 1h")
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				p, err := c.Disable(ctx, args[0], d)
				return a.switched(&p, err)
			})
		}),
	}
	durationVar(cmd, &d, "for", 0, "how long it stays off (10m, 1h)")
	return cmd
}

func (a *app) policyEnableCmd() *cobra.Command {
	return &cobra.Command{
		Use: "enable NAME", Short: "Switch a policy on again", Args: cobra.ExactArgs(1),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				p, err := c.Enable(ctx, args[0])
				return a.switched(&p, err)
			})
		}),
	}
}

func (a *app) switched(p *api.Policy, err error) error {
	switch {
	case err != nil:
		return err
	case a.json:
		a.printJSON(p)
	default:
		a.printf("policy %s is %s, on %s alone\n", p.Name, present.State(p), a.serverURL())
	}
	return nil
}

// ask asks the server.
func (a *app) ask(ctx context.Context, f func(context.Context, *client.Client) error) error {
	if a.serverURL() == "" {
		return usage("no server given: name its address for administrators with --server, such as --server http://127.0.0.1:%s", adminPort)
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	return adminError(f(ctx, c))
}
