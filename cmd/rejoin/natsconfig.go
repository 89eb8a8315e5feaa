package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rejoin/journal/natsconf"
	"rejoin/protocol"
)

func (a *app) natsConfigCommand() *cobra.Command {
	var cfg natsconf.Config
	var combine []string
	var valid duration
	cmd := &cobra.Command{
		Use:   "nats-config --dir DIR --servers HOST:PORT,...",
		Short: "Write what a NATS cluster for split roles needs",
		Long: `Writes a folder with one configuration, certificate and key per NATS server, the CA
that signs them, and a seed (an nkey) per role with the least subjects that the role
needs. Copy each server's folder to its machine, and to each role's machine its seed
and ca.pem. Keep ca-key.pem apart: nobody needs it but this command.

Run again over the same folder it keeps the CA and the seeds and writes everything else
anew: with new certificates, with servers added, with the subjects that a newer version
needs. A seed that is to be replaced is removed first. Servers take the new files at
their next start.`,
		Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			cfg.Valid = time.Duration(valid)
			for _, c := range combine {
				var roles []protocol.ServerRole
				for _, name := range strings.Split(c, "+") {
					roles = append(roles, protocol.ServerRole(name))
				}
				cfg.Combine = append(cfg.Combine, roles)
			}
			if cfg.Dir == "" {
				return usagef("--dir is required: the folder to write to")
			}
			if len(cfg.Servers) == 0 {
				return usagef("--servers is required: the host:port of each server, with commas between them")
			}
			if err := cfg.Check(); err != nil {
				return &usageError{err}
			}
			w, err := natsconf.Write(cfg)
			if err != nil {
				return err
			}
			return a.tellConfig(w)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Dir, "dir", "", "folder to write to")
	f.StringSliceVar(&cfg.Servers, "servers", nil, "host:port of each server, as roles and the other servers reach it, with commas between them (port 4222 if there is none; for the other servers 2000 above it)")
	f.StringVar(&cfg.Name, "name", "rejoin", "name of the cluster")
	f.StringVar(&cfg.InstallDir, "install-dir", "", "where a server will find its files on its machine (default: where they are written)")
	f.StringVar(&cfg.StoreDir, "store-dir", "/var/lib/nats", "where a server keeps its data, in a folder of its own name below it")
	f.IntVar(&cfg.Shards, "shards", 0, "shards of the journal that the permissions are for, if not the 8 that rejoin serve makes")
	f.StringArrayVar(&combine, "combine", nil, "roles that share a process, such as broker+gateway: a seed for them; repeatable")
	f.Var(&valid, "valid", "how long the servers' certificates are valid, if not 5 years (43800h)")
	return cmd
}

// tellConfig says what to do with what was written.
func (a *app) tellConfig(w *natsconf.Written) error {
	var b strings.Builder
	for i, c := range w.Configs {
		fmt.Fprintf(&b, "nats-server -c %s", c)
		if folder := w.Folders[i]; folder != filepath.Dir(c) {
			fmt.Fprintf(&b, " # where what is in %s has been copied to", folder)
		}
		b.WriteByte('\n')
	}
	for _, seed := range w.Seeds {
		role := strings.ReplaceAll(strings.TrimSuffix(filepath.Base(seed), filepath.Ext(seed)), "+", ",")
		fmt.Fprintf(&b, "rejoin serve --roles %s --nats %s --nats-ca %s --nats-creds %s --nats-system-creds %s\n",
			role, strings.Join(w.URLs, ","), w.CA, seed, w.System)
	}
	_, err := a.out.Write([]byte(b.String()))
	return err
}
