package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"time"
)

// tidyAfter is when the engine has let go of the blocks that a start reads: it keeps
// them for 10 s.
const tidyAfter = 12 * time.Second

// tidy gives back what the start of a server took and its work does not need, once it
// has run for so long, unless ctx ends before. A server that then has little to do
// would collect no garbage for minutes.
func tidy(ctx context.Context, after time.Duration) {
	t := time.NewTimer(after)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return
	}
	runtime.GC() // what lies in pools survives one collection
	debug.FreeOSMemory()
}
