package broker

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"rejoin/protocol"
)

// A Token is one entry of the token file. The secret itself is nowhere: it was
// shown once, when the token was made.
type Token struct {
	ID        string // tokenIDBytes in lower-case base 32; part of the token, no secret
	Name      string // unique in the file
	Role      Role
	Workspace string
	Expires   time.Time // zero: never
	CreatedAt time.Time
	hash      [sha256.Size]byte // of the whole token
}

// A token is rj_<id>_<secret>. The secret has 160 random bits, so that one SHA-256
// is enough to keep it: a slow password hash makes guessing dear where people
// choose secrets, and here there is nothing to guess; it would only let strangers
// burn the server's time.
const (
	tokenPrefix      = "rj_"
	tokenIDBytes     = 5
	tokenSecretBytes = 20
	tokenNameMax     = 64
	hashPrefix       = "sha256:"
)

var base32Lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewToken makes a token of t's name, role, workspace and expiry, and returns it
// with the text that its holder shows, which cannot be had again.
func NewToken(t Token, now time.Time) (Token, string, error) {
	var b [tokenIDBytes + tokenSecretBytes]byte
	if _, err := rand.Read(b[:]); err != nil {
		return Token{}, "", fmt.Errorf("make a token: %w", err)
	}
	t.ID = base32Lower.EncodeToString(b[:tokenIDBytes])
	t.CreatedAt, t.Expires = now.UTC().Truncate(time.Second), t.Expires.UTC().Truncate(time.Millisecond)
	text := tokenPrefix + t.ID + "_" + base32Lower.EncodeToString(b[tokenIDBytes:])
	t.hash = sha256.Sum256([]byte(text))
	return t, text, t.check()
}

// Expired reports whether the token is of no more use at now.
func (t *Token) Expired(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }

// principal is who shows the token.
func (t *Token) principal() Principal {
	p := Principal{Name: t.Name, Workspace: t.Workspace, Role: t.Role, Token: t.ID}
	if !t.Expires.IsZero() {
		p.ExpiresMs = t.Expires.UnixMilli()
	}
	copy(p.mark[:], t.hash[:])
	return p
}

// check reports what is wrong with the values of t.
func (t *Token) check() error {
	switch {
	case !validTokenID(t.ID):
		return fmt.Errorf("id must be %d characters of a-z and 2-7", base32Lower.EncodedLen(tokenIDBytes))
	case !validTokenName(t.Name):
		return fmt.Errorf("name must match [A-Za-z0-9._@-]{1,%d}", tokenNameMax)
	case t.Name == LocalName || t.Name == protocol.ClientRejoin:
		return fmt.Errorf("the name %s is the server's own", t.Name)
	case !protocol.ValidSessionID(t.Workspace):
		return fmt.Errorf("workspace must match [A-Za-z0-9_-]{1,%d}", protocol.SessionIDBytesMax)
	case t.CreatedAt.IsZero():
		return errors.New("createdAt is missing")
	}
	return nil
}

func validTokenID(s string) bool {
	b, err := base32Lower.DecodeString(s)
	return err == nil && len(b) == tokenIDBytes && base32Lower.EncodeToString(b) == s
}

func validTokenName(s string) bool {
	return s != "" && len(s) <= tokenNameMax && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._@-", r)
	})
}

// appendLine appends t as a line of the token file.
func (t *Token) appendLine(dst []byte) []byte {
	dst = append(dst, `- {"id":`...)
	dst = protocol.AppendString(dst, t.ID)
	member := func(name, value string) {
		dst = append(append(append(dst, `,"`...), name...), `":`...)
		dst = protocol.AppendString(dst, value)
	}
	member("name", t.Name)
	member("role", t.Role.String())
	member("workspace", t.Workspace)
	if !t.Expires.IsZero() {
		member("expires", t.Expires.UTC().Format(time.RFC3339Nano))
	}
	member("createdAt", t.CreatedAt.UTC().Format(time.RFC3339))
	member("hash", hashPrefix+hex.EncodeToString(t.hash[:]))
	return append(dst, "}\n"...)
}

// tokenKeys are the members of an entry.
var tokenKeys = []string{"id", "name", "role", "workspace", "expires", "createdAt", "hash"}

// decodeToken reads one entry. Every member is a string; all but workspace and
// expires are required, and none may be unknown or repeated.
func decodeToken(line []byte) (Token, error) {
	if err := protocol.ValidateJSON(line); err != nil {
		return Token{}, err
	}
	if line = bytes.TrimSpace(line); line[0] != '{' {
		return Token{}, errors.New("an entry is one line, - {…}")
	}
	value := make(map[string]string, len(tokenKeys))
	for m := range protocol.Members(line) {
		name := string(m.Name)
		if !slices.Contains(tokenKeys, name) {
			return Token{}, fmt.Errorf("unknown key %q", name)
		}
		if _, twice := value[name]; twice {
			return Token{}, fmt.Errorf("%s is repeated", name)
		}
		s, ok := protocol.DecodeString(m.Value)
		if !ok {
			return Token{}, fmt.Errorf("%s must be a string", name)
		}
		value[name] = s
	}
	return tokenOf(value)
}

func tokenOf(value map[string]string) (t Token, err error) {
	for _, name := range tokenKeys {
		if _, ok := value[name]; !ok && name != "workspace" && name != "expires" {
			return Token{}, fmt.Errorf("%s is missing", name)
		}
	}
	t.ID, t.Name, t.Workspace = value["id"], value["name"], protocol.DefaultWorkspace
	if ws, ok := value["workspace"]; ok {
		t.Workspace = ws
	}
	if t.Role, err = ParseRole(value["role"]); err != nil {
		return Token{}, err
	}
	if t.CreatedAt, err = time.Parse(time.RFC3339, value["createdAt"]); err != nil {
		return Token{}, errors.New("createdAt must be a time such as 2026-01-31T12:00:00Z")
	}
	if at, ok := value["expires"]; ok {
		if t.Expires, err = time.Parse(time.RFC3339, at); err != nil || t.Expires.IsZero() {
			return Token{}, errors.New("expires must be a time such as 2026-01-31T12:00:00Z")
		}
	}
	h, ok := strings.CutPrefix(value["hash"], hashPrefix)
	if n, err := hex.Decode(t.hash[:], []byte(h[:min(len(h), 2*sha256.Size)])); !ok || err != nil || n != sha256.Size || len(h) != 2*sha256.Size {
		return Token{}, fmt.Errorf("hash must be %s and %d hexadecimal digits", hashPrefix, 2*sha256.Size)
	}
	return t, t.check()
}
