package main

import (
	"github.com/spf13/cobra"

	"rejoin/cmd/rejoin/internal/demoagent"
)

func (a *app) demoAgentCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "demo-agent",
		Short:              "The scripted agent that serve uses when none is configured",
		DisableFlagParsing: true, // they are the agent's
		RunE: func(_ *cobra.Command, args []string) error {
			if code := demoagent.Run(a.in, a.out, a.err, args); code != exitOK {
				return &exitError{code}
			}
			return nil
		},
	}
}
