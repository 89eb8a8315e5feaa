package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"rejoin/client"
	"rejoin/protocol"
)

// Example follows a session from its first event and says something to its
// agent. Links that break are made again on the way; nothing is missed and
// nothing comes twice.
func Example() {
	ctx := context.Background()
	c, err := client.Dial(ctx, client.Options{URL: "tcp://127.0.0.1:9800", Token: os.Getenv("REJOIN_TOKEN")})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	sub, err := c.Subscribe(ctx, "my-session", client.SubscribeOptions{After: new(protocol.Seq(0))})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Prompt(ctx, "my-session", "hello", client.SendOptions{}); err != nil {
		log.Fatal(err)
	}
	for {
		m, err := sub.Next(ctx)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			log.Fatal(err)
		}
		switch m.Kind {
		case client.KindEvent:
			fmt.Println(m.Event.Seq, string(m.Event.Body))
		case client.KindSnapshot:
			fmt.Println("everything up to", m.Seq, "is", string(m.Snapshot.State))
		case client.KindSynced:
			fmt.Println("up to date at", m.Seq)
		case client.KindEnd:
			fmt.Println("over:", m.End.Reason)
		}
	}
}
