package journal

import "testing"

type countingWaker struct{ woken int }

func (k *countingWaker) Wake() { k.woken++ }

func TestWakerSet(t *testing.T) {
	var s wakerSet
	ks := []*countingWaker{{}, {}, {}}
	wants := func(what string, woken ...int) {
		t.Helper()
		for _, k := range ks {
			k.woken = 0
		}
		s.wake()
		for i, k := range ks {
			if k.woken != woken[i] {
				t.Errorf("%s: waker %d was woken %d times, want %d", what, i, k.woken, woken[i])
			}
		}
	}
	s.remove(ks[0])
	wants("nobody", 0, 0, 0)
	s.add(ks[0])
	s.add(ks[0])
	wants("one, twice", 1, 0, 0)
	s.add(ks[1])
	s.add(ks[1])
	s.add(ks[2])
	wants("three", 1, 1, 1)
	s.remove(ks[0])
	wants("the first once more", 1, 1, 1)
	s.remove(ks[0])
	wants("without the first", 0, 1, 1)
	s.add(ks[1])
	s.remove(ks[1])
	s.remove(ks[1])
	wants("the second once more", 0, 1, 1)
	s.add(ks[0])
	wants("another first", 1, 1, 1)
	s.remove(ks[1])
	s.remove(ks[2])
	wants("the first alone", 1, 0, 0)
	s.remove(ks[0])
	s.remove(ks[0])
	wants("nobody any more", 0, 0, 0)
}
