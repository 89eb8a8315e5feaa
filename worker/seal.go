package worker

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// A Seal encrypts the stderr tails of a data directory with AES-256-GCM, one
// frame per write: length of what follows, nonce, text and tag. A nil Seal leaves
// them in clear. Safe for concurrent use.
type Seal struct{ aead cipher.AEAD }

const sealLengthBytes = 4

// NewSeal returns the Seal of a journal's key, from which it has a key of its own.
func NewSeal(key []byte) (*Seal, error) {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write([]byte("rejoin stderr")) // a hash.Hash never fails
	block, err := aes.NewCipher(h.Sum(nil))
	if err != nil {
		return nil, fmt.Errorf("worker: key of stderr tails: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("worker: key of stderr tails: %w", err)
	}
	return &Seal{aead}, nil
}

// seal returns b as it goes to the file.
func (s *Seal) seal(b []byte) []byte {
	if s == nil {
		return b
	}
	n := s.aead.NonceSize() + len(b) + s.aead.Overhead()
	out := make([]byte, sealLengthBytes+s.aead.NonceSize(), sealLengthBytes+n)
	binary.BigEndian.PutUint32(out, uint32(n)) //nolint:gosec // of stderr, at most 128 KiB
	nonce := out[sealLengthBytes:]
	_, _ = rand.Read(nonce) // it never fails (crypto/rand)
	return s.aead.Seal(out, nonce, b, nil)
}

// open returns the text of a file. A frame that a crash cut short ends it, as do
// frames of another key.
func (s *Seal) open(b []byte) []byte {
	if s == nil {
		return b
	}
	var text []byte
	for len(b) > sealLengthBytes {
		n := int64(binary.BigEndian.Uint32(b))
		b = b[sealLengthBytes:]
		if n > int64(len(b)) || n < int64(s.aead.NonceSize()) {
			break
		}
		frame := b[:n]
		b = b[n:]
		nonce, sealed := frame[:s.aead.NonceSize()], frame[s.aead.NonceSize():]
		longer, err := s.aead.Open(text, nonce, sealed, nil)
		if err != nil {
			break
		}
		text = longer
	}
	return text
}
