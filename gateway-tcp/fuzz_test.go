package gatewaytcp

import (
	"strings"
	"testing"
)

// FuzzParseURL: a URL is refused by name, or becomes an endpoint that makes sense.
func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"tcp://127.0.0.1:1", "tls://[::1]:0?dialect=native", "unix:///a/b?auth=peer", "unix://x", "tcp://:99999", "tcp://h:1#x", "%", "unix:///a%00b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		e, err := ParseURL(raw)
		if err != nil {
			if !strings.HasPrefix(err.Error(), raw+": ") {
				t.Errorf("%q: %v", raw, err)
			}
			return
		}
		switch {
		case e.Scheme != SchemeTCP && e.Scheme != SchemeTLS && e.Scheme != SchemeUnix, e.Address == "", e.Dialect != DialectNative:
			t.Errorf("%q: %+v", raw, e)
		case e.Auth == AuthPeer && e.Scheme != SchemeUnix:
			t.Errorf("%q: peers of %s", raw, e.Scheme)
		case e.Scheme == SchemeUnix && !strings.HasPrefix(e.Address, "/"):
			t.Errorf("%q: a relative path %q", raw, e.Address)
		}
	})
}
