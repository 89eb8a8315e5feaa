package harness

import (
	"errors"
	"net"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestNetwork: hosts reach one another and the test, until they are cut.
func TestNetwork(t *testing.T) {
	n, why := NewNetwork(t)
	if why != "" {
		t.Skip(why)
	}
	a, b := n.Host("a"), n.Host("b")
	listening := net.JoinHostPort(b.Addr(), "7000")
	// A port that nobody listens on is refused at once by a host that is there.
	reaches := func(from *Host) bool {
		argv := from.Command("timeout", "1", "bash", "-c", "exec 3<>/dev/tcp/"+b.Addr()+"/7000")
		var exit *exec.ExitError
		return errors.As(exec.Command(argv[0], argv[1:]...).Run(), &exit) && exit.ExitCode() == 1 // refused; 124 is timeout's
	}
	if !reaches(a) {
		t.Fatal("a does not reach b")
	}
	if _, err := net.DialTimeout("tcp", listening, time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("the test does not reach b: %v", err)
	}
	n.Cut(a, b)
	if reaches(a) {
		t.Fatal("a reaches b across a cut")
	}
	if _, err := net.DialTimeout("tcp", listening, time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("a cut between two hosts is one for the test: %v", err)
	}
	n.Heal()
	if !reaches(a) {
		t.Fatal("a does not reach b after the cut")
	}
}
