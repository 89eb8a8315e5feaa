package cgroup

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rejoin/protocol"
	"rejoin/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

const (
	v2Mount = "30 23 0:26 / /cg rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	v1Mount = "31 23 0:27 / /v1/pids rw - cgroup cgroup rw,pids\n" +
		"32 23 0:28 / /v1/mem\\040ory rw - cgroup cgroup rw,memory\n" +
		"33 23 0:29 / /v1/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" +
		"34 23 0:30 / /v1/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
	v1Self = "12:pids:/svc\n11:memory:/svc/mem\n4:cpu,cpuacct:/\n1:name=systemd:/svc\n"
)

func TestMounts(t *testing.T) {
	for _, c := range []struct{ name, mountinfo, self, want string }{
		{"version 2", v2Mount, "0::/user.slice/a b\n", "2 /cg/user.slice/a b []"},
		{"version 1", v1Mount, v1Self, "1 /v1/pids/svc [pids]; 1 /v1/mem ory/svc/mem [memory]; 1 /v1/cpu,cpuacct [cpu cpuacct]; 1 /v1/systemd/svc [name=systemd]"},
		{"both", v1Mount[:strings.Index(v1Mount, "\n")+1] + v2Mount, "3:pids:/\n0::/\n", "2 /cg []; 1 /v1/pids [pids]"},
		{"a container's", "30 23 0:26 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup rw\n", "0::/docker/x\n", "2 /sys/fs/cgroup []"},
		{"above what is mounted", "30 23 0:26 /docker/x /cg ro - cgroup2 cgroup rw\n", "0::/docker/y\n", ""},
		{"outside the namespace", v2Mount, "0::/../other\n", ""},
		{"gone", v2Mount, "0::/a (deleted)\n", ""},
		{"none", "22 1 8:1 / / rw - ext4 /dev/sda rw\n", "0::/\n", ""},
		{"not member", v1Mount, "0::/\n", ""},
		{"rubbish", "x\n - \n1 2 3 4 5 6 - cgroup2\n\n", ":\n0\n::\n", ""},
		{"empty", "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			v2, v1 := mounts(c.mountinfo, c.self)
			for _, h := range append([]*hierarchy{v2}, v1...) {
				if h != nil {
					got = append(got, strings.Join([]string{string(rune('0' + h.version)), h.own, "[" + strings.Join(h.controllers, " ") + "]"}, " "))
				}
			}
			if strings.Join(got, "; ") != c.want {
				t.Errorf("got %s", strings.Join(got, "; "))
			}
		})
	}
}

// FuzzMounts: a group of this process lies where something is mounted, or below.
func FuzzMounts(f *testing.F) {
	f.Add(v2Mount+v1Mount, "0::/x\n"+v1Self)
	f.Add("30 23 0:26 /docker/x /cg ro - cgroup2 cgroup rw\n", "0::/docker/y\n")
	f.Fuzz(func(t *testing.T, mountinfo, self string) {
		v2, v1 := mounts(mountinfo, self)
		for _, h := range append([]*hierarchy{v2}, v1...) {
			if h != nil && !slices.ContainsFunc(mountPoints(mountinfo), func(point string) bool { return inside(point, h.own) }) {
				t.Errorf("nothing is mounted at or above %q", h.own)
			}
		}
	})
}

// mountPoints are the fifth fields of mountinfo, as directories.
func mountPoints(mountinfo string) (all []string) {
	for line := range strings.Lines(mountinfo) {
		if f := strings.Fields(line); len(f) > 4 {
			all = append(all, filepath.Clean(unescape(f[4])))
		}
	}
	return all
}

// inside reports whether dir is point or lies in it; an absolute point has absolute
// places only.
func inside(point, dir string) bool {
	rel, err := filepath.Rel(point, dir)
	return err == nil && filepath.IsAbs(point) == filepath.IsAbs(dir) && rel != ".." && !strings.HasPrefix(rel, "../")
}

var (
	all   = []string{Memory, PIDs, CPU}
	most  = &protocol.ResourceLimits{Memory: 2 << 30, PIDs: 512, CPU: 1.5}
	two   = fakeTree{"/cg", 2, all}
	ones  = []fakeTree{{"/v1/pids", 1, []string{PIDs}}, {"/v1/mem ory", 1, []string{Memory}}, {"/v1/cpu,cpuacct", 1, []string{CPU, "cpuacct"}}, {"/v1/systemd", 1, nil}}
	mine  = "/cg/svc/rejoin-I"
	group = mine + "/s.default.s.1"
)

