package natsconf

import (
	"fmt"
	"os"
	"path/filepath"
)

// Written says what Write wrote, for whoever starts the servers and the roles.
type Written struct {
	Configs []string // of the servers, in the order of Config.Servers, where they find them on their machines
	Folders []string // of the servers, as they were written
	URLs    []string // of the servers, for --nats
	CA      string   // certificate by which roles know the servers
	Seeds   []string // a file for each role and combination
	System  string   // seed of the system user
}

// Check reports what is wrong with a Config before anything is written, in words
// of the command line.
func (c Config) Check() error {
	c = c.withDefaults()
	_, err := c.plan()
	if err == nil {
		_, err = c.users()
	}
	return err
}

// Write writes a folder with the configuration of each server, certificates and
// seeds. What is there of CA and seeds is kept; everything else is written anew.
// Errors are Check's and
// those of files, fit for the user.
func Write(cfg Config) (*Written, error) {
	cfg = cfg.withDefaults()
	servers, err := cfg.plan()
	if err != nil {
		return nil, err
	}
	users, err := cfg.users()
	if err != nil {
		return nil, err
	}
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	w := &Written{CA: filepath.Join(cfg.Dir, caFile), System: filepath.Join(cfg.Dir, systemUser+seedSuffix)}
	ca, err := openAuthority(cfg.Dir, cfg.Name, cfg.Now)
	if err != nil {
		return nil, err
	}
	c := config{Config: cfg, servers: servers, users: users}
	if c.system, err = openSeed(cfg.Dir, systemUser); err != nil {
		return nil, err
	}
	for i, u := range users {
		if c.users[i].public, err = openSeed(cfg.Dir, u.name); err != nil {
			return nil, err
		}
		w.Seeds = append(w.Seeds, filepath.Join(cfg.Dir, u.name+seedSuffix))
	}
	for _, s := range servers {
		if err := c.writeServer(s, ca); err != nil {
			return nil, fmt.Errorf("server %s: %w", s.name, err)
		}
		w.Configs = append(w.Configs, filepath.Join(cfg.home(s), configFile))
		w.Folders = append(w.Folders, filepath.Join(cfg.Dir, s.name))
		w.URLs = append(w.URLs, s.client())
	}
	return w, nil
}

// writeServer writes the folder of a server, which is all that its machine needs.
func (c config) writeServer(s server, ca *authority) error {
	dir := filepath.Join(c.Dir, s.name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := ca.issue(dir, s, c.Valid, c.Now); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, caFile), ca.pem, 0o644); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, configFile), c.of(s), 0o600)
}
