package worker

import (
	"time"

	"golang.org/x/sys/unix"
)

// started is what sinceBoot falls back on.
var started = time.Now()

// sinceBoot is a clock that nobody sets and that counts a suspended machine's time,
// which Go's monotonic clock leaves out (clock_gettime(2), CLOCK_BOOTTIME).
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Since(started) // Linux before 2.6.39
	}
	return time.Duration(ts.Nano())
}
