package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	"rejoin/protocol"
)

// Encode returns the bytes of a state as clients receive and hash them. Equal
// states give equal bytes: the members stand in the order of the struct, there
// is no map in it, and no white space.
func Encode(s *protocol.State) []byte {
	return appendState(make([]byte, 0, roughly(s)), s)
}

// roughly is about how many bytes a state takes.
func roughly(s *protocol.State) int {
	n := 1024
	for i := range s.Items {
		it := &s.Items[i]
		n += 192 + len(it.Text)
		if it.Tool != nil {
			n += 128 + len(it.Tool.Args) + len(it.Tool.Output)
		}
	}
	return n + n/16
}

// Decode is the inverse of Encode: bytes that Encode does not make are an error.
func Decode(state []byte) (*protocol.State, error) {
	s := New("")
	if err := json.Unmarshal(state, s); err != nil {
		return nil, fmt.Errorf("snapshot: decode state: %w", err)
	}
	if !bytes.Equal(Encode(s), state) {
		return nil, fmt.Errorf("snapshot: decode state: %w", errNotCanonical)
	}
	return s, nil
}

// Hash returns the stateHash of encoded state: its sha256 in lower-case hex.
func Hash(state []byte) string {
	sum := sha256.Sum256(state)
	return hex.EncodeToString(sum[:])
}

// appendState appends s as encoding/json would, an order of magnitude faster:
// checkpoints are encoded under the session's lock.
func appendState(b []byte, s *protocol.State) []byte {
	b = appendText(b, `{"sessionId":`, s.SessionID)
	b = appendText(b, `,"epoch":`, string(s.Epoch))
	b = appendUint(b, `,"seq":`, uint64(s.Seq))
	b = appendUint(b, `,"run":`, uint64(s.Run))
	b = appendText(b, `,"status":`, string(s.Status))
	b = append(b, `,"turn":`...)
	if s.Turn == nil {
		b = append(b, `null`...)
	} else {
		b = appendText(b, `{"id":`, s.Turn.ID)
		b = append(appendUint(b, `,"startedSeq":`, uint64(s.Turn.StartedSeq)), '}')
	}
	b = appendText(b, `,"agent":{"name":`, s.Agent.Name)
	b = appendText(b, `,"adapter":`, s.Agent.Adapter)
	b = append(appendSome(b, `,"model":`, s.Agent.Model), '}')
	b = appendSome(b, `,"title":`, s.Title)
	b = appendList(b, `,"items":`, s.Items, appendItem)
	b = appendUint(b, `,"itemsDropped":`, s.ItemsDropped)
	b = appendList(b, `,"pending":`, s.Pending, appendInteraction)
	b = appendList(b, `,"queue":{"steering":`, s.Queue.Steering, appendPlain)
	b = append(appendList(b, `,"followUp":`, s.Queue.FollowUp, appendPlain), '}')
	if s.Usage != nil {
		b = appendOdd(b, `,"usage":`, s.Usage)
	}
	if s.Exit != nil {
		b = appendOdd(b, `,"exit":`, s.Exit)
	}
	if s.Extra != nil {
		b = appendOdd(b, `,"extra":`, s.Extra)
	}
	return append(b, '}')
}

func appendItem(b []byte, it *protocol.Item) []byte {
	b = appendText(b, `{"id":`, it.ID)
	b = appendText(b, `,"kind":`, string(it.Kind))
	b = appendSome(b, `,"text":`, it.Text)
	if t := it.Tool; t != nil {
		b = appendText(b, `,"tool":{"name":`, t.Name)
		b = appendText(b, `,"callId":`, t.CallID)
		b = appendText(b, `,"args":`, t.Args)
		b = appendText(b, `,"output":`, t.Output)
		b = strconv.AppendBool(append(b, `,"isError":`...), t.IsError)
		if t.ArgsTruncated != 0 {
			b = appendUint(b, `,"argsTruncated":`, t.ArgsTruncated)
		}
		b = append(b, '}')
	}
	b = appendText(b, `,"status":`, it.Status)
	b = appendUint(b, `,"firstSeq":`, uint64(it.FirstSeq))
	b = appendUint(b, `,"lastSeq":`, uint64(it.LastSeq))
	b = strconv.AppendInt(append(b, `,"ts":`...), it.TS, 10)
	if it.Truncated != 0 {
		b = appendUint(b, `,"truncated":`, it.Truncated)
	}
	return append(b, '}')
}

func appendInteraction(b []byte, p *protocol.Interaction) []byte {
	b = appendText(b, `{"interactionId":`, p.InteractionID)
	b = appendText(b, `,"kind":`, p.Kind)
	b = appendText(b, `,"title":`, p.Title)
	b = appendSome(b, `,"message":`, p.Message)
	if p.Truncated != 0 {
		b = appendUint(b, `,"truncated":`, p.Truncated)
	}
	if len(p.Options) > 0 {
		b = appendList(b, `,"options":`, p.Options, func(b []byte, o *protocol.Option) []byte {
			b = appendText(b, `{"id":`, o.ID)
			return append(appendText(b, `,"label":`, o.Label), '}')
		})
	}
	if p.OptionsOmitted != 0 {
		b = appendUint(b, `,"optionsOmitted":`, p.OptionsOmitted)
	}
	b = appendSome(b, `,"tool":`, p.Tool)
	b = appendUint(b, `,"seq":`, uint64(p.Seq))
	b = strconv.AppendInt(append(b, `,"ts":`...), p.TS, 10)
	if p.Deadline != 0 {
		b = strconv.AppendInt(append(b, `,"deadline":`...), p.Deadline, 10)
	}
	return append(b, '}')
}

func appendPlain(b []byte, s *string) []byte { return protocol.AppendString(b, *s) }

func appendText(b []byte, name, v string) []byte {
	return protocol.AppendString(append(b, name...), v)
}

// appendSome appends a member that is left out when it is empty.
func appendSome(b []byte, name, v string) []byte {
	if v == "" {
		return b
	}
	return appendText(b, name, v)
}

func appendUint(b []byte, name string, v uint64) []byte {
	return strconv.AppendUint(append(b, name...), v, 10)
}

func appendList[T any](b []byte, name string, list []T, one func([]byte, *T) []byte) []byte {
	b = append(append(b, name...), '[')
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = one(b, &list[i])
	}
	return append(b, ']')
}

// appendOdd appends one of the small members that are not worth a routine.
func appendOdd(b []byte, name string, v any) []byte {
	buf := bytes.NewBuffer(append(b, name...))
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("snapshot: a state that cannot be encoded: " + err.Error()) // State holds nothing that can fail
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte{'\n'})
}
