package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
)

//go:embed costs.json
var costsFile []byte

// costs are what units of work were measured to cost, in microseconds of one
// processor, bytes, and messages.
type costs struct {
	Measured   string `json:"measured"` // when, where, how
	EventBytes int    `json:"eventBytes"`

	// One process: from the child's pipe to the disk, syncing always.
	OneProcess      float64 `json:"oneProcessMicrosPerRecord"`
	OneProcessBurst float64 `json:"oneProcessMicrosPerEventInBurst"`
	// Servers of NATS, all of them together, per record.
	NATSR1 float64 `json:"natsR1MicrosPerRecord"`
	NATSR3 float64 `json:"natsR3MicrosPerRecord"`
	Watch  float64 `json:"natsWatchMicrosPerRecord"` // more for each gateway that watches, within the noise
	// The processes around them.
	Worker   float64 `json:"workerMicrosPerRecord"`        // from the child's pipe to the acknowledgement
	Client   float64 `json:"journalClientMicrosPerRecord"` // a record from Append to its acknowledgement, over TCP
	Hub      float64 `json:"hubMicrosPerRecord"`           // a record that a gateway takes from NATS
	Delivery float64 `json:"deliveryMicros"`               // an event to one client, alone in its write
	Connect  float64 `json:"connectMicros"`                // connection, authentication, subscription; without TLS

	SessionKiB    float64 `json:"liveSessionKiB"`
	ConnectionKiB float64 `json:"connectionKiB"`
	WatchKiB      float64 `json:"watchedSessionKiB"`
	RegistryKiB   float64 `json:"registryEntryKiB"` // in every gateway and broker

	DiskRecord float64 `json:"diskBytesPerRecord"` // of one event, one copy, without Raft's log
	DiskBurst  float64 `json:"diskBytesPerEventInBurst"`
	DiskR3     float64 `json:"natsR3DiskBytesPerRecord"` // three copies, each with Raft's log before it is compacted

	MessagesIn  float64 `json:"natsR3MessagesInPerRecord"`
	MessagesOut float64 `json:"natsR3MessagesOutPerRecord"`
	// More for each gateway that watches: half of them are on another server than the
	// leader of the shard, which is a way more.
	WatchIn  float64 `json:"natsMessagesInPerWatch"`
	WatchOut float64 `json:"natsMessagesOutPerWatch"`
}

func readCosts() (c costs, err error) {
	d := json.NewDecoder(bytes.NewReader(costsFile))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fmt.Errorf("costs.json: %w", err)
	}
	return c, nil
}

// shardMax is how many records a second one shard can take at most: its leader
// handles them one by one, so on one processor, and a third of the work is its own.
func (c costs) shardMax() float64 { return 1e6 / (c.NATSR3 / replicas) }
