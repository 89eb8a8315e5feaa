package bench

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is the processor time that processes have used, user and system, to the
// nanosecond: /proc counts the same in ticks of 10 ms.
func cpuTime(pids []int) (time.Duration, error) {
	var sum time.Duration
	for _, pid := range pids {
		const schedClock = 2 // clock_getcpuclockid(3): ^pid<<3 | CPUCLOCK_SCHED
		var ts unix.Timespec
		if err := unix.ClockGettime(int32(^pid<<3|schedClock), &ts); err != nil {
			return 0, fmt.Errorf("processor time of %d: %w", pid, err)
		}
		sum += time.Duration(ts.Nano())
	}
	return sum, nil
}

// memory is a figure of /proc/PID/status, VmRSS or VmHWM, of all those processes in
// bytes.
func memory(pids []int, figure string) (float64, error) {
	var sum float64
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return 0, err
		}
		_, rest, found := bytes.Cut(b, []byte(figure+":"))
		fields := strings.Fields(string(rest))
		if !found || len(fields) == 0 {
			return 0, fmt.Errorf("/proc/%d/status has no %s", pid, figure)
		}
		kb, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			return 0, fmt.Errorf("%s of %d: %w", figure, pid, err)
		}
		sum += kb * 1024
	}
	return sum, nil
}

// Machine is what the figures come from.
type Machine struct {
	CPUs   int     `json:"cpus"`
	Kernel string  `json:"kernel"`
	Go     string  `json:"go"`
	Load   float64 `json:"load"`    // of the last minute, when the run began
	Fsync  float64 `json:"fsyncMs"` // median of writing 4 KiB and a fsync in the directory of the journals, ms
}

// ThisMachine describes it; dir is where the journals will be.
func ThisMachine(dir string) (Machine, error) {
	m := Machine{CPUs: runtime.NumCPU(), Go: runtime.Version()}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return m, fmt.Errorf("uname: %w", err)
	}
	m.Kernel = unix.ByteSliceToString(u.Release[:])
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return m, err
	}
	first, _, _ := strings.Cut(string(b), " ")
	if m.Load, err = strconv.ParseFloat(first, 64); err != nil {
		return m, fmt.Errorf("/proc/loadavg: %w", err)
	}
	m.Fsync, err = FsyncTime(dir)
	return m, err
}

// FsyncTime is how long the device of a directory takes to write 4 KiB for good, in
// ms: the median of a hundred.
func FsyncTime(dir string) (_ float64, err error) {
	f, err := os.CreateTemp(dir, "fsync")
	if err != nil {
		return 0, err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
		if e := os.Remove(f.Name()); err == nil {
			err = e
		}
	}()
	block := []byte(prose[:4096])
	var took []time.Duration
	for range 101 {
		began := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return ms(took[len(took)/2]), nil
}