// delegated is a system of version 2 that gave /svc to this process.
func delegated(t *testing.T, others ...string) *fakeKernel {
	k := newFake(t, v2Mount, "0::/svc\n", two)
	k.files["/cg/cgroup.subtree_control"] = "memory pids cpu"
	if err := k.Mkdir("/cg/svc"); err != nil {
		t.Fatal(err)
	}
	k.files["/cg/svc/cgroup.procs"] = strings.Join(append([]string{"42"}, others...), " ")
	return k
}

func (k *fakeKernel) has(files map[string]string) {
	k.t.Helper()
	for p, want := range files {
		if got, ok := k.files[p]; !ok || got != want {
			k.t.Errorf("%s holds %q (%v), want %q", p, got, ok, want)
		}
	}
}

func newGroup(t *testing.T, tree *Tree, l *protocol.ResourceLimits) *Group {
	t.Helper()
	g, err := tree.NewGroup("default.s.1", l)
	if err != nil || g == nil {
		t.Fatalf("group: %v, %v", g, err)
	}
	return g
}

func TestVersion2(t *testing.T) {
	k := delegated(t)
	before := maps.Clone(k.files)
	tree := k.open("I")
	plain := newGroup(t, tree, nil)
	k.has(map[string]string{"/cg/svc/cgroup.procs": "42", "/cg/svc/cgroup.subtree_control": "", group + "/cgroup.procs": ""})
	if err := plain.Remove(); err != nil {
		t.Fatal(err)
	}
	g := newGroup(t, tree, most)
	k.has(map[string]string{
		"/cg/svc/cgroup.procs": "", mine + "/server/cgroup.procs": "42",
		group + "/memory.max": "2147483648", group + "/memory.swap.max": "0", group + "/pids.max": "512", group + "/cpu.max": "150000 100000",
	})
	if version, dir, why, limits := tree.State(); version != 2 || dir != mine || why != "" || limits[Memory] != nil || limits[PIDs] != nil || limits[CPU] != nil {
		t.Errorf("state: %d %s %q %v", version, dir, why, limits)
	}
	k.files[group+"/memory.events"] = "low 0\noom 3\noom_kill 2\n"
	if n := g.OOMKills(); n != 2 {
		t.Errorf("%d killed", n)
	}
	k.files[group+"/cgroup.procs"] = "7 8"
	if err := k.Mkdir(group + "/inner"); err != nil { // a child may divide its own group
		t.Fatal(err)
	}
	k.files[group+"/inner/cgroup.procs"] = "9"
	if pids, err := g.PIDs(); err != nil || !slices.Equal(slices.Sorted(slices.Values(pids)), []int{7, 8, 9}) {
		t.Errorf("%v, %v", pids, err)
	}
	if err := g.Remove(); err == nil {
		t.Error("removed with processes in it")
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	k.has(map[string]string{group + "/pids.max": "0", group + "/cgroup.procs": "", group + "/inner/cgroup.procs": ""})
	for range 2 {
		if err := g.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	if pids, err := g.PIDs(); err != nil || len(pids) != 0 {
		t.Errorf("after the end: %v, %v", pids, err)
	}
	if err := tree.Close(); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(before, k.files) {
		t.Errorf("it leaves\n%v, there was\n%v", k.files, before)
	}
}

// Limits need this process's own group for themselves: what else is in it stays,
// and says why.
func TestVersion2WithOthers(t *testing.T) {
	k := delegated(t, "7")
	tree := k.open("I")
	g, err := tree.NewGroup("default.s.1", most)
	var cannot *UnenforceableError
	if g != nil || !errors.As(err, &cannot) || cannot.Limit != Memory || !strings.Contains(err.Error(), "limit of memory cannot be enforced: other processes are in /cg/svc") {
		t.Fatalf("%v, %v", g, err)
	}
	k.has(map[string]string{"/cg/svc/cgroup.procs": "7 42"})
	if names, err := k.Dirs(mine); err != nil || len(names) != 0 {
		t.Errorf("left %v, %v", names, err)
	}
	newGroup(t, tree, nil)
}

func TestOldVersion2(t *testing.T) {
	k := delegated(t)
	k.old = true
	tree := k.open("I")
	g := newGroup(t, tree, nil)
	k.files[group+"/cgroup.procs"] = "7"
	if err := g.Kill(); err != nil {
		t.Error(err)
	}
	k.has(map[string]string{group + "/cgroup.procs": "7"})
	tree, err := Open(Config{Instance: "I", PID: 42, Logger: tree.cfg.Logger, files: k, mountinfo: "/proc/mountinfo", self: "/proc/cgroup"})
	if err != nil {
		t.Fatal(err)
	}
	if version, _, why, _ := tree.State(); version != 0 || !strings.Contains(why, "Linux 5.7") {
		t.Errorf("state: %d %q", version, why)
	}
}

func TestVersion1(t *testing.T) {
	k := newFake(t, v1Mount, v1Self, ones...)
	for _, dir := range []string{"/v1/pids/svc", "/v1/mem ory/svc", "/v1/mem ory/svc/mem"} {
		if err := k.Mkdir(dir); err != nil {
			t.Fatal(err)
		}
	}
	before := maps.Clone(k.files)
	tree := k.open("I")
	g := newGroup(t, tree, most)
	if g.CloneFD() >= 0 {
		t.Error("it has a descriptor")
	}
	pids, memory, cpu := "/v1/pids/svc/rejoin-I/s.default.s.1", "/v1/mem ory/svc/mem/rejoin-I/s.default.s.1", "/v1/cpu,cpuacct/rejoin-I/s.default.s.1"
	k.has(map[string]string{
		pids + "/pids.max": "512", memory + "/memory.limit_in_bytes": "2147483648", cpu + "/cpu.cfs_period_us": "100000", cpu + "/cpu.cfs_quota_us": "150000",
	})
	if err := errors.Join(g.Enter(), g.Leave()); err != nil {
		t.Fatal(err)
	}
	if want := []string{pids, memory, cpu, "/v1/pids/svc", "/v1/mem ory/svc/mem", "/v1/cpu,cpuacct"}; !slices.Equal(k.moves, want) {
		t.Errorf("the thread moved to %q", k.moves)
	}
	k.files[memory+"/memory.oom_control"] = "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"
	if n := g.OOMKills(); n != 5 {
		t.Errorf("%d killed", n)
	}
	if err := errors.Join(g.Kill(), g.Remove(), tree.Close()); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(before, k.files) {
		t.Errorf("it leaves\n%v, there was\n%v", k.files, before)
	}
}

// Version 2 without controllers, which are version 1's: both have a part.
func TestBothVersions(t *testing.T) {
	k := newFake(t, v1Mount+v2Mount, "12:pids:/\n11:memory:/\n0::/\n", fakeTree{"/cg", 2, nil}, ones[0], ones[1])
	tree := k.open("I")
	if _, ok := k.files["/v1/mem ory/rejoin-I/"]; ok {
		t.Error("a hierarchy is touched that nobody asked for")
	}
	g := newGroup(t, tree, &protocol.ResourceLimits{PIDs: 8})
	k.has(map[string]string{"/v1/pids/rejoin-I/s.default.s.1/pids.max": "8", "/cg/rejoin-I/s.default.s.1/cgroup.procs": ""})
	k.files["/cg/rejoin-I/s.default.s.1/cgroup.procs"] = "7"
	if pids, err := g.PIDs(); err != nil || !slices.Equal(pids, []int{7}) {
		t.Errorf("%v, %v", pids, err)
	}
	if err := errors.Join(g.Kill(), g.Remove()); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.NewGroup("x", &protocol.ResourceLimits{CPU: 1}); err == nil || !strings.Contains(err.Error(), "no controller cpu") {
		t.Errorf("%v", err)
	}
	if names, err := k.Dirs("/cg/rejoin-I"); err != nil || len(names) != 0 {
		t.Errorf("left %v, %v", names, err)
	}
}

func TestNoGroups(t *testing.T) {
	readOnly := delegated(t)
	readOnly.ro = "/cg"
	for name, c := range map[string]struct {
		k   *fakeKernel
		why string
	}{
		"nothing mounted": {newFake(t, "", ""), "no hierarchy"},
		"read only":       {readOnly, "/cg/svc: read-only file system"},
		"no proc":         {&fakeKernel{t: t, files: map[string]string{}}, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := c.k.open("I")
			if g, err := tree.NewGroup("x", nil); g != nil || err != nil {
				t.Errorf("group: %v, %v", g, err)
			}
			_, err := tree.NewGroup("x", &protocol.ResourceLimits{PIDs: 1})
			perr := tree.Prepare(&protocol.ResourceLimits{PIDs: 1})
			var cannot *UnenforceableError
			if !errors.As(err, &cannot) || !errors.As(perr, &cannot) || !strings.Contains(err.Error(), c.why) || !strings.Contains(perr.Error(), c.why) {
				t.Errorf("%v, %v", err, perr)
			}
			version, _, why, limits := tree.State()
			if version != 0 || !strings.Contains(why, c.why) || limits[PIDs] == nil {
				t.Errorf("state: %d %q %v", version, why, limits)
			}
			if err := errors.Join(tree.Tidy(), tree.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	if err := (*Tree)(nil).Prepare(most); err == nil || !strings.Contains(err.Error(), "switched off") {
		t.Errorf("switched off: %v", err)
	}
	if err := (*Tree)(nil).Prepare(nil); err != nil {
		t.Error(err)
	}
}

func TestLeftovers(t *testing.T) {
	k := delegated(t)
	for _, dir := range []string{"/cg/old", "/cg/old/rejoin-I", "/cg/old/rejoin-I/s.default.a.1", "/cg/old/rejoin-I/server", "/cg/other", "/cg/other/s.x", mine, mine + "/s.default.b.2"} {
		if err := k.Mkdir(dir); err != nil {
			t.Fatal(err)
		}
	}
	k.files["/cg/old/rejoin-I/s.default.a.1/cgroup.procs"] = "7"
	var known []string
	tree, err := Open(Config{
		Instance: "I", PID: 42, CloneInto: true, Logger: k.open("other").cfg.Logger, files: k, mountinfo: "/proc/mountinfo", self: "/proc/cgroup",
		Earlier: []string{"/cg/old/rejoin-I", "/cg/gone/rejoin-I", "/cg/other", "/", "", "rejoin-I", "/cg/other/../old/rejoin-I", "/cg/old/rejoin-J"},
		Made:    func(bases []string) error { known = bases; return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"/cg/old/rejoin-I", "/cg/gone/rejoin-I", mine}; !slices.Equal(known, want) {
		t.Errorf("known are %q", known)
	}
	left := tree.Leftovers()
	var dirs []string
	for _, g := range left {
		dirs = append(dirs, g.dirs[0])
	}
	if !slices.Equal(dirs, []string{"/cg/old/rejoin-I/s.default.a.1", mine + "/s.default.b.2"}) {
		t.Fatalf("leftovers are %q", dirs)
	}
	if err := tree.Tidy(); err == nil || !slices.Equal(known, []string{"/cg/old/rejoin-I", mine}) {
		t.Errorf("a base with processes in it is forgotten: %q, %v", known, err)
	}
	k.files["/cg/old/rejoin-I/s.default.a.1/cgroup.procs"] = ""
	if err := errors.Join(left[0].Remove(), left[1].Remove(), tree.Tidy()); err != nil {
		t.Fatal(err)
	}
	if _, ok := k.files["/cg/old/rejoin-I/"]; ok || !slices.Equal(known, []string{mine}) {
		t.Errorf("known are %q", known)
	}
	if err := tree.Close(); err != nil || len(known) != 0 {
		t.Errorf("after the end: %q, %v", known, err)
	}
}

// A group that nobody could find again is not made.
func TestBaseIsKnownBeforeItIsMade(t *testing.T) {
	k := delegated(t)
	tree, err := Open(Config{
		Instance: "I", PID: 42, CloneInto: true, Logger: k.open("other").cfg.Logger, files: k, mountinfo: "/proc/mountinfo", self: "/proc/cgroup",
		Made: func([]string) error { return errors.New("disk is full") },
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := k.files[mine+"/"]; ok {
		t.Error("it is made")
	}
	if version, _, why, _ := tree.State(); version != 0 || !strings.Contains(why, "disk is full") {
		t.Errorf("state: %d %q", version, why)
	}
}
