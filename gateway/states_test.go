package gateway

import (
	"context"
	"strings"
	"testing"

	"rejoin/protocol"
)

func TestStatesOfThePast(t *testing.T) {
	w := newFakeWorld("s")
	w.logs["s"].append(9, 1)
	w.logs["s"].set(func() { w.logs["s"].floor = 4 })
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		for _, at := range []string{"3", "9"} {
			l.write(`{"id":1,"method":"get_snapshot","params":{"sessionId":"s","at":%s,"epoch":"%s"}}`, at, testEpoch)
			if got := l.line(); !strings.Contains(got, `"seq":`+at+`,`) {
				t.Errorf("at %s: %s", at, got)
			}
		}
		outside := `"error":{"code":-32010,"message":"states are kept from 3 to 9","data":{"reason":"trimmed","retryable":false,"head":9,"floor":4,"epoch":"` + string(testEpoch) + `"}}`
		for _, at := range []string{"2", "10", "18446744073709551615"} {
			l.write(`{"id":1,"method":"get_snapshot","params":{"sessionId":"s","at":%s}}`, at)
			if got := l.line(); !strings.Contains(got, outside) {
				t.Errorf("at %s: %s", at, got)
			}
		}
		for _, params := range []string{`{"sessionId":"s","at":5,"epoch":"x"}`, `{"sessionId":"s","epoch":"x"}`} {
			l.write(`{"id":1,"method":"get_snapshot","params":%s}`, params)
			if got := l.line(); !strings.Contains(got, `"reason":"epoch"`) {
				t.Errorf("%s: %s", params, got)
			}
		}
	})
}

func TestVerifyExpectedHead(t *testing.T) {
	w := newFakeWorld("s")
	w.logs["s"].append(3, 1)
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		right := strings.Repeat("0", 63) + "3"
		for sum, want := range map[string]string{right: `"clean":true`, strings.Repeat("0", 64): `"clean":false`} {
			l.write(`{"id":1,"method":"verify_session","params":{"sessionId":"s","expectHead":{"epoch":"%s","seq":3,"sha256":"%s"}}}`, testEpoch, sum)
			if got := l.line(); !strings.Contains(got, want) || strings.Contains(got, `"problems":["another"]`) != (sum != right) {
				t.Errorf("%s: %s", sum, got)
			}
		}
		for _, params := range []string{`7`, `{"epoch":1,"seq":3,"sha256":"` + right + `"}`, `{"seq":-1,"sha256":"` + right + `"}`, `{"sha256":"` + right[2:] + `"}`, `{"sha256":"` + right + `00"}`, `{"sha256":"` + right[1:] + `g"}`, `{}`} {
			l.fails("verify_session", `{"sessionId":"s","expectHead":`+params+`}`, protocol.CodeInvalidParams)
		}
	})
}

func TestVerifySession(t *testing.T) {
	w := newFakeWorld("s")
	w.logs["s"].append(3, 1)
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		enough := make(chan struct{})
		w.verify = func(ctx context.Context) {
			select {
			case <-enough:
			case <-ctx.Done():
			}
		}
		l := dial(t, s, false)
		defer l.close()
		for range protocol.VerifiesMax {
			l.call("verify_session", `{"sessionId":"s"}`)
		}
		l.quiet()
		l.fails("verify_session", `{"sessionId":"s"}`, protocol.CodeOverloaded)
		wantMet(t, s, "VerifiesMax", 1)
		close(enough)
		for range protocol.VerifiesMax {
			if got, want := l.line(), `"result":{"sessionId":"s","clean":true,"epoch":"`+string(testEpoch)+`","floor":1,"head":3,"events":0,"checkpoints":0,"compared":0,"otherFold":0,"commands":0,"stateHash":"","chain":"","problems":[]}}`; !strings.Contains(got, want) {
				t.Errorf("got %s", got)
			}
		}
		w.role = 0
		o := dial(t, s, false)
		defer o.close()
		o.fails("verify_session", `{"sessionId":"s"}`, protocol.CodeForbidden)
	})
}
