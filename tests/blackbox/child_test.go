package blackbox

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"rejoin/tests/harness"
)

// scriptChild obeys its arguments one after the other:
//
//	put TEXT          print bytes as they are
//	hex TEXT          print the bytes that TEXT encodes
//	count A B SIZE    print {"type":"t","n":A} … B, padded to about SIZE bytes
//	ticks N MS        print n=1 … N, MS milliseconds apart
//	endless SIZE      print numbered lines for ever
//	blob N SIZE       print a line of exactly SIZE bytes numbered N
//	fill BYTES        print so many x without LF
//	read              wait for one line of stdin
//	echo              print {"type":"got","line":"…"} for each line, up to the end of stdin
//	hold FILE         append each line of stdin to FILE, up to its end
//	stderr BYTES      write so much to stderr
//	pid FILE          write the process id
//	orphan FILE       leave a process in a session of its own that ignores SIGTERM
//	bomb N            keep N processes in sessions of their own alive for ever; at the first that cannot be made print how many there are as count does
//	deaf              ignore SIGTERM and SIGHUP
//	closestdin        close stdin
//	linger            live without reading
//	exit CODE         end
//	kill              end by SIGKILL
//	env NAME          print {"type":"env","value":"…"}
func scriptChild(args []string) int {
	s := &script{in: bufio.NewReader(os.Stdin), out: bufio.NewWriterSize(os.Stdout, 64<<10)}
	for len(args) > 0 {
		name := args[0]
		step, ok := steps[name]
		if !ok || len(args) < 1+step.args {
			fmt.Fprintf(os.Stderr, "no step %q with %d arguments\n", name, len(args)-1)
			return 2
		}
		err := step.do(s, args[1:1+step.args])
		if e := s.out.Flush(); err == nil {
			err = e
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "step %s: %v\n", name, err)
			return 1
		}
		args = args[1+step.args:]
	}
	return 0
}

type script struct {
	in  *bufio.Reader
	out *bufio.Writer
}

var steps = map[string]struct {
	args int
	do   func(s *script, a []string) error
}{
	"put":        {1, func(s *script, a []string) error { _, err := s.out.WriteString(a[0]); return err }},
	"hex":        {1, (*script).hex},
	"count":      {3, (*script).count},
	"ticks":      {2, (*script).ticks},
	"endless":    {1, (*script).endless},
	"blob":       {2, (*script).blob},
	"fill":       {1, (*script).fill},
	"read":       {0, func(s *script, _ []string) error { _, err := s.in.ReadString('\n'); return err }},
	"echo":       {0, (*script).echo},
	"hold":       {1, (*script).hold},
	"stderr":     {1, func(_ *script, a []string) error { return pad(os.Stderr, number(a[0]), "E") }},
	"pid":        {1, func(_ *script, a []string) error { return note(a[0], strconv.Itoa(os.Getpid())) }},
	"orphan":     {1, leaveOrphan},
	"bomb":       {1, (*script).bomb},
	"deaf":       {0, func(*script, []string) error { signal.Ignore(syscall.SIGTERM, syscall.SIGHUP); return nil }},
	"closestdin": {0, func(*script, []string) error { return os.Stdin.Close() }},
	"linger":     {0, func(*script, []string) error { <-time.After(10 * time.Minute); return nil }},
	"exit":       {1, func(s *script, a []string) error { return errors.Join(s.out.Flush(), exit(number(a[0]))) }},
	"kill": {0, func(s *script, _ []string) error {
		return errors.Join(s.out.Flush(), syscall.Kill(os.Getpid(), syscall.SIGKILL))
	}},
	"env": {1, func(s *script, a []string) error { return s.say(`{"type":"env","value":%q}`, os.Getenv(a[0])) }},
}

func exit(code int) error {
	os.Exit(code)
	return nil
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err) // the test wrote it
	}
	return n
}

