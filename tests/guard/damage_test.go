package guard_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"testing"

	"rejoin/protocol"
	"rejoin/tests/logs"
)

// A case of damage to the store of a killed process.
type damageCase struct {
	name   string
	damage func(t *testing.T, dir string)
	holes  int  // at most, in all sessions
	events int  // at most lost in them
	keeps  int  // percent at least of the acknowledged events at the beginning of a log of J0; zero: all
	silent bool // nothing can tell that anything is gone
	fault  func(step string) error
}

func newestOf(t *testing.T, dir string) string {
	b := blocks(t, dir, "J0")
	return b[len(b)-1]
}

func flip(t *testing.T, path string, at func([]byte) int) {
	change(t, path, func(b []byte) []byte { b[at(b)] ^= 0x10; return b })
}

func zeroPage(t *testing.T, path string) {
	change(t, path, func(b []byte) []byte {
		at := len(b) / 4 / 4096 * 4096
		clear(b[at : at+4096])
		return b
	})
}

func replaceByDirectory(t *testing.T, path string) {
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
}

const anyNumber = 1 << 30

var damageCases = []damageCase{
	{name: "none", damage: func(*testing.T, string) {}, silent: true},
	{
		name: "flip in the newest block", holes: 1, events: 1024,
		damage: func(t *testing.T, dir string) { flip(t, newestOf(t, dir), func(b []byte) int { return len(b) / 2 }) },
	},
	{
		name: "flip in an older block", holes: 1, events: 1024,
		damage: func(t *testing.T, dir string) {
			flip(t, blocks(t, dir, "J0")[1], func(b []byte) int { return len(b) / 3 })
		},
	},
	{
		name: "flip in the first record of all", holes: 1, events: 1024,
		damage: func(t *testing.T, dir string) { flip(t, blocks(t, dir, "J0")[0], func([]byte) int { return 100 }) },
	},
	{
		name: "length fields",
		damage: func(t *testing.T, dir string) {
			for _, path := range []string{newestOf(t, dir), blocks(t, dir, "J1")[0]} {
				change(t, path, func(b []byte) []byte {
					for _, part := range []int{2, 3, 4} {
						at := recordAt(b, len(b)/part)
						binary.LittleEndian.PutUint32(b[at:], binary.LittleEndian.Uint32(b[at:])^1<<uint(part*4))
					}
					return b
				})
			}
		},
	},
	{
		name: "zeroed page in the newest block", holes: 8, events: anyNumber,
		damage: func(t *testing.T, dir string) { zeroPage(t, newestOf(t, dir)) },
	},
	{
		name: "zeroed page in an older block", holes: 8, events: anyNumber,
		damage: func(t *testing.T, dir string) { zeroPage(t, blocks(t, dir, "J1")[0]) },
	},
	{
		name: "newest block truncated", keeps: 50, silent: true,
		damage: func(t *testing.T, dir string) {
			change(t, newestOf(t, dir), func(b []byte) []byte { return b[:len(b)-5000] })
		},
	},
	{
		name: "older block truncated", holes: 8, events: anyNumber,
		damage: func(t *testing.T, dir string) {
			change(t, blocks(t, dir, "J0")[0], func(b []byte) []byte { return b[:len(b)-5000] })
		},
	},
	{
		name: "older block deleted", holes: 8, events: anyNumber,
		damage: func(t *testing.T, dir string) {
			if err := os.Remove(blocks(t, dir, "J0")[1]); err != nil {
				t.Fatal(err)
			}
		},
	},
	{
		name: "older block is a directory", holes: 8, events: anyNumber,
		damage: func(t *testing.T, dir string) { replaceByDirectory(t, blocks(t, dir, "J0")[1]) },
	},
	{
		name: "newest block is a directory", keeps: 25,
		damage: func(t *testing.T, dir string) { replaceByDirectory(t, newestOf(t, dir)) },
	},
	{
		name: "hard links fail", holes: 1, events: 1024,
		damage: func(t *testing.T, dir string) { flip(t, newestOf(t, dir), func(b []byte) int { return len(b) / 2 }) },
		fault: func(step string) error {
			if step == "link" {
				return fmt.Errorf("links are not supported here")
			}
			return nil
		},
	},
}

// TestDamage: a process that writes several sessions is killed, its store is
// damaged, and a start finds every record that is not damaged itself, in its
// place; the holes it tells of are the holes there are.
func TestDamage(t *testing.T) {
	store, acked := killedStore(t)
	for _, c := range damageCases {
		t.Run(c.name, func(t *testing.T) {
			dir := copied(t, store)
			c.damage(t, dir)
			cfg := config(dir, nil)
			cfg.GuardFault = c.fault
			n := start(t, cfg)
			if found := len(n.Damage()) > 0; found == c.silent {
				t.Errorf("damage %+v", n.Damage())
			}
			holes, events := 0, protocol.Seq(0)
			for session, seq := range acked {
				gone, head := read(t, n, session)
				least := protocol.Seq(seq)
				if c.keeps > 0 && logs.Of(n, session).Shard == 0 {
					least = max(least*protocol.Seq(c.keeps)/100, 1)
				}
				if head < least {
					t.Errorf("%s: head %d, acknowledged %d", session, head, seq)
				}
				if got, want := fmt.Sprint(said(n.Damage(), session)), fmt.Sprint(gone); got != want {
					t.Errorf("%s: holes %s, told of %s", session, want, got)
				}
				holes += len(gone)
				events += missing(gone)
			}
			if holes > c.holes || events > protocol.Seq(c.events) {
				t.Errorf("%d holes with %d events, want at most %d with %d", holes, events, c.holes, c.events)
			}
			if c.holes > 0 && holes == 0 {
				t.Error("nothing is missing: the damage did not hit")
			}
			t.Logf("%d holes with %d events; %+v", holes, events, n.Damage())
			goesOn(t, cfg, n, "s1")
		})
	}
}
