package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rejoin/cmd/rejoin/internal/bench"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/worker"
)

const (
	fsyncSlow = 5.0 // ms: what a spinning disk takes

	// Descriptors of a server: of each connection one, of each child three pipes, and
	// what the journal, listeners and logs have open.
	filesPerChild = 3
	filesOfServer = 512
)

// fileSystems are names of magic numbers (statfs(2)); what stands in doubts does not
// keep a journal, or not for good.
var (
	fileSystems = map[int64]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.F2FS_SUPER_MAGIC: "f2fs", 0x2fc12fc1: "zfs",
		unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.TMPFS_MAGIC: "tmpfs", unix.RAMFS_MAGIC: "ramfs", unix.NFS_SUPER_MAGIC: "nfs", unix.SMB_SUPER_MAGIC: "smb",
		unix.SMB2_SUPER_MAGIC: "smb2", unix.CIFS_SUPER_MAGIC: "cifs", unix.V9FS_MAGIC: "9p", unix.FUSE_SUPER_MAGIC: "fuse",
	}
	volatileOnes = map[string]bool{"tmpfs": true, "ramfs": true}
	remoteOnes   = map[string]bool{"nfs": true, "smb": true, "smb2": true, "cifs": true, "9p": true, "fuse": true}
)

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// system is what this machine is.
func (d *doctor) system() {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		d.warn("system", err.Error(), "")
		return
	}
	d.ok("system", "rejoin %s, %s, Linux %s, %s, %d processors", version(), runtime.Version(), unix.ByteSliceToString(u.Release[:]), runtime.GOARCH, runtime.NumCPU())
}

// clock is whether something keeps it right.
func (d *doctor) clock() {
	var now unix.Timex
	state, err := unix.Adjtimex(&now)
	switch {
	case err != nil:
		d.warn("clock", "the kernel does not say whether it is kept right: "+err.Error(), "")
	case state == unix.TIME_ERROR:
		d.warn("clock", "nothing keeps it right: times of events, and ends of tokens and certificates, are as wrong as it is", "run chrony or systemd-timesyncd; in a container, on its host")
	default:
		d.ok("clock", "synchronised")
	}
}

// directory is the data directory and what it lies on.
func (d *doctor) directory() {
	dir := d.s.dataDir
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		above := existing(dir)
		if err := unix.Access(above, unix.W_OK|unix.X_OK); err != nil {
			d.fail("data directory", fmt.Sprintf("%s cannot be made in %s: %v", dir, above, err), "make it, owned by the server's user and with mode 0700, or name another with --data-dir")
			return
		}
		d.ok("data directory", "%s is made by the first start", dir)
	case err != nil:
		d.fail("data directory", err.Error(), "run as the server's user, or name another with --data-dir")
		return
	case !info.IsDir():
		d.fail("data directory", dir+" is no directory", "name another with --data-dir")
		return
	default:
		if !d.usable(dir, info) {
			return
		}
	}
	d.disk(existing(dir))
	d.quarantine(filepath.Join(dir, "quarantine"))
}

// usable says whether this user can serve from a directory.
func (d *doctor) usable(dir string, info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	access := unix.Access(dir, unix.R_OK|unix.W_OK|unix.X_OK)
	switch {
	case access != nil:
		d.fail("data directory", fmt.Sprintf("%s: %v", dir, access), "run as the server's user")
		return false
	case ok && int(st.Uid) != os.Geteuid():
		d.warn("data directory", fmt.Sprintf("%s belongs to user %d and this is user %d", dir, st.Uid, os.Geteuid()), "run this, and the server, as that user")
	case info.Mode().Perm()&0o077 != 0:
		d.warn("data directory", fmt.Sprintf("%s is open to others (mode %04o)", dir, info.Mode().Perm()), "chmod 700 it; a start does so unless it holds foreign files")
	default:
		d.ok("data directory", "%s", dir)
	}
	return true
}

// disk is the file system of the data directory.
func (d *doctor) disk(dir string) {
	d.fileSystem(dir)
	is, err := journal.DiskOf(dir)
	if err != nil {
		d.warn("free space", err.Error(), "")
		return
	}
	text := roughly(is.Free) + " of " + roughly(is.Size)
	switch {
	case is.Free < is.Need:
		d.fail("free space", text+"; a start needs "+roughly(is.Need), "free some, or move the data directory")
	case is.State == journal.HealthFull:
		d.fail("free space", text+": new commands and sessions are refused", "free some, or delete sessions")
	case is.State == journal.HealthTight:
		d.warn("free space", text+": output of children waits", "free some, or delete sessions")
	default:
		d.ok("free space", "%s", text)
	}
	if !d.s.split() || d.s.member() {
		d.fsync(dir)
	}
}

