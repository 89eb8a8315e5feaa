package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"
)

func (a *app) tokenCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "token",
		Short: "Print the token of the local server",
		Args:  exactly(),
		RunE: func(*cobra.Command, []string) error {
			dir, err := a.dataDirectory()
			if err != nil {
				return err
			}
			path := tokenFile(dir)
			r, running, err := findServer(dir)
			if err != nil {
				return err
			}
			if running {
				if r.TokenFile == "" {
					return errors.New("the local server has no token file: it runs with --no-auth, or with a token it was given")
				}
				path = r.TokenFile
			}
			t, err := readToken(path)
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("there is no token in %s yet: `rejoin serve` makes one at its first start", dir)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.out, t)
			return err
		},
	}
}
