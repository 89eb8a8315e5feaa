package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const (
	healthTimeout   = 4 * time.Second // below the 5 s that supervisors give a check
	healthBytesRead = 4 << 10         // of the reason
)

// unreachableError is an --admin endpoint that does not answer.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }
func (e *unreachableError) Unwrap() error { return e.err }

func (a *app) healthCommand() *cobra.Command {
	var address string
	var live bool
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a server whether it serves, for supervisors without an HTTP client",
		Long: `Asks the --admin endpoint of a server whether it is ready, or with --live whether it
answers at all. Exit status 0 says yes; 1 no, and why; 3 that nothing answers there.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			base, err := a.adminBase(address)
			if err != nil {
				return err
			}
			path := "/readyz"
			if live {
				path = "/healthz"
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), healthTimeout)
			defer cancel()
			said, err := askHealth(ctx, base+path)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.out, said)
			return err
		},
	}
	cmd.Flags().StringVar(&address, "admin", "", "host:port that the server's --admin names (default: what the server of the data directory says)")
	cmd.Flags().BoolVar(&live, "live", false, "ask whether the process answers, not whether it is ready")
	return cmd
}

// adminBase is the URL of an admin endpoint: the one that is named, or else that
// of the data directory's server.
func (a *app) adminBase(address string) (string, error) {
	if address != "" {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return "", usagef("--admin %q: want host:port, such as 127.0.0.1:9810", address)
		}
		return "http://" + address, nil
	}
	dir, err := a.dataDirectory()
	if err != nil {
		return "", err
	}
	r, running, err := findServer(dir)
	switch {
	case err != nil:
		return "", err
	case !running:
		return "", &noServerError{dir}
	case r.Admin == "":
		return "", usagef("the server of %s was started without --admin", dir)
	}
	return r.Admin, nil
}

// askHealth returns what the endpoint says when it says yes.
func askHealth(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	// Never a proxy of the environment: what is asked is the address itself.
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return "", &unreachableError{err}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, healthBytesRead))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return "", &unreachableError{err}
	}
	said := strings.TrimSpace(string(body))
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("not healthy: %s", said)
	}
	return said, nil
}
