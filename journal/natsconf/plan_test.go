package natsconf

import (
	"strings"
	"testing"
	"time"

	"rejoin/protocol"
)

func TestPlan(t *testing.T) {
	for _, tt := range []struct {
		name    string
		servers []string
		want    []server
	}{
		{"the usual port", []string{"nats-a", "nats-b:4222"}, []server{{"nats-a", "nats-a", 4222, 6222}, {"nats-b", "nats-b", 4222, 6222}}},
		{"one machine", []string{"127.0.0.1:4222", "127.0.0.1:4223"}, []server{{"127-0-0-1", "127.0.0.1", 4222, 6222}, {"127-0-0-1-4223", "127.0.0.1", 4223, 6223}}},
		{"IPv6", []string{"[2001:db8::1]:5000"}, []server{{"2001-db8--1-5000", "2001:db8::1", 5000, 7000}}},
		{"dots", []string{"a.example.org:4222"}, []server{{"a-example-org", "a.example.org", 4222, 6222}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Config{Dir: "d", Servers: tt.servers}.withDefaults().plan()
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(tt.want) {
				t.Fatalf("%d servers, want %d", len(got), len(tt.want))
			}
			for i := range got {
				if got[i] != tt.want[i] {
					t.Errorf("server %d is %+v, want %+v", i, got[i], tt.want[i])
				}
			}
		})
	}
}

func TestListenAddress(t *testing.T) {
	for host, want := range map[string]string{
		"127.0.0.1": "127.0.0.1:4222", "localhost": "127.0.0.1:4222", "::1": "[::1]:4222",
		"nats-a": "0.0.0.0:4222", "192.0.2.1": "0.0.0.0:4222", "2001:db8::1": "[::]:4222",
	} {
		if got := (server{host: host, port: 4222}).at(4222); got != want {
			t.Errorf("%s listens on %s, want %s", host, got, want)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	good := Config{Dir: "d", Servers: []string{"a"}}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for word, change := range map[string]func(*Config){
		"directory":         func(c *Config) { c.Dir = "" },
		"no server":         func(c *Config) { c.Servers = nil },
		"port":              func(c *Config) { c.Servers = []string{"a:0"} },
		"63535":             func(c *Config) { c.Servers = []string{"a:64000"} },
		"host:port":         func(c *Config) { c.Servers = []string{`a" }`} },
		"share a port":      func(c *Config) { c.Servers = []string{"a:4222", "a:6222"} },
		"are the same":      func(c *Config) { c.Servers = []string{"a.b", "a-b"} },
		"name":              func(c *Config) { c.Name = "a b" },
		"install directory": func(c *Config) { c.InstallDir = "etc" },
		"store directory":   func(c *Config) { c.StoreDir = "nats" },
		"certificates":      func(c *Config) { c.Valid = time.Second },
		"at most 64":        func(c *Config) { c.Servers = make([]string, serversMax+1) },
		`not "admin"`:       func(c *Config) { c.Combine = [][]protocol.ServerRole{{"admin"}} },
	} {
		c := good
		change(&c)
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
	}
}
