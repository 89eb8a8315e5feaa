package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"rejoin/protocol"
)

// Encode returns the bytes of a state as clients receive and hash them. Equal
// states give equal bytes: the members stand in the order of the struct, there
// is no map in it, and no white space.
func Encode(s *protocol.State) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic("snapshot: a state that cannot be encoded: " + err.Error()) // State holds nothing that can fail
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

// Decode is the inverse of Encode.
func Decode(state []byte) (*protocol.State, error) {
	s := New("")
	if err := json.Unmarshal(state, s); err != nil {
		return nil, fmt.Errorf("snapshot: decode state: %w", err)
	}
	return s, nil
}

// Hash returns the stateHash of encoded state: its sha256 in lower-case hex.
func Hash(state []byte) string {
	sum := sha256.Sum256(state)
	return hex.EncodeToString(sum[:])
}
