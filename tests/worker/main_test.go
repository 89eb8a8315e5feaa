package worker_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rejoin/tests/harness"
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Children{
		"echo":     echo,
		"print":    printRaw,
		"count":    count,
		"long":     long,
		"deaf":     deaf,
		"noinput":  noInput,
		"stubborn": stubborn,
		"leaver":   leaver,
		"kin":      kin,
		"sleeper":  sleeper,
		"stderr":   stderrFlood,
		"flood":    flood,
		"ticker":   ticker,
		"env":      env,
		"spawner":  spawner,
		"server":   server,
		"pi":       fakePi,
	})
}

// block waits for a signal that ends the process.
func block() int {
	r, _, err := os.Pipe()
	if err != nil {
		return 3
	}
	_, _ = r.Read(make([]byte, 1))
	return 0
}

// holdUntilEOF reads and forgets.
func holdUntilEOF() int {
	buf := make([]byte, 4096)
	for {
		if _, err := os.Stdin.Read(buf); err != nil {
			return 0
		}
	}
}

func echo([]string) int {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			_, _ = os.Stdout.Write(line)
		}
		if err != nil {
			return 0
		}
	}
}

// printRaw prints the decoded first argument, then holds; with a second one it
// exits with that status.
func printRaw(args []string) int {
	b, err := base64.StdEncoding.DecodeString(args[0])
	if err != nil {
		return 3
	}
	_, _ = os.Stdout.Write(b)
	if len(args) > 1 {
		status, _ := strconv.Atoi(args[1])
		return status
	}
	return holdUntilEOF()
}

func count(args []string) int {
	n, _ := strconv.Atoi(args[0])
	out := bufio.NewWriterSize(os.Stdout, 64<<10)
	for i := 1; i <= n; i++ {
		fmt.Fprintf(out, "{\"n\":%d}\n", i)
	}
	_ = out.Flush()
	return 0
}

func long(args []string) int {
	n, _ := strconv.Atoi(args[0])
	line := append(bytes.Repeat([]byte("x"), n), '\n')
	_, _ = os.Stdout.Write(line)
	fmt.Println(`{"after":true}`)
	return 0
}

func deaf([]string) int {
	fmt.Println(`{"ready":true}`)
	return block()
}

func noInput([]string) int {
	_ = os.Stdin.Close()
	fmt.Println(`{"ready":true}`)
	return block()
}

// grandchild starts a sleeper in a session of its own.
func grandchild(keepStdout bool, environ []string) (int, error) {
	cmd := exec.Command(os.Args[0], "harness-child", "sleeper")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Env = environ
	if keepStdout {
		cmd.Stdout = os.Stdout
	}
	ready, theirs, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	if _, err := ready.Read(make([]byte, 1)); err != nil { // it ignores TERM from here on
		return 0, err
	}
	return cmd.Process.Pid, nil
}

func stubborn([]string) int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
	pid, err := grandchild(false, nil)
	if err != nil {
		return 3
	}
	fmt.Printf("{\"pid\":%d,\"grandchild\":%d}\n", os.Getpid(), pid)
	return block()
}

// kin echoes, beside a grandchild.
func kin([]string) int {
	pid, err := grandchild(false, nil)
	if err != nil {
		return 3
	}
	fmt.Printf("{\"pid\":%d,\"grandchild\":%d}\n", os.Getpid(), pid)
	return echo(nil)
}

// leaver exits and leaves a grandchild that has its stdout; with "hidden" the
// grandchild carries no mark.
func leaver(args []string) int {
	var environ []string
	if len(args) > 0 && args[0] == "hidden" {
		environ = []string{"PATH=/bin"}
	}
	pid, err := grandchild(true, environ)
	if err != nil {
		return 3
	}
	fmt.Printf("{\"grandchild\":%d}\n", pid)
	return 7
}

func sleeper([]string) int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
	if _, err := os.NewFile(3, "ready").Write([]byte{1}); err != nil {
		return 3
	}
	return block()
}

func stderrFlood([]string) int {
	for range 80 {
		_, _ = os.Stderr.Write(bytes.Repeat([]byte("E"), 64<<10))
	}
	_, _ = os.Stderr.WriteString("the end\n")
	fmt.Println(`{"ready":true}`)
	return holdUntilEOF()
}

func flood([]string) int {
	out := bufio.NewWriterSize(os.Stdout, 64<<10)
	line := strings.Repeat("f", 1000)
	for i := 1; ; i++ {
		if _, err := fmt.Fprintf(out, "{\"n\":%d,\"t\":\"%s%d\"}\n", i, line, i*7919); err != nil {
			return 1
		}
	}
}

// ticker prints numbers, a hundred a second.
func ticker([]string) int {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i := 1; ; i++ {
		if _, err := fmt.Printf("{\"n\":%d}\n", i); err != nil {
			return 1
		}
		<-tick.C
	}
}

func env([]string) int {
	for _, kv := range os.Environ() {
		fmt.Printf("%q\n", kv)
	}
	return holdUntilEOF()
}

// spawner starts a marked process with a grandchild, says so, and waits to be killed.
func spawner([]string) int {
	cmd := exec.Command(os.Args[0], "harness-child", "stubborn")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdout = os.Stdout
	if err := cmd.Start(); err != nil {
		return 3
	}
	return block()
}
