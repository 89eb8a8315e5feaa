package natsconf

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nkeys"

	"rejoin/journal"
	"rejoin/protocol"
)

// systemUser reads what servers say of themselves: their sync interval.
const systemUser = "system"

// seedSuffix ends the files with seeds.
const seedSuffix = ".nk"

// user is who connects to the servers: roles of one process, or the system user.
type user struct {
	name   string // also of the seed's file
	public string // the nkey that its seed proves
	grant  journal.Grant
}

// users are the roles, each alone, then the combinations, in a fixed order.
func (c Config) users() ([]user, error) {
	sets := [][]protocol.ServerRole{{protocol.RoleBroker}, {protocol.RoleGateway}, {protocol.RoleWorker}}
	var all []user
	for _, roles := range append(sets, c.Combine...) {
		u, err := userOf(roles, c.Shards)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(all, func(o user) bool { return o.name == u.name }) {
			all = append(all, u)
		}
	}
	return all, nil
}

func userOf(roles []protocol.ServerRole, shards int) (user, error) {
	roles = slices.Clone(roles)
	slices.Sort(roles)
	roles = slices.Compact(roles)
	if len(roles) == 0 {
		return user{}, errors.New("a combination of no roles")
	}
	var u user
	names := make([]string, 0, len(roles))
	for _, role := range roles {
		g, err := journal.GrantOf(role, shards)
		if err != nil {
			return user{}, fmt.Errorf("want %s, %s or %s, not %q", protocol.RoleBroker, protocol.RoleGateway, protocol.RoleWorker, role)
		}
		u.grant = u.grant.And(g)
		names = append(names, string(role))
	}
	u.name = strings.Join(names, "+")
	return u, nil
}

// openSeed reads a seed and returns its public key, or makes it.
func openSeed(dir, name string) (public string, err error) {
	path := filepath.Join(dir, name+seedSuffix)
	seed, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeSeed(path)
	}
	if err != nil {
		return "", err
	}
	pair, err := nkeys.FromSeed(bytes.TrimSpace(seed))
	if err != nil {
		return "", fmt.Errorf("%s is no seed: %w", path, err)
	}
	defer pair.Wipe()
	if public, err = pair.PublicKey(); err != nil || !nkeys.IsValidPublicUserKey(public) {
		return "", fmt.Errorf("%s is no seed of a user", path)
	}
	return public, nil
}

func makeSeed(path string) (public string, err error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return "", fmt.Errorf("make a seed: %w", err)
	}
	defer pair.Wipe()
	seed, err := pair.Seed()
	if err == nil {
		public, err = pair.PublicKey()
	}
	if err != nil {
		return "", fmt.Errorf("make a seed: %w", err)
	}
	return public, writeFile(path, append(seed, '\n'), 0o600)
}
