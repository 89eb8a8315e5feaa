package main

import (
	"context"
	"runtime"
	"testing"
	"time"
)

func TestTidyGivesMemoryBack(t *testing.T) {
	const size = 64 << 20
	block := make([]byte, size)
	for i := 0; i < size; i += 4096 {
		block[i] = 1
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	runtime.KeepAlive(block)
	tidy(t.Context(), 0)
	runtime.ReadMemStats(&after)
	held := func(m *runtime.MemStats) uint64 { return m.HeapSys - m.HeapReleased }
	if held(&after)+size/2 > held(&before) {
		t.Errorf("%d bytes of heap before, %d after", held(&before), held(&after))
	}
}

func TestTidyEndsWithTheServer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tidy(ctx, time.Hour)
}