func (d *doctor) fileSystem(dir string) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		d.warn("file system", err.Error(), "")
		return
	}
	name, known := fileSystems[int64(uint32(st.Type))]
	switch {
	case !known:
		d.ok("file system", "of type 0x%x; it has to be a local one that honours fsync", uint32(st.Type))
	case volatileOnes[name]:
		d.warn("file system", name+": everything is gone when the machine stops", "put the data directory on a disk")
	case remoteOnes[name]:
		d.warn("file system", name+": a journal wants a local disk that honours fsync", "put the data directory on one")
	default:
		d.ok("file system", "%s", name)
	}
}

// fsync is what each group commit waits for.
func (d *doctor) fsync(dir string) {
	took, err := bench.FsyncTime(dir)
	text := fmt.Sprintf("4 KiB in %.2f ms (median)", took)
	switch {
	case err != nil:
		d.fail("fsync", "a file cannot be written: "+err.Error(), "look at the disk")
	case took > fsyncSlow:
		d.warn("fsync", text+": at durability always each command and event waits that long", "a faster disk, or --durability 20ms")
	default:
		d.ok("fsync", "%s", text)
	}
}

func (d *doctor) quarantine(dir string) {
	found, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && len(found) == 0:
	case err != nil:
		d.warn("quarantine", err.Error(), "")
	default:
		d.warn("quarantine", fmt.Sprintf("%d starts found files damaged: %s", len(found), dir), "look at each report.json there, and at the disk; remove a folder whose report is settled")
	}
}

// openFiles compares the limit of descriptors with what the limits of the server
// may need.
func (d *doctor) openFiles() {
	var is unix.Rlimit
	pid := 0
	if d.running {
		pid = d.ready.PID
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &is); err != nil {
		d.warn("open files", fmt.Sprintf("the limit of process %d is not told: %v", pid, err), "run this as the server's user")
		return
	}
	need := uint64(filesOfServer)
	if d.s.is(protocol.RoleGateway) {
		need += uint64(d.s.Limits.MaxConnections) //nolint:gosec // positive
	}
	if d.s.is(protocol.RoleWorker) {
		need += filesPerChild * uint64(d.s.Limits.MaxSessions) //nolint:gosec // positive
	}
	if is.Max < need { // a server raises its own limit as far as it may
		d.warn("open files", fmt.Sprintf("at most %d, and maxConnections and maxSessions may need %d", is.Max, need),
			fmt.Sprintf("ulimit -Hn %d, LimitNOFILE=%[1]d in the unit; or lower those limits", need))
		return
	}
	d.ok("open files", "up to %d", is.Max)
}

// containment is what can be done about what children start.
func (d *doctor) containment(asked *serverSaid) {
	is := protocol.Containment{Why: "switched off"}
	switch {
	case asked != nil && asked.Containment != nil:
		is = *asked.Containment
	case d.s.Cgroups == cgroupsOff:
	default:
		var err error
		if is, err = tryContainment(); err != nil {
			d.warn("containment", err.Error(), "")
			return
		}
	}
	switch {
	case is.Cgroups > 0:
		d.ok("containment", "control groups, version %d; limits: %s", is.Cgroups, listed(is.Limits))
	case d.s.Cgroups == cgroupsOff && d.given:
		d.ok("containment", "control groups are switched off")
	default:
		d.warn("containment", "no control groups: "+is.Why, "Delegate=yes in the unit; see docs/operations.md, Children. Without them limits of agents cannot be enforced, and descendants that hide may outlive a kill -9")
	}
	d.limits(is)
}

// tryContainment finds out what a server that starts as this process did could do.
func tryContainment() (is protocol.Containment, err error) {
	dir, err := os.MkdirTemp("", "rejoin-doctor")
	if err != nil {
		return is, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c, err := worker.OpenContainment(dir, string(protocol.NewEpoch(time.Now())), slog.New(slog.DiscardHandler))
	if err != nil {
		return is, err
	}
	return c.Status(), c.Close()
}
