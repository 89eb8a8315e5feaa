package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"rejoin/broker"
	"rejoin/protocol"
)

func (a *app) tokenCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Print the local server's own token, or keep those of others",
		Long: `Without a command it prints the token of the local server, which is the admin of the
workspace default. add, ls and revoke keep the tokens of others in the file
DATA-DIR/tokens.yaml, or the one that the server was told with --tokens. A running
server follows the file at once.`,
		Args: exactly(),
		RunE: func(*cobra.Command, []string) error { return a.printToken() },
	}
	cmd.PersistentFlags().StringVar(&file, "tokens", "", "token file (default: the running server's, else DATA-DIR/tokens.yaml)")
	cmd.AddCommand(a.tokenAddCommand(&file), a.tokenLsCommand(&file), a.tokenRevokeCommand(&file))
	return cmd
}

func (a *app) printToken() error {
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
}

// tokensPath is the token file that a command means, and whether a running server
// follows it.
func (a *app) tokensPath(file string) (path string, followed bool, err error) {
	dir, err := a.dataDirectory()
	if err != nil {
		return "", false, err
	}
	r, running, err := findServer(dir)
	switch {
	case file != "":
		path, aerr := filepath.Abs(file)
		return path, err == nil && running && r.Tokens == path, aerr
	case err != nil:
		return "", false, err
	case running && r.Tokens == "":
		return "", false, errors.New("the local server asks for no token: it runs with --no-auth")
	case running:
		return r.Tokens, true, nil
	}
	return tokensFile(dir), false, nil
}

func (a *app) tokenAddCommand(file *string) *cobra.Command {
	var role, workspace string
	var expires expiry
	cmd := &cobra.Command{
		Use:   "add NAME --role admin|operator|observer",
		Short: "Make a token and print it, once",
		Long: `Makes a token and prints it: it cannot be had again, only its hash is kept.
An observer reads; an operator also starts configured agents, sends, stops and deletes;
an admin also starts any program, where the server allows that. A token sees the
sessions of its workspace only.`,
		Args: exactly("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			if role == "" {
				return usagef("--role is required: admin, operator or observer")
			}
			r, err := broker.ParseRole(role)
			if err != nil {
				return usagef("--role: %w", err)
			}
			now := time.Now()
			if end := expires.at(now); !end.IsZero() && !end.After(now) {
				return usagef("--expires %s lies in the past", &expires)
			}
			t, text, err := broker.NewToken(broker.Token{Name: args[0], Role: r, Workspace: workspace, Expires: expires.at(now)}, now)
			if err != nil {
				return &usageError{err}
			}
			path, followed, err := a.tokensPath(*file)
			if err != nil {
				return err
			}
			if dir := filepath.Dir(path); *file == "" { // before the first start of a server, too
				if err := os.MkdirAll(dir, 0o700); err != nil {
					return fmt.Errorf("make data directory %s: %w", dir, cause(err))
				}
			}
			if err := broker.AddToken(path, t); err != nil {
				return fmt.Errorf("add to token file: %w", err)
			}
			if !followed {
				fmt.Fprintf(a.err, "Added to %s; no server of this data directory follows it at the moment.\n", path)
			}
			_, err = fmt.Fprintln(a.out, text)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&role, "role", "", "admin, operator or observer")
	f.StringVar(&workspace, "workspace", protocol.DefaultWorkspace, "the workspace that it sees")
	f.Var(&expires, "expires", "when it ends: a duration such as 12h or 30d, or a time such as 2027-01-31T12:00:00Z (default never)")
	return cmd
}

