package worker

import (
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"rejoin/tests/harness"
)

func TestStrays(t *testing.T) {
	o := &offspring{self: 2, group: 2, leaders: map[int]leadership{10: {start: 100, resigned: true}, 20: {start: 200, resigned: true}}}
	r := rollOf(
		process{pid: 10, ppid: 2, pgrp: 10, start: 100},
		process{pid: 20, ppid: 2, pgrp: 20, start: 200},
		process{pid: 30, ppid: 2, pgrp: 30, start: 150},                                   // younger than the first alone
		process{pid: 31, ppid: 2, pgrp: 31, start: 250},                                   // younger than both
		process{pid: 32, ppid: 2, pgrp: 20, start: 250},                                   // its group tells whose it is
		process{pid: 33, ppid: 2, pgrp: 33, start: 250, marked: true, mark: mark{"x", 1}}, // its mark tells
		process{pid: 34, ppid: 2, pgrp: 34, start: 250, dead: true},
		process{pid: 35, ppid: 2, pgrp: 2, start: 250}, // in our own group: the program's own
		process{pid: 36, ppid: 1, pgrp: 36, start: 250},
		process{pid: 37, ppid: 2, pgrp: 37, start: 50}, // older than both
	)
	of := func(leader int) []int {
		m := map[int]*process{}
		for _, p := range o.strays(r, o.leaders[leader].start) {
			m[p.pid] = p
		}
		return pidsOf(m)
	}
	if a, b := of(10), of(20); !slices.Equal(a, []int{30, 31}) || !slices.Equal(b, []int{31}) {
		t.Errorf("both at their end: %v, %v", a, b)
	}
	o.leaders[20] = leadership{start: 200}
	if a := of(10); !slices.Equal(a, []int{30}) {
		t.Errorf("the younger one lives: %v", a)
	}
	o.leaders[10] = leadership{start: 100}
	o.resign(20)
	if b := of(20); len(b) != 0 {
		t.Errorf("the older one lives: %v", b)
	}
	o.forget(10)
	if b := of(20); !slices.Equal(b, []int{31}) {
		t.Errorf("the older one is gone: %v", b)
	}
}

// A reaper takes orphans and nothing that has somebody who waits for it.
func TestReapTakesOrphansOnly(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Skipf("no subreaper: %v", err)
	}
	defer func() {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0); err != nil {
			t.Error(err)
		}
	}()
	o := newOffspring("none")
	waited := exec.Command("false") // in our own group
	if err := waited.Start(); err != nil {
		t.Fatal(err)
	}
	led := exec.Command("sh", "-c", "setsid sh -c 'setsid true & exit 0'; exit 7")
	led.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if _, err := o.fork(func() (int, error) {
		err := led.Start()
		return led.Process.Pid, err
	}); err != nil {
		t.Fatal(err)
	}
	zombies := func() (pids []int) {
		for _, pid := range childPIDs(os.Getpid()) {
			if isExited(pid) {
				pids = append(pids, pid)
			}
		}
		return pids
	}
	harness.Eventually(t, "all three are dead, and ours", func() bool { return len(zombies()) == 3 })
	if n := o.reap(); n != 1 {
		t.Errorf("reaped %d", n)
	}
	left := zombies()
	if len(left) != 2 || !slices.Contains(left, led.Process.Pid) || !slices.Contains(left, waited.Process.Pid) {
		t.Errorf("left are %v", left)
	}
	if err := waited.Wait(); err == nil || err.Error() != "exit status 1" {
		t.Errorf("waited: %v", err)
	}
	if err := led.Wait(); err == nil || err.Error() != "exit status 7" {
		t.Errorf("led: %v", err)
	}
	o.forget(led.Process.Pid)
	if n := o.reap(); n != 0 {
		t.Errorf("reaped %d more", n)
	}
}
