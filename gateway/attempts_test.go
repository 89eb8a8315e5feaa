package gateway

import (
	"net/netip"
	"testing"
	"time"

	"rejoin/protocol"
)

func TestAttempts(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	one, ok := sourceOf("tcp 192.0.2.1:5000")
	if !ok {
		t.Fatal("an address has no source")
	}
	a := newAttempts(3)
	for range 2 {
		a.failed(one, now)
	}
	if a.banned(one, now) {
		t.Error("banned before the last")
	}
	a.failed(one, now.Add(protocol.AuthFailureWindow-1))
	if !a.banned(one, now.Add(protocol.AuthFailureWindow-1)) {
		t.Error("not banned after the last")
	}
	if a.banned(one, now.Add(protocol.AuthFailureWindow)) {
		t.Error("banned after the window")
	}
	a.failed(one, now.Add(protocol.AuthFailureWindow))
	if a.banned(one, now.Add(protocol.AuthFailureWindow)) {
		t.Error("the window before counts")
	}
}

// The table keeps its bound, and what is new.
func TestAttemptsAreBounded(t *testing.T) {
	a := newAttempts(1)
	now := time.Now()
	first := netip.MustParsePrefix("192.0.2.1/32")
	for i := range protocol.AuthSourcesMax + 10 {
		forgot := a.failed(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32), now)
		if i == 5 {
			a.failed(first, now)
		}
		if want := i >= protocol.AuthSourcesMax-1; forgot != want { // first has a place, too
			t.Fatalf("source %d: forgot another: %v, want %v", i, forgot, want)
		}
	}
	a.failed(netip.MustParsePrefix("10.0.1.0/32"), now) // moves it to the front
	if len(a.sources) != protocol.AuthSourcesMax || a.recent.Len() != protocol.AuthSourcesMax {
		t.Errorf("%d and %d sources", len(a.sources), a.recent.Len())
	}
	if a.banned(first, now) {
		t.Error("the oldest is kept")
	}
	if !a.banned(netip.MustParsePrefix("10.0.1.0/32"), now) {
		t.Error("a new one is forgotten")
	}
}

func TestSources(t *testing.T) {
	for name, want := range map[string]string{
		"tcp 192.0.2.1:1":                "192.0.2.1/32",
		"tcp [::ffff:192.0.2.1]:1":       "192.0.2.1/32",
		"tcp [2001:db8:1:2:3:4:5:6]:1":   "2001:db8:1:2::/64",
		"tcp [::1]:1":                    "::1/128",
		"tcp [fe80::1%eth0]:1":           "fe80::/64",
		"unix @":                         "",
		"unix /run/rejoin.sock":          "",
		"stdio":                          "",
		"":                               "",
		"tcp [2001:db8:1:2:ffff::1]:900": "2001:db8:1:2::/64",
	} {
		got, ok := sourceOf(name)
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("%q: %v, %v; want %s", name, got, ok, want)
		}
	}
}
