package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"rejoin/journal"
	"rejoin/tests/logs"
)

func TestBus(t *testing.T) {
	n := start(t, small(t, t.TempDir()))
	b := n.Bus()
	if _, err := b.Request(logs.Context(t), "worker.w1", nil); !errors.Is(err, journal.ErrNoOwner) {
		t.Errorf("nobody serves: %v, want ErrNoOwner", err)
	}
	var held []func([]byte)
	var order []string
	release := make(chan struct{})
	var wg sync.WaitGroup
	end, err := b.Serve("worker.w1", func(data []byte, reply func([]byte)) {
		switch string(data) {
		case "silent":
		case "late":
			wg.Go(func() { <-release; reply([]byte("late answer")); reply([]byte("twice")) })
			held = append(held, reply)
		default:
			order = append(order, string(data))
			reply(append([]byte("re:"), data...))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	late := make(chan string, 1)
	go func() {
		got, err := b.Request(context.WithoutCancel(logs.Context(t)), "worker.w1", []byte("late"))
		late <- fmt.Sprint(string(got), err)
	}()
	// A reply that is held back delays nobody.
	for i := range 100 {
		got, err := b.Request(logs.Context(t), "worker.w1", fmt.Append(nil, i))
		if want := fmt.Sprintf("re:%d", i); err != nil || string(got) != want {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
	}
	close(release)
	if got := <-late; got != "late answer<nil>" {
		t.Errorf("late request: %s", got)
	}
	big := bytes.Repeat([]byte("x"), 2<<20)
	if got, err := b.Request(logs.Context(t), "worker.w1", big); err != nil || len(got) != len(big)+3 {
		t.Errorf("2 MiB request: %d bytes, %v", len(got), err)
	}
	ctx, cancel := context.WithCancel(logs.Context(t))
	cancel()
	if _, err := b.Request(ctx, "worker.w1", []byte("silent")); !errors.Is(err, context.Canceled) {
		t.Errorf("no answer: %v, want context.Canceled", err)
	}
	end()
	wg.Wait()
	if _, err := b.Request(logs.Context(t), "worker.w1", nil); !errors.Is(err, journal.ErrNoOwner) {
		t.Errorf("after stop: %v, want ErrNoOwner", err)
	}
	for i := range 100 {
		if order[i] != strconv.Itoa(i) {
			t.Fatalf("request %d came at place %d", i, i)
		}
	}
}

// A service that outlives the node can still be stopped, and replies to nobody
// do no harm.
func TestBusStopsAfterClose(t *testing.T) {
	n := start(t, small(t, t.TempDir()))
	b := n.Bus()
	replies := make(chan func([]byte), 1)
	end, err := b.Serve("worker.w1", func(_ []byte, reply func([]byte)) { replies <- reply })
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan error, 1)
	go func() {
		_, err := b.Request(logs.Context(t), "worker.w1", nil)
		asked <- err
	}()
	reply := <-replies
	logs.Close(t, n)
	reply([]byte("too late"))
	end()
	if err := <-asked; !errors.Is(err, journal.ErrUnavailable) {
		t.Errorf("request of a closed node: %v, want ErrUnavailable", err)
	}
	if _, err := b.Serve("worker.w1", func([]byte, func([]byte)) {}); !errors.Is(err, journal.ErrUnavailable) {
		t.Errorf("Serve on a closed node: %v, want ErrUnavailable", err)
	}
}

func TestBusNews(t *testing.T) {
	n := start(t, small(t, t.TempDir()))
	b := n.Bus()
	if err := b.Publish("changes.a.b", []byte("nobody listens")); err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 8) // more than are sent
	stop, err := b.Subscribe("changes.>", func(data []byte) { got <- string(data) })
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := b.Publish("changes.a."+strconv.Itoa(i), fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Publish("other.a", []byte("not for us")); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		select {
		case s := <-got:
			if s != strconv.Itoa(i) {
				t.Errorf("got %s, want %d", s, i)
			}
		case <-logs.Context(t).Done():
			t.Fatal("no news")
		}
	}
	stop()
	if err := b.Publish("changes.a.b", []byte("late")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Request(logs.Context(t), "nobody", nil); !errors.Is(err, journal.ErrNoOwner) { // all before it has arrived
		t.Fatal(err)
	}
	select {
	case s := <-got:
		t.Errorf("%s after stop", s)
	default:
	}
	if n.Close(logs.Context(t)) != nil || !errors.Is(b.Publish("changes.a.b", nil), journal.ErrUnavailable) {
		t.Error("news of a closed node")
	}
}
