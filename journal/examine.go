package journal

import (
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
)

// Disk is what a start would find of a file system, without touching it.
type Disk struct {
	Free, Size int64       // bytes, for processes like this one
	Need       int64       // bytes free without which a start is refused
	State      HealthState // in which a server would begin
}

// DiskOf looks at the file system of a directory.
func DiskOf(dir string) (Disk, error) {
	s, err := diskSpace(dir)
	if err != nil {
		return Disk{}, err
	}
	return Disk{Free: s.free, Size: s.size, Need: s.startBelow(), State: diskHealth(HealthOK, s).State}, nil
}

// CheckServers connects to one of the NATS servers of cfg once, as Connect would, and
// returns how many it then knows of: those of cfg, and those that this one tells of.
// Errors: *RefusedError, where another attempt would end the same; else what the network
// says.
func CheckServers(cfg RemoteConfig) (servers int, err error) {
	options := []nats.Option{nats.Name("rejoin-doctor"), nats.Timeout(remoteDial), nats.NoReconnect()}
	auth, err := credentials(cfg.Creds)
	if err != nil {
		return 0, err
	}
	options = append(options, auth...)
	if cfg.TLS != nil {
		options = append(options, nats.Secure(cfg.TLS))
	}
	nc, err := nats.Connect(strings.Join(cfg.URLs, ","), options...)
	switch {
	case err != nil && refused(err):
		return 0, &RefusedError{"the NATS servers refuse the connection: " + err.Error()}
	case err != nil:
		return 0, fmt.Errorf("journal: connect to the NATS servers: %w", err)
	}
	defer nc.Close()
	return len(nc.Servers()), checkPayload(nc)
}

// checkPayload refuses servers whose messages are too small for a record.
func checkPayload(nc *nats.Conn) error {
	if have := nc.MaxPayload(); have < messageBytesMax {
		return &RefusedError{fmt.Sprintf("the NATS servers take messages of up to %d bytes: set max_payload to %d or more", have, messageBytesMax)}
	}
	return nil
}