func note(path, text string) error { return os.WriteFile(path, []byte(text), 0o600) }

func pad(w io.Writer, n int, with string) error {
	_, err := io.WriteString(w, strings.Repeat(with, n))
	return err
}

func (s *script) say(format string, a ...any) error {
	_, err := fmt.Fprintf(s.out, format+"\n", a...)
	return err
}

func (s *script) numbered(n, size int) error {
	if size == 0 {
		return s.say(`{"type":"t","n":%d}`, n)
	}
	return s.say(`{"type":"t","n":%d,"p":"%s"}`, n, strings.Repeat("z", size))
}

func (s *script) hex(a []string) error {
	b, err := hex.DecodeString(a[0])
	if err != nil {
		return err
	}
	_, err = s.out.Write(b)
	return err
}

func (s *script) count(a []string) error {
	for n := number(a[0]); n <= number(a[1]); n++ {
		if err := s.numbered(n, number(a[2])); err != nil {
			return err
		}
	}
	return nil
}

func (s *script) ticks(a []string) error {
	tick := time.NewTicker(time.Duration(number(a[1])) * time.Millisecond)
	defer tick.Stop()
	for n := 1; n <= number(a[0]); n++ {
		if err := s.numbered(n, 0); err != nil {
			return err
		}
		if err := s.out.Flush(); err != nil {
			return err
		}
		<-tick.C
	}
	return nil
}

func (s *script) endless(a []string) error {
	for n := 1; ; n++ {
		if err := s.numbered(n, number(a[0])); err != nil {
			return err
		}
	}
}

func (s *script) blob(a []string) error {
	head := fmt.Sprintf(`{"type":"blob","n":%d,"p":"`, number(a[0]))
	return s.say(`%s%s"}`, head, strings.Repeat("x", number(a[1])-len(head)-2))
}

func (s *script) fill(a []string) error {
	chunk := strings.Repeat("x", 1<<16)
	for left := number(a[0]); left > 0; left -= len(chunk) {
		if _, err := s.out.WriteString(chunk[:min(left, len(chunk))]); err != nil {
			return err
		}
	}
	return nil
}

func (s *script) echo([]string) error {
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return nil // the end of stdin
		}
		if err := s.say(`{"type":"got","line":%s}`, quote(strings.TrimSuffix(line, "\n"))); err != nil {
			return err
		}
		if err := s.out.Flush(); err != nil {
			return err
		}
	}
}

// quote is a JSON string with everything but quotes and backslashes as it is.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\t", `\t`, "\r", `\r`).Replace(s) + `"`
}

func (s *script) hold(a []string) error {
	if err := s.out.Flush(); err != nil {
		return err
	}
	f, err := os.OpenFile(a[0], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(f, s.in)
	return err
}

func leaveOrphan(_ *script, a []string) error {
	argv := harness.ChildArgv("orphan", a[0])
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	for { // it has noted its id: it ignores signals by now
		if _, err := os.Stat(a[0]); err == nil {
			return nil
		}
		<-time.After(5 * time.Millisecond)
	}
}

func orphanChild(args []string) int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
	if err := note(args[0], strconv.Itoa(os.Getpid())); err != nil {
		return 1
	}
	<-time.After(10 * time.Minute)
	return 0
}

// bomb starts what died again, so that no series of single kills ends it.
func (s *script) bomb(a []string) error {
	died := make(chan struct{})
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	said := false
	for live := 0; ; {
		for live < number(a[0]) {
			cmd := exec.Command("sleep", "600")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if err := cmd.Start(); err != nil {
				break
			}
			live++
			go func() {
				_ = cmd.Wait() // however it died
				died <- struct{}{}
			}()
		}
		if !said {
			if err := errors.Join(s.numbered(live, 0), s.out.Flush()); err != nil {
				return err
			}
			said = true
		}
		select {
		case <-died:
			live--
		case <-again.C:
		}
	}
}
