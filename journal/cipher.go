package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nats-io/nats-server/v2/server"
)

// KeyBytesMin is the least that a key has.
const KeyBytesMin = 32

// A Cipher is how an encrypted journal is.
type Cipher string

// The ciphers: of the store's meta data both with authentication, of records the
// key stream alone, below the checksum that every record has.
const (
	CipherChaCha Cipher = "chacha" // ChaCha20
	CipherAES    Cipher = "aes"    // AES-256 in counter mode
)

func (c Cipher) store() server.StoreCipher {
	if c == CipherAES {
		return server.AES
	}
	return server.ChaCha
}

// A KeyError says why a key does not open a data directory. Nothing in it was
// changed, and nothing was started.
type KeyError struct {
	Dir    string
	Reason string
}

// Error names the directory and the reason.
func (e *KeyError) Error() string { return fmt.Sprintf("data directory %s %s", e.Dir, e.Reason) }

// encryption is DATA/encryption: with which key and cipher the journal is
// encrypted. A directory without the file is not.
type encryption struct {
	Cipher Cipher `json:"cipher"`
	KeyID  string `json:"keyId"`
}

// keyID tells keys apart and nothing about them.
func keyID(key []byte) string {
	h := sha256.New()
	_, _ = h.Write([]byte("rejoin journal key\x00")) // a hash.Hash never fails
	_, _ = h.Write(key)
	return hex.EncodeToString(h.Sum(nil)[:8])
}

func encryptionFile(dir string) string { return filepath.Join(dir, "encryption") }

// readEncryption reads DIR/encryption; nil when the directory is not encrypted.
func readEncryption(dir string) (*encryption, error) {
	path := encryptionFile(dir)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // not encrypted is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("read encryption: %w", err)
	}
	e := &encryption{}
	if err := json.Unmarshal(data, e); err != nil {
		return nil, &FormatError{Path: path, Reason: "not readable: " + err.Error()}
	}
	if e.Cipher != CipherChaCha && e.Cipher != CipherAES || e.KeyID == "" {
		return nil, &FormatError{Path: path, Reason: "names no cipher and key that this version knows"}
	}
	return e, nil
}

// checkKey compares cfg's key with the directory, and only reads. It returns what
// the directory is encrypted with, or would be at its first start; nil for not.
// Errors are *KeyError and *FormatError where the content is to blame.
func checkKey(cfg *Config) (*encryption, error) {
	have, err := readEncryption(cfg.Dir)
	if err != nil {
		return nil, err
	}
	fail := func(format string, args ...any) (*encryption, error) {
		return nil, &KeyError{cfg.Dir, fmt.Sprintf(format, args...)}
	}
	switch {
	case have == nil && hasKeys(cfg.Dir):
		return nil, &FormatError{Path: encryptionFile(cfg.Dir), Reason: "the file is missing although the streams are encrypted; put it back from a backup"}
	case have == nil && cfg.Key == nil:
		return nil, nil //nolint:nilnil // not encrypted is an answer
	case have == nil && !unused(cfg.Dir):
		return fail("is not encrypted, but a key was given: leave the key out, or begin an encrypted directory with another --data-dir")
	case have == nil:
		have = &encryption{Cipher: cfg.Cipher, KeyID: keyID(cfg.Key)}
		if have.Cipher == "" {
			have.Cipher = CipherChaCha
		}
		return have, nil
	case cfg.Key == nil:
		return fail("is encrypted with key %s: give it with --encrypt-key-file", have.KeyID)
	case have.KeyID != keyID(cfg.Key):
		return fail("is encrypted with key %s, the key that was given is %s", have.KeyID, keyID(cfg.Key))
	case cfg.Cipher != "" && cfg.Cipher != have.Cipher:
		return fail("is encrypted by %s, not by %s; a directory keeps its cipher", have.Cipher, cfg.Cipher)
	}
	return have, nil
}

// unused reports that no journal was begun in dir.
func unused(dir string) bool {
	_, err := os.Lstat(formatFile(dir))
	return errors.Is(err, os.ErrNotExist) && len(storedStreams(dir)) == 0
}

// hasKeys reports that a stream in dir is encrypted: its meta data, or the copy of
// that, has a key.
func hasKeys(dir string) bool {
	for _, e := range storedStreams(dir) {
		if present(filepath.Join(streamsDir(dir), e.Name(), metaKey)) || present(filepath.Join(dir, metaDir, e.Name(), metaKey)) {
			return true
		}
	}
	return false
}

// openEncryption is checkKey for the owner of the directory's lock: a new
// directory gets its file, before anything else is in it.
func (n *Node) openEncryption() error {
	e, err := checkKey(&n.cfg)
	if err != nil || e == nil {
		return err
	}
	n.cfg.Cipher = e.Cipher
	if !unused(n.cfg.Dir) {
		return nil
	}
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode encryption: %w", err)
	}
	return writeFile(encryptionFile(n.cfg.Dir), append(data, '\n'))
}

// encrypt sets the key of the embedded server. Its key is text, ours any bytes.
func (n *Node) encrypt(opts *server.Options) {
	if n.cfg.Key != nil {
		opts.JetStreamKey, opts.JetStreamCipher = hex.EncodeToString(n.cfg.Key), n.cfg.Cipher.store()
	}
}