func (a *app) tokenLsCommand(file *string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the tokens of the token file",
		Args:  exactly(),
		RunE: func(*cobra.Command, []string) error {
			path, _, err := a.tokensPath(*file)
			if err != nil {
				return err
			}
			all, err := broker.ListTokens(path)
			if err != nil {
				return err
			}
			if asJSON {
				return a.tokensJSON(all, time.Now())
			}
			return a.tokensTable(all, time.Now())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	return cmd
}

func (a *app) tokensJSON(all []broker.Token, now time.Time) error {
	type row struct {
		ID        string     `json:"id"`
		Name      string     `json:"name"`
		Role      string     `json:"role"`
		Workspace string     `json:"workspace"`
		CreatedAt time.Time  `json:"createdAt"`
		Expires   *time.Time `json:"expires,omitempty"`
		Expired   bool       `json:"expired,omitempty"`
	}
	rows := make([]row, len(all))
	for i, t := range all {
		rows[i] = row{ID: t.ID, Name: t.Name, Role: t.Role.String(), Workspace: t.Workspace, CreatedAt: t.CreatedAt, Expired: t.Expired(now)}
		if !t.Expires.IsZero() {
			rows[i].Expires = &t.Expires
		}
	}
	b, err := json.Marshal(rows)
	if err != nil {
		return fmt.Errorf("print the tokens: %w", err)
	}
	_, err = fmt.Fprintf(a.out, "%s\n", b)
	return err
}

func (a *app) tokensTable(all []broker.Token, now time.Time) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(a.err, "The file names no tokens; `rejoin token add` makes one.")
		return err
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tNAME\tROLE\tWORKSPACE\tCREATED\tEXPIRES")
	for _, t := range all {
		expires := "never"
		switch {
		case t.Expired(now):
			expires = "expired " + t.Expires.Format(time.RFC3339)
		case !t.Expires.IsZero():
			expires = t.Expires.Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", t.ID, t.Name, t.Role, t.Workspace, t.CreatedAt.Format(time.RFC3339), expires)
	}
	return w.Flush()
}

func (a *app) tokenRevokeCommand(file *string) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke NAME|ID",
		Short: "Make a token worthless and end its connections",
		Args:  exactly("NAME or ID"),
		RunE: func(_ *cobra.Command, args []string) error {
			path, _, err := a.tokensPath(*file)
			if err != nil {
				return err
			}
			t, err := broker.RevokeToken(path, args[0])
			if errors.Is(err, broker.ErrNoToken) {
				return fmt.Errorf("there is no token %q; `rejoin token ls` lists them", args[0])
			}
			if err != nil {
				return fmt.Errorf("revoke in token file: %w", err)
			}
			_, err = fmt.Fprintf(a.err, "Revoked %s (%s). Sessions that it started go on.\n", t.Name, t.ID)
			return err
		},
	}
}

// expiry is when a token ends, as a flag: after a duration or at a time.
type expiry struct {
	after time.Duration
	when  time.Time
}

const day = 24 * time.Hour

func (e *expiry) String() string {
	switch {
	case e.after > 0:
		return e.after.String()
	case !e.when.IsZero():
		return e.when.Format(time.RFC3339)
	}
	return ""
}

// Type names the flag's value in the help.
func (e *expiry) Type() string { return "when" }

// Set parses a duration, in days too, or a time (RFC 3339).
func (e *expiry) Set(s string) error {
	if when, err := time.Parse(time.RFC3339, s); err == nil {
		*e = expiry{when: when}
		return nil
	}
	d, err := time.ParseDuration(s)
	if n, ok := strings.CutSuffix(s, "d"); ok {
		var days uint64
		if days, err = strconv.ParseUint(n, 10, 16); err == nil {
			d = time.Duration(days) * day
		}
	}
	if err != nil || d <= 0 {
		return fmt.Errorf("%q must be a duration such as 12h or 30d, or a time such as 2027-01-31T12:00:00Z", s)
	}
	*e = expiry{after: d}
	return nil
}

// at is the end for a token that is made now; zero for none.
func (e *expiry) at(now time.Time) time.Time {
	if e.after > 0 {
		return now.Add(e.after)
	}
	return e.when
}
