package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"rejoin/protocol"
)

const (
	layoutVersion = 1
	shardsDefault = 8
	shardsMax     = 64
)

// format is DATA/format: what the directory holds. It is written twice at the
// first start, before and after the streams are made, so that a crash between
// is finished by the next start; once Ready, a missing stream is a loss.
type format struct {
	Layout int      `json:"layout"`
	Shards int      `json:"shards"`
	Ready  bool     `json:"ready"`
	Expect []string `json:"expect"` // stream names
	// Adding are streams that a directory made before them gains: named here first,
	// made, and then moved to Expect, so that a crash between is finished by the
	// next start.
	Adding []string `json:"adding,omitempty"`
}

func newFormat(shards int) *format {
	f := &format{Layout: layoutVersion, Shards: shards}
	for i := range shards {
		f.Expect = append(f.Expect, shardStream(i))
	}
	f.Expect = append(f.Expect, bucketStream(protocol.BucketSessions), bucketStream(protocol.BucketStarts), snapStream)
	return f
}

// gain names the streams that the directory lacks because it was made before
// them, and reports whether there are any.
func (f *format) gain() bool {
	if !f.Ready || slices.Contains(f.Expect, snapStream) || slices.Contains(f.Adding, snapStream) {
		return false
	}
	f.Adding = append(f.Adding, snapStream)
	return true
}

// made returns f once every stream it names exists.
func (f *format) made() *format {
	done := *f
	done.Ready = true
	done.Expect = append(slices.Clone(f.Expect), f.Adding...)
	done.Adding = nil
	return &done
}

// mayCreate reports whether a stream that is missing was never made, rather
// than lost.
func (f *format) mayCreate(name string) bool { return !f.Ready || slices.Contains(f.Adding, name) }

// shardStream names the stream of a shard.
func shardStream(shard int) string { return "J" + strconv.Itoa(shard) }

// bucketStream names the stream of a bucket, as NATS does.
func bucketStream(bucket string) string { return "KV_" + bucket }

func formatFile(dir string) string { return filepath.Join(dir, "format") }

// openFormat reads DIR/format, or begins a new one in a directory without
// streams. Errors are *FormatError where the content is to blame.
func openFormat(dir string, shards int) (*format, error) {
	path := formatFile(dir)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		if streams := storedStreams(dir); len(streams) > 0 {
			return nil, &FormatError{Path: path, Reason: fmt.Sprintf("the file is missing although %s holds streams; put it back from a backup", streamsDir(dir))}
		}
		f := newFormat(shards)
		return f, f.write(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("read format: %w", err)
	}
	f := &format{}
	if err := json.Unmarshal(data, f); err != nil {
		return nil, &FormatError{Path: path, Reason: "not readable: " + err.Error()}
	}
	if err := f.check(path); err != nil {
		return nil, err
	}
	if f.gain() {
		return f, f.write(dir)
	}
	return f, nil
}

func (f *format) check(path string) error {
	switch {
	case f.Layout > layoutVersion:
		return &FormatError{Path: path, Reason: fmt.Sprintf("layout %d was written by a newer version; this one knows up to %d", f.Layout, layoutVersion)}
	case f.Layout < 1:
		return &FormatError{Path: path, Reason: fmt.Sprintf("unknown layout %d", f.Layout)}
	case f.Shards < 1 || f.Shards > shardsMax:
		return &FormatError{Path: path, Reason: fmt.Sprintf("%d shards: must be 1 to %d", f.Shards, shardsMax)}
	}
	return nil
}

// checkStreams compares what is expected with the directories that exist,
// before the server may touch them. Errors are *MissingStreamError.
func (f *format) checkStreams(dir string) error {
	if !f.Ready {
		return nil
	}
	for _, name := range f.Expect {
		fi, err := os.Stat(filepath.Join(streamsDir(dir), name))
		if errors.Is(err, os.ErrNotExist) || err == nil && !fi.IsDir() {
			return missingStream(dir, name)
		}
		if err != nil {
			return fmt.Errorf("look for stream %s: %w", name, err)
		}
	}
	return nil
}

func (f *format) write(dir string) error {
	data, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("encode format: %w", err)
	}
	return writeFile(formatFile(dir), append(data, '\n'))
}

// streamsDir is where the server keeps the streams of the only account.
func streamsDir(dir string) string { return filepath.Join(dir, "jetstream", "$G", "streams") }

func storedStreams(dir string) []os.DirEntry {
	entries, err := os.ReadDir(streamsDir(dir))
	if err != nil {
		return nil
	}
	return entries
}

func missingStream(dir, name string) error {
	return &MissingStreamError{Stream: name, Dir: filepath.Join(streamsDir(dir), name), Format: formatFile(dir)}
}
