package broker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"rejoin/journal"
	"rejoin/protocol"
)

// starts keeps, in the bucket of that name, which start_session command made
// which session, so that its repetition finds it instead of making another.
type starts struct {
	lateBucket

	mu   sync.Mutex
	work map[string]*startCall // by key: starts of this broker in work
}

// startCall is one start in work; info and err are set before done closes.
type startCall struct {
	params string
	done   chan struct{}
	info   protocol.SessionInfo
	err    error
}

// reservation is what the bucket holds per start.
type reservation struct {
	SessionID  string `json:"sessionId"`
	ParamsHash string `json:"paramsHash"`
	At         int64  `json:"at"` // ms since 1970
	revision   uint64
}

func newStarts() *starts { return &starts{work: make(map[string]*startCall)} }

// enter joins the start in work under key, or begins one; leader says which.
// The leader must call leave.
func (s *starts) enter(key, params string) (call *startCall, leader bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if call := s.work[key]; call != nil {
		return call, false
	}
	call = &startCall{params: params, done: make(chan struct{})}
	s.work[key] = call
	return call, true
}

func (s *starts) leave(key string, call *startCall) {
	s.mu.Lock()
	delete(s.work, key)
	s.mu.Unlock()
	close(call.done)
}

// find returns the reservation under key; nil when there is none.
func (s *starts) find(ctx context.Context, key string) (*reservation, error) {
	bucket, err := s.open()
	if err != nil {
		return nil, err
	}
	e, err := bucket.Get(ctx, key)
	if errors.Is(err, journal.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	there := &reservation{revision: e.Revision}
	if err := json.Unmarshal(e.Value, there); err != nil {
		return nil, fmt.Errorf("decode start reservation: %w", err)
	}
	return there, nil
}

// reserve stores r under key, in the place of old if there was one.
func (s *starts) reserve(ctx context.Context, key string, old *reservation, r reservation) error {
	bucket, err := s.open()
	if err != nil {
		return err
	}
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode start reservation: %w", err)
	}
	var rev uint64
	if old != nil {
		rev = old.revision
	}
	_, err = bucket.PutOver(ctx, key, value, rev)
	return err
}

// remove makes the command id of a failed start free again, unless another start has
// taken the reservation over since.
func (s *starts) remove(ctx context.Context, key string, r reservation) error {
	bucket, err := s.open()
	if err != nil {
		return err
	}
	if err := bucket.DeleteAt(ctx, key, r.revision); !errors.Is(err, journal.ErrRevision) {
		return err
	}
	return nil
}

// free is remove of the reservation that a session's start made.
func (s *starts) free(ctx context.Context, rec *protocol.SessionRecord) error {
	if rec.StartKey == "" {
		return nil
	}
	there, err := s.find(ctx, rec.StartKey)
	if err != nil || there == nil || there.SessionID != rec.ID || there.At != rec.CreatedAt {
		return err
	}
	return s.remove(ctx, rec.StartKey, *there)
}

// reservations are those of the bucket, by key.
type reservations map[string]reservation

// take takes in an entry of the bucket; one that goes while they are read is none.
func (all reservations) take(e journal.Entry) error {
	if e.Deleted {
		delete(all, e.Key)
		return nil
	}
	r := reservation{revision: e.Revision}
	if err := json.Unmarshal(e.Value, &r); err != nil {
		return fmt.Errorf("decode start reservation: %w", err)
	}
	all[e.Key] = r
	return nil
}

// all returns every reservation.
func (s *starts) all(ctx context.Context) (reservations, error) {
	out := make(reservations)
	var bad error
	err := s.load(ctx, out.take, func(key string, err error) { bad = errors.Join(bad, fmt.Errorf("start reservation %s: %w", key, err)) })
	if err != nil {
		return nil, err
	}
	return out, bad
}

// startKey is the bucket's key of a start_session command; empty for none.
func startKey(workspace, commandID string) string {
	if commandID == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(commandID))
	return workspace + "." + hex.EncodeToString(sum[:])
}

// paramsHash names what a start_session asked for, but its command id.
func paramsHash(s StartParams) (string, error) {
	s.CommandID = ""
	b, err := json.Marshal(s) // struct order; maps by sorted key
	if err != nil {
		return "", fmt.Errorf("hash start parameters: %w", err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

func workspaceOf(key string) (string, bool) {
	ws, _, ok := strings.Cut(key, ".")
	return ws, ok
}
