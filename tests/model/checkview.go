package model

import "fmt"

// CheckOrder (I-G1): in a subscription everything follows its response, events
// come in the order of seq, synced comes once and not before its head, and after
// the end nothing comes.
func CheckOrder(h *History) error {
	for _, v := range h.Views {
		if err := v.ordered(); err != nil {
			return fmt.Errorf("client %s: %w", v.Client, err)
		}
	}
	return nil
}

func (v *View) ordered() error {
	var attached, over, synced bool
	var last, head uint64
	var epoch, first string
	for i := range v.Frames {
		f := &v.Frames[i]
		switch {
		case over:
			return fmt.Errorf("%v %d came after the end", f.Kind, f.Seq)
		case f.Kind == Attached:
			attached, synced, last, head, epoch, first = true, false, f.Seq, f.Head, f.Epoch, f.Epoch
		case !attached:
			return fmt.Errorf("%v %d came before the response", f.Kind, f.Seq)
		case f.Kind == Snapshot:
			last, epoch = f.Seq, f.Epoch
		case f.Kind == Item:
			if f.Seq <= last {
				return fmt.Errorf("event %d came after %d", f.Seq, last)
			}
			last = f.Seq
		case f.Kind == Synced:
			if synced || f.Seq != last || f.Seq < head && epoch == first {
				return fmt.Errorf("synced at %d, delivered up to %d, head was %d, synced before: %v", f.Seq, last, head, synced)
			}
			synced = true
		default: // End, Unsubscribed
			over = true
		}
	}
	return nil
}

// CheckIsolation (I-A1): a subscription is told of its own session only, and a
// connection of its own subscriptions.
func CheckIsolation(h *History) error {
	for _, v := range h.Views {
		var sub uint64
		for i := range v.Frames {
			f := &v.Frames[i]
			if f.Kind == Unsubscribed {
				continue
			}
			if f.Session != v.Asked.Session {
				return fmt.Errorf("client %s asked for %s and got %v %d of %s", v.Client, v.Asked.Session, f.Kind, f.Seq, f.Session)
			}
			if sub == 0 {
				sub = f.Sub
			}
			if f.Sub != sub {
				return fmt.Errorf("client %s of subscription %d got %v %d of subscription %d", v.Client, sub, f.Kind, f.Seq, f.Sub)
			}
		}
	}
	return nil
}

// CheckExactlyOnce (I-J4): every event after the cursor exactly once, in order, or
// a snapshot that covers it; never a gap. A cursor inside the log of its epoch is
// answered by a replay; what until names is the last.
func CheckExactlyOnce(h *History) error {
	for _, v := range h.Views {
		if err := h.once(v); err != nil {
			return fmt.Errorf("client %s: %w", v.Client, err)
		}
	}
	return nil
}

func (h *History) once(v *View) error {
	var next uint64 // zero: a snapshot is due
	var epoch string
	var covered bool // the newest is a snapshot
	for i := range v.Frames {
		f := &v.Frames[i]
		switch f.Kind {
		case Attached:
			if err := h.answered(v, f); err != nil {
				return err
			}
			next, epoch = f.Seq+1, f.Epoch
			if f.Mode == "snapshot" {
				next = 0
			}
		case Snapshot:
			if next != 0 && f.Epoch == epoch && f.Seq+1 < next {
				return fmt.Errorf("a snapshot at %d although %d was delivered", f.Seq, next-1)
			}
			if next != 0 && f.Reason == "damaged" && !h.lost(epoch, next) {
				return fmt.Errorf("a damaged snapshot at %d although %d is not lost", f.Seq, next)
			}
			if next == 0 && f.Reason == "damaged" && !h.lostUpTo(f.Seq) {
				return fmt.Errorf("a damaged snapshot at %d although nothing before it is lost", f.Seq)
			}
			next, epoch, covered = f.Seq+1, f.Epoch, true
		case Item:
			covered = false
			if f.Seq != next {
				return fmt.Errorf("event %d came, %d was next", f.Seq, next)
			}
			next++
		case End:
			past := covered && f.Seq >= v.Asked.Until // a snapshot led across it
			if f.Reason == "until" && (v.Asked.Until == 0 || f.Seq != v.Asked.Until && !past || next != f.Seq+1) {
				return fmt.Errorf("until %d ended at %d, delivered up to %d", v.Asked.Until, f.Seq, next-1)
			}
		case Synced, Unsubscribed: // CheckOrder's
		}
	}
	return nil
}

// answered judges a response against the cursor that was asked for.
func (h *History) answered(v *View, f *Frame) error {
	if !v.Asked.Replay {
		return nil
	}
	switch {
	case f.Mode == "replay" && f.Seq == v.Asked.After && (v.Asked.Epoch == "" || v.Asked.Epoch == f.Epoch):
		return nil
	case f.Mode == "snapshot" && f.Reason == "epoch" && v.Asked.Epoch != "" && v.Asked.Epoch != f.Epoch:
		return nil
	case f.Mode == "snapshot" && (f.Reason == "damaged" || f.Reason == "trimmed") && h.lost(f.Epoch, v.Asked.After+1):
		return nil // what is lost of its beginning counts as trimmed
	}
	l := h.log(f.Epoch)
	if f.Mode == "snapshot" && f.Reason == "trimmed" && l != nil && v.Asked.After+1 < l.Floor {
		return nil
	}
	return fmt.Errorf("cursor (%s, %d) was answered by mode %s, after %d, reason %q in epoch %s", v.Asked.Epoch, v.Asked.After, f.Mode, f.Seq, f.Reason, f.Epoch)
}

