package journal

// knownMax bounds the ends of logs that a hub remembers when nobody watches them any
// more: 200 B each, 3 MiB. When half of it is full the older half goes.
const knownMax = 16384

// known remembers where logs ended that are not watched any more, so that whoever
// looks again can tell a shorter one. The hub's mutex guards it.
type known struct{ young, old map[Log]Position }

// note remembers the end of l, unless a later one is known: what has been seen once
// is not taken back by a leader that was deposed.
func (k *known) note(l Log, p Position) {
	if old, ok := k.of(l); ok && !p.after(old) {
		p = old
	}
	if len(k.young) >= knownMax/2 {
		k.old, k.young = k.young, nil
	}
	if k.young == nil {
		k.young = make(map[Log]Position)
	}
	delete(k.old, l)
	k.young[l] = p
}

func (k *known) of(l Log) (Position, bool) {
	if p, ok := k.young[l]; ok {
		return p, true
	}
	p, ok := k.old[l]
	return p, ok
}

// after reports that p lies after o, in its epoch or in a later one.
func (p Position) after(o Position) bool {
	return p.Epoch > o.Epoch || p.Epoch == o.Epoch && p.Head > o.Head
}

// Known returns the latest position that a watch of l has here, or had as far as that is
// remembered. It asks nobody; ok is false when nothing is known.
func (h *Hub) Known(l Log) (p Position, ok bool) {
	h.mu.RLock()
	w := h.watches[l]
	p, ok = h.known.of(l)
	h.mu.RUnlock()
	if w != nil {
		if now := w.Position(); !ok || now.after(p) {
			return now, true
		}
	}
	return p, ok
}
