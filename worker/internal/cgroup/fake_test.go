package cgroup

import (
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// fakeKernel is the part of cgroups(7) that matters here.
type fakeKernel struct {
	t     *testing.T
	files map[string]string // an empty name ends with a slash: a directory
	trees []fakeTree
	ro    string // nothing is made below it
	old   bool   // no cgroup.kill
	moves []string
}

type fakeTree struct {
	root        string
	version     int
	controllers []string
}

var controllerFiles = map[string]map[string]string{
	"2" + Memory: {"memory.max": "max", "memory.swap.max": "max", "memory.events": "low 0\noom 0\noom_kill 0\noom_group_kill 0\n"},
	"2" + PIDs:   {"pids.max": "max"},
	"2" + CPU:    {"cpu.max": "max 100000"},
	"1" + Memory: {"memory.limit_in_bytes": "-1", "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"},
	"1" + PIDs:   {"pids.max": "max"},
	"1" + CPU:    {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "-1"},
}

func newFake(t *testing.T, mountinfo, self string, trees ...fakeTree) *fakeKernel {
	k := &fakeKernel{t: t, files: map[string]string{"/proc/mountinfo": mountinfo, "/proc/cgroup": self}, trees: trees}
	for _, tree := range trees {
		k.populate(tree, tree.root, tree.controllers)
	}
	return k
}

func (k *fakeKernel) open(instance string, earlier ...string) *Tree {
	k.t.Helper()
	tree, err := Open(Config{
		Instance: instance, PID: 42, CloneInto: true, Earlier: earlier, Logger: slog.New(slog.NewTextHandler(k.t.Output(), nil)),
		files: k, mountinfo: "/proc/mountinfo", self: "/proc/cgroup",
	})
	if err != nil {
		k.t.Fatal(err)
	}
	return tree
}

func (k *fakeKernel) tree(p string) fakeTree {
	for _, tree := range k.trees {
		if p == tree.root || strings.HasPrefix(p, tree.root+"/") {
			return tree
		}
	}
	k.t.Fatalf("%s is outside", p)
	return fakeTree{}
}

func (k *fakeKernel) populate(tree fakeTree, dir string, controllers []string) {
	k.files[dir+"/"] = ""
	k.files[dir+"/cgroup.procs"] = ""
	if tree.version == 1 {
		k.files[dir+"/tasks"] = ""
	} else {
		k.files[dir+"/cgroup.controllers"] = strings.Join(controllers, " ")
		k.files[dir+"/cgroup.subtree_control"] = ""
		if dir != tree.root {
			k.files[dir+"/cgroup.events"] = "populated 0"
			if !k.old {
				k.files[dir+"/cgroup.kill"] = ""
			}
		}
	}
	if dir != tree.root {
		k.give(tree, dir, controllers)
	}
}

func (k *fakeKernel) give(tree fakeTree, dir string, controllers []string) {
	for _, c := range controllers {
		for name, text := range controllerFiles[string(rune('0'+tree.version))+c] {
			if _, there := k.files[dir+"/"+name]; !there {
				k.files[dir+"/"+name] = text
			}
		}
	}
	if tree.version == 2 {
		k.files[dir+"/cgroup.controllers"] = strings.Join(controllers, " ")
	}
}

func (k *fakeKernel) Read(p string) (string, error) {
	text, ok := k.files[p]
	if !ok {
		return "", pathError("open", p, syscall.ENOENT)
	}
	return text, nil
}

func pathError(op, p string, err error) error { return &fs.PathError{Op: op, Path: p, Err: err} }

func (k *fakeKernel) Dirs(p string) ([]string, error) {
	if _, ok := k.files[p+"/"]; !ok {
		return nil, pathError("open", p, syscall.ENOENT)
	}
	var names []string
	for f := range k.files {
		if dir, ok := strings.CutSuffix(f, "/"); ok && path.Dir(dir) == p {
			names = append(names, path.Base(dir))
		}
	}
	slices.Sort(names)
	return names, nil
}

func (k *fakeKernel) OpenDir(string) (*os.File, error) { return nil, nil }

func (k *fakeKernel) Mkdir(p string) error {
	if _, ok := k.files[p+"/"]; ok {
		return pathError("mkdir", p, syscall.EEXIST)
	}
	if _, ok := k.files[path.Dir(p)+"/"]; !ok {
		return pathError("mkdir", p, syscall.ENOENT)
	}
	if k.ro != "" && strings.HasPrefix(p, k.ro) {
		return pathError("mkdir", p, syscall.EROFS)
	}
	tree := k.tree(p)
	controllers := tree.controllers
	if tree.version == 2 {
		controllers = strings.Fields(k.files[path.Dir(p)+"/cgroup.subtree_control"])
	}
	k.populate(tree, p, controllers)
	return nil
}

func (k *fakeKernel) Remove(p string) error {
	names, err := k.Dirs(p)
	switch {
	case err != nil:
		return err
	case len(names) > 0, k.files[p+"/cgroup.procs"] != "":
		return pathError("rmdir", p, syscall.EBUSY)
	}
	maps.DeleteFunc(k.files, func(f, _ string) bool { return strings.HasPrefix(f, p+"/") })
	return nil
}

func (k *fakeKernel) Write(p, text string) error {
	if _, ok := k.files[p]; !ok {
		return pathError("open", p, syscall.ENOENT)
	}
	dir, tree := path.Dir(p), k.tree(p)
	switch path.Base(p) {
	case "cgroup.procs":
		if text == "" {
			return nil
		}
		if dir != tree.root && k.files[dir+"/cgroup.subtree_control"] != "" {
			return pathError("write", p, syscall.EBUSY)
		}
		for f, pids := range k.files {
			if strings.HasPrefix(f, tree.root+"/") && path.Base(f) == "cgroup.procs" {
				k.files[f] = strings.Join(slices.DeleteFunc(strings.Fields(pids), func(pid string) bool { return pid == text }), " ")
			}
		}
		k.files[p] = strings.TrimSpace(k.files[p] + " " + text)
	case "tasks":
		k.moves = append(k.moves, dir)
	case "cgroup.subtree_control":
		return k.control(tree, dir, text)
	case "cgroup.kill":
		for f := range k.files {
			if strings.HasPrefix(f, dir+"/") && path.Base(f) == "cgroup.procs" {
				k.files[f] = ""
			}
		}
	default:
		k.files[p] = text
	}
	return nil
}

func (k *fakeKernel) control(tree fakeTree, dir, text string) error {
	p := dir + "/cgroup.subtree_control"
	name, on := text[1:], strings.Fields(k.files[p])
	switch {
	case text[0] == '-':
		on = slices.DeleteFunc(on, func(c string) bool { return c == name })
	case !slices.Contains(strings.Fields(k.files[dir+"/cgroup.controllers"]), name):
		return pathError("write", p, syscall.ENOENT)
	case dir != tree.root && k.files[dir+"/cgroup.procs"] != "":
		return pathError("write", p, syscall.EBUSY)
	default:
		on = append(on, name)
	}
	k.files[p] = strings.Join(on, " ")
	names, err := k.Dirs(dir)
	for _, child := range names {
		k.give(tree, dir+"/"+child, on)
	}
	return err
}