// CheckAttach (I-S3): an attach in snapshot mode brings one snapshot first, then
// the events from the next seq on, or word that there are none yet, and no
// snapshot comes unasked.
func CheckAttach(h *History) error {
	for _, v := range h.Views {
		var due, fresh bool
		var at uint64
		for i := range v.Frames {
			f := &v.Frames[i]
			switch f.Kind {
			case Attached:
				due, fresh = f.Mode == "snapshot", false
			case Snapshot:
				if !due && f.Reason != "trimmed" && f.Reason != "epoch" && f.Reason != "damaged" {
					return fmt.Errorf("client %s: a snapshot at %d that was not due, reason %q", v.Client, f.Seq, f.Reason)
				}
				due, fresh, at = false, true, f.Seq
			case Item:
				if due {
					return fmt.Errorf("client %s: event %d came before the snapshot", v.Client, f.Seq)
				}
				if fresh && f.Seq != at+1 {
					return fmt.Errorf("client %s: snapshot at %d, then event %d", v.Client, at, f.Seq)
				}
				fresh = false
			case Synced:
				if fresh && f.Seq != at {
					return fmt.Errorf("client %s: snapshot at %d, then synced at %d", v.Client, at, f.Seq)
				}
			case End, Unsubscribed: // CheckOrder's
			}
		}
	}
	return nil
}

// CheckDurable (I-J2): what was acknowledged and what any client saw is in the
// log, at its seq, with its bytes; so is the last event of every state that was shown.
func CheckDurable(h *History) error {
	for _, v := range h.Views {
		epoch := ""
		for i := range v.Frames {
			f := &v.Frames[i]
			if f.Epoch != "" {
				epoch = f.Epoch
			}
			if h.lost(epoch, f.Seq) {
				continue
			}
			var err error
			switch f.Kind {
			case Item:
				err = h.holds(epoch, f)
			case Snapshot:
				err = h.reaches(epoch, f.Seq)
			case Attached, Synced, End, Unsubscribed: // CheckOrder's
			}
			if err != nil {
				return fmt.Errorf("client %s: %w", v.Client, err)
			}
		}
	}
	for _, s := range h.States {
		if err := h.reaches(s.Epoch, s.Seq); err != nil && !h.lost(s.Epoch, s.Seq) {
			return fmt.Errorf("get_snapshot: %w", err)
		}
	}
	admitted, err := h.admitted()
	if err != nil {
		return err
	}
	for id, c := range h.Commands {
		if seq := c.Acked(); seq != 0 && !admitted[id].has(seq) && !h.lostAnywhere(seq) {
			return fmt.Errorf("command %s was acknowledged at %d; the log has it at %v", id, seq, admitted[id])
		}
	}
	return nil
}

func (h *History) lostAnywhere(seq uint64) bool {
	for _, l := range h.Losses {
		if l.From <= seq && seq <= l.To {
			return true
		}
	}
	return false
}

// lostUpTo reports whether anything before an event was lost.
func (h *History) lostUpTo(seq uint64) bool {
	for _, l := range h.Losses {
		if l.From <= seq {
			return true
		}
	}
	return false
}

// reaches says that a state was shown of events that the log has.
func (h *History) reaches(epoch string, seq uint64) error {
	l := h.log(epoch)
	if l == nil {
		return fmt.Errorf("saw the state at %d of epoch %s, which the log does not know", seq, epoch)
	}
	if seq > l.Head() {
		return fmt.Errorf("saw the state at %d of epoch %s; the log ends with %d", seq, epoch, l.Head())
	}
	return nil
}

func (h *History) holds(epoch string, f *Frame) error {
	l := h.log(epoch)
	if l == nil {
		return fmt.Errorf("saw event %d of epoch %s, which the log does not know", f.Seq, epoch)
	}
	if f.Seq < l.Floor {
		return nil // trimmed
	}
	e := l.At(f.Seq)
	if e == nil {
		return fmt.Errorf("saw event %d of epoch %s; the log ends with %d", f.Seq, epoch, l.Head())
	}
	if e.Hash() != f.Hash {
		return fmt.Errorf("saw another event %d than the log has: %.200s", f.Seq, e.Body)
	}
	return nil
}

// CheckSameBytes (I-G3): over every transport an event is the same.
func CheckSameBytes(h *History) error {
	type place struct {
		epoch string
		seq   uint64
	}
	type seen struct {
		hash Hash
		by   string
	}
	first := map[place]seen{}
	for _, v := range h.Views {
		epoch := ""
		for i := range v.Frames {
			f := &v.Frames[i]
			if f.Epoch != "" {
				epoch = f.Epoch
			}
			if f.Kind != Item {
				continue
			}
			p := place{epoch, f.Seq}
			was, ok := first[p]
			if !ok {
				first[p] = seen{f.Hash, v.Client + " over " + v.Transport}
			} else if was.hash != f.Hash {
				return fmt.Errorf("event %d of epoch %s differs between %s and %s over %s", f.Seq, epoch, was.by, v.Client, v.Transport)
			}
		}
	}
	return nil
}
