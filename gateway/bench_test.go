package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"
)

// sinkPipe takes everything at once and counts it. Its input is one frame at a
// time.
type sinkPipe struct {
	frames chan []byte
	bytes  atomic.Int64
	closed chan struct{}
	signal chan struct{} // capacity 1: something was written
}

func newSinkPipe() *sinkPipe {
	return &sinkPipe{frames: make(chan []byte, 1), closed: make(chan struct{}), signal: make(chan struct{}, 1)}
}

func (p *sinkPipe) ReadFrame() ([]byte, error) {
	select {
	case f := <-p.frames:
		return f, nil
	case <-p.closed:
		return nil, io.EOF
	}
}

func (p *sinkPipe) Write(b []byte) (int, error) {
	p.bytes.Add(int64(len(b)))
	select {
	case p.signal <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (p *sinkPipe) SetWriteDeadline(time.Time) error { return nil }
func (p *sinkPipe) Name() string                     { return "sink" }
func (p *sinkPipe) Close(int, string) error {
	close(p.closed)
	return nil
}

// await blocks until n bytes were written in all.
func (p *sinkPipe) await(n int64) error {
	for p.bytes.Load() < n {
		select {
		case <-p.signal:
		case <-p.closed:
			return errors.New("the connection ended")
		}
	}
	return nil
}

// BenchmarkFanOut: one event of 250 bytes to 1…100 subscribed connections. The
// allocations are those of the append; a delivery has none.
func BenchmarkFanOut(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := newFakeWorld("s")
			log := w.logs["s"]
			s := newServer(Config{}, w.backends())
			ctx, cancel := context.WithCancel(b.Context())
			pipes := make([]*sinkPipe, n)
			served := make(chan struct{}, n)
			const synced = `{"jsonrpc":"2.0","method":"synced"`
			for i := range pipes {
				p := newSinkPipe()
				pipes[i] = p
				go func() {
					s.Serve(ctx, p, "bench")
					served <- struct{}{}
				}()
				p.frames <- []byte(`{"id":1,"method":"subscribe","params":{"sessionId":"s"}}`)
				if err := p.await(int64(len(synced)) + 200); err != nil {
					b.Fatal(err)
				}
			}
			log.append(1, 250)
			lines := log.lines[:1:1]
			log.lines = append(make([][]byte, 0, 1<<22), log.lines...)
			before := make([]int64, n)
			b.ReportAllocs()
			for b.Loop() {
				for i, p := range pipes {
					before[i] = p.bytes.Load()
				}
				log.mu.Lock()
				log.lines = append(log.lines, lines[0])
				log.mu.Unlock()
				for k := range log.wakers {
					k.Wake()
				}
				for i, p := range pipes {
					if err := p.await(before[i] + 1); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(n), "deliveries/op")
			cancel()
			for range pipes {
				<-served
			}
			s.Close()
		})
	}
}

// A delivered event costs no allocation.
func TestDeliveryDoesNotAllocate(t *testing.T) {
	w := newFakeWorld("s")
	log := w.logs["s"]
	s := newServer(Config{}, w.backends())
	ctx, cancel := context.WithCancel(t.Context())
	p := newSinkPipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		s.Serve(ctx, p, "test")
	}()
	p.frames <- []byte(`{"id":1,"method":"subscribe","params":{"sessionId":"s"}}`)
	if err := p.await(200); err != nil {
		t.Fatal(err)
	}
	log.append(1, 250)
	line := log.lines[0]
	log.mu.Lock()
	log.lines = append(make([][]byte, 0, 10000), log.lines...)
	log.mu.Unlock()
	timeout := time.NewTimer(time.Minute)
	defer timeout.Stop()
	allocs := testing.AllocsPerRun(1000, func() {
		before := p.bytes.Load()
		log.mu.Lock()
		log.lines = append(log.lines, line)
		log.mu.Unlock()
		for k := range log.wakers {
			k.Wake()
		}
		for p.bytes.Load() == before {
			select {
			case <-p.signal:
			case <-timeout.C:
				t.Fatal("nothing was delivered")
			}
		}
	})
	if allocs >= 1 {
		t.Errorf("%.1f allocations per event", allocs)
	}
	cancel()
	<-served
	s.Close()
}
