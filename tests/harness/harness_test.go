package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m, nil) }

const epoch = "01JAAAAAAAAAAAAAAAAAAAAAAA"

// event returns an event notification of subscription 1.
func event(seq int, more string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"event","params":{"subscriptionId":1,"sessionId":"s",%s"seq":%d,"ts":1,"run":1,"source":"child","event":{"n":%d}}}`, more, seq, seq)
}

func attached(mode, more string, after, head int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":{"subscriptionId":1,"sessionId":"s","status":"subscribed","mode":%q,"epoch":%q,"after":%d,"head":%d%s}}`, mode, epoch, after, head, more)
}

func synced(seq int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"synced","params":{"subscriptionId":1,"sessionId":"s","seq":%d}}`, seq)
}

const emptyHash = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a" // sha256 of {}

func snapshot(seq int, reason, hash string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"snapshot","params":{"subscriptionId":1,"sessionId":"s","epoch":%q,"seq":%d,"stateHash":%q,"reason":%q,"state":{}}}`, epoch, seq, hash, reason)
}

// TestStreamFindsBreaches hands the client histories that were made by hand; the
// oracle of every other suite is worth what it finds here.
func TestStreamFindsBreaches(t *testing.T) {
	over := `{"jsonrpc":"2.0","method":"subscription_end","params":{"subscriptionId":1,"sessionId":"s","seq":1,"reason":"until"}}`
	for _, c := range []struct {
		name  string
		lines []string
		want  error // nil: a good history
	}{
		{"replay", []string{attached("replay", "", 0, 2), event(1, ""), event(2, ""), synced(2), event(3, "")}, nil},
		{"live", []string{attached("live", "", 7, 7), synced(7), event(8, "")}, nil},
		{"snapshot", []string{attached("snapshot", `,"reason":"future"`, 9, 5), snapshot(5, "future", emptyHash), synced(5), event(6, "")}, nil},
		{"later snapshot", []string{attached("replay", "", 0, 1), event(1, ""), synced(1), snapshot(9, "damaged", emptyHash), event(10, `"epoch":"`+epoch+`",`), event(11, "")}, nil},
		{"gap", []string{attached("replay", "", 0, 3), event(1, ""), event(3, "")}, ErrBrokeDense},
		{"gap at the start", []string{attached("replay", "", 4, 9), event(6, "")}, ErrBrokeDense},
		{"repetition", []string{attached("replay", "", 0, 3), event(1, ""), event(1, "")}, ErrBrokeOnce},
		{"before the cursor", []string{attached("replay", "", 4, 9), event(4, "")}, ErrBrokeOnce},
		{"no snapshot", []string{attached("snapshot", `,"reason":"future"`, 9, 5), event(6, "")}, ErrBrokeAttach},
		{"hole after the snapshot", []string{attached("snapshot", `,"reason":"future"`, 9, 5), snapshot(5, "future", emptyHash), event(7, "")}, ErrBrokeAttach},
		{"snapshot without need", []string{attached("replay", "", 0, 1), event(1, ""), snapshot(1, "requested", emptyHash)}, ErrBrokeAttach},
		{"wrong hash", []string{attached("snapshot", `,"reason":"future"`, 9, 5), snapshot(5, "future", strings.Repeat("0", 64))}, ErrBrokeShape},
		{"event before its response", []string{event(1, ""), attached("replay", "", 0, 1)}, errAny},
		{"event after the end", []string{attached("replay", "", 0, 1), event(1, ""), over, event(2, "")}, errAny},
		{"another session", []string{attached("replay", "", 0, 1), strings.Replace(event(1, ""), `"s"`, `"other"`, 1)}, ErrBrokeIsolate},
		{"run goes down", []string{attached("replay", "", 0, 2), strings.Replace(event(1, ""), `"run":1`, `"run":2`, 1), event(2, "")}, ErrBrokeRuns},
		{"synced too early", []string{attached("replay", "", 0, 2), event(1, ""), synced(1)}, ErrBrokeOrder},
		{"synced twice", []string{attached("replay", "", 0, 1), event(1, ""), synced(1), synced(1)}, ErrBrokeOrder},
		{"epoch without a snapshot", []string{attached("replay", "", 0, 2), event(1, `"epoch":"`+epoch+`",`)}, ErrBrokeShape},
		{"two answers", []string{attached("replay", "", 0, 0), attached("replay", "", 0, 0)}, errAny},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := play(t, c.lines)
			switch {
			case c.want == nil && got != nil:
				t.Fatalf("a good history was refused: %v", got)
			case c.want != nil && got == nil:
				t.Fatalf("the breach was not found, want %v", c.want)
			case c.want != nil && !errors.Is(c.want, errAny) && !errors.Is(got, c.want):
				t.Fatalf("got %v, want %v", got, c.want)
			}
		})
	}
}

var errAny = errors.New("any breach")

// play is a server that answers the first request with the lines and closes.
func play(t *testing.T, lines []string) error {
	t.Helper()
	near, far := net.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer far.Close()
		if _, err := bufio.NewReader(far).ReadString('\n'); err != nil {
			t.Errorf("the scripted server: %v", err)
			return
		}
		for _, l := range lines {
			if _, err := far.Write([]byte(l + "\n")); err != nil {
				return // the client has seen enough
			}
		}
	}()
	c := newClient(near, nil)
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	if _, err := c.Subscribe(ctx, "s", nil); err != nil && !errors.Is(err, ErrConnection) && c.Breach() == nil {
		t.Errorf("subscribe: %v", err)
	}
	<-c.Done()
	<-ended
	return c.Close()
}

func TestWithinStopsAtItsDeadline(t *testing.T) {
	if Within(20*time.Millisecond, func() bool { return false }) {
		t.Fatal("a condition that never holds was reported to hold")
	}
}

func TestLeakedFindsAGoroutine(t *testing.T) {
	stop := make(chan struct{})
	gone := make(chan struct{})
	go func() { <-stop; close(gone) }()
	if leaked(30*time.Millisecond) == "" {
		t.Error("a goroutine that is there was not found")
	}
	close(stop)
	<-gone
	if left := leaked(Patience); left != "" {
		t.Errorf("goroutines are reported though none is left:\n%s", left)
	}
}
