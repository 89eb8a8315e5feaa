package protocol

import (
	"crypto/rand"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// DefaultWorkspace is the workspace of every session until tokens say otherwise.
const DefaultWorkspace = "default"

// A Key names a session. Both parts match [A-Za-z0-9_-]{1,64}.
type Key struct {
	Workspace string
	Session   string
}

// String returns workspace/session, for logs.
func (k Key) String() string { return k.Workspace + "/" + k.Session }

// Seq numbers the events of a session from 1, without holes inside an Epoch.
// Zero means "before the first event".
type Seq uint64

// An Epoch names an unbroken history: a ULID in its 26-character text form.
type Epoch string

// A Run counts the incarnations of a session's owner, from 1.
type Run uint64

// A Cursor is a reader's place: everything up to and including Seq is applied.
type Cursor struct {
	Epoch Epoch
	Seq   Seq
}

// NewEpoch returns a fresh epoch for the given time.
func NewEpoch(now time.Time) Epoch { return Epoch(newULID(now)) }

// NewSessionID returns a fresh session id: a ULID in lower case.
func NewSessionID(now time.Time) string { return strings.ToLower(newULID(now)) }

// NewCommandID returns a fresh command id for a command that came without one.
func NewCommandID(now time.Time) string { return ServerCommandPrefix + strings.ToLower(newULID(now)) }

func newULID(now time.Time) string {
	return ulid.MustNew(ulid.Timestamp(now), rand.Reader).String()
}

// ServerCommandPrefix starts the command ids that the server mints. Clients may
// repeat such an id, but not invent one.
const ServerCommandPrefix = "rj:"

// ValidEpoch reports whether s is a ULID in its text form.
func ValidEpoch(s string) bool {
	_, err := ulid.ParseStrict(s)
	return err == nil
}

// ValidSessionID reports whether s may name a session: [A-Za-z0-9_-]{1,64}.
func ValidSessionID(s string) bool {
	if s == "" || len(s) > SessionIDBytesMax {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// ValidCommandID reports whether s may be a client's command id: 1 to 128
// printable ASCII characters.
func ValidCommandID(s string) bool {
	if s == "" || len(s) > CommandIDBytesMax {
		return false
	}
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}
