package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"cosched.io/cosched/internal/vm"
)

// step is a shell command in a guest and its expected outcome. The steps of one guest
// run one after the other.
type step struct {
	as     string // root runs it when empty; else the user does, in this cgroup
	sh     string
	status int
	out    string // a regular expression of the whole output
	err    string // one of the whole standard error; when empty, there must be none
}

// Runs a command as the user, whose UID nobody else has. Without the path, busybox's setpriv
// would run.
const asUser = "/bin/setpriv --reuid 1000 --regid 1000 --clear-groups"

// command builds the cosched command, and returns its path.
func command(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "cosched")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./cmd/cosched")
	build.Dir = filepath.Join(root, "tools", "cosched")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building cosched: %v\n%s", err, text)
	}
	return bin
}

// play runs steps in a guest that has the cosched command and runs in virtual time; c may set
// how long an instruction takes.
func play(t *testing.T, c vm.Config, steps []step) {
	t.Helper()
	c.Programs = append(c.Programs, command(t), "setpriv", filepath.Join(programs(t, "workloads"), "spin"))
	const mark = "@@@@"
	var script strings.Builder
	script.WriteString("cd /sys/fs/cgroup\n")
	for i, s := range steps {
		name := fmt.Sprintf("/steps/%d", i)
		c.Files = append(c.Files, vm.File{Path: name, Data: []byte(s.sh + "\n")})
		run := "sh " + name
		if s.as != "" {
			run = fmt.Sprintf("sh -c 'echo $$ >%s/cgroup.procs && exec %s sh %s'", s.as, asUser, name)
		}
		fmt.Fprintf(&script, "%s >/tmp/out 2>/tmp/err </dev/null\necho %s$?\ncat /tmp/out\necho %s\ncat /tmp/err\necho %s\n", run, mark, mark, mark)
	}
	c.Command = []string{"sh", "-c", script.String()}
	shift := 0
	if c.Virtual != nil {
		shift = c.Virtual.Shift
	}
	exact(&c)
	c.Virtual.Shift = shift
	// The command waits by the clock and does not spin, so PAUSE need not be slow.
	c.Virtual.Pause = 0
	res := guest(t, c)
	parts := strings.Split(string(res.Stdout), mark)
	if len(parts) != 3*len(steps)+1 {
		t.Fatalf("%d parts of output for %d steps:\n%s\n%s", len(parts), len(steps), res.Stdout, res.Stderr)
	}
	for i, s := range steps {
		code, out, _ := strings.Cut(parts[3*i+1], "\n")
		out, errs := strings.TrimSpace(out), strings.TrimSpace(parts[3*i+2])
		status, err := strconv.Atoi(code)
		if err != nil {
			t.Fatalf("step %d: status %q", i, code)
		}
		if status != s.status || !matches(s.out, out) || !matches(s.err, errs) {
			t.Errorf("%s%s\nstatus %d, want %d\noutput %q, want %q\nerror %q, want %q",
				s.as+"$ ", s.sh, status, s.status, out, s.out, errs, s.err)
		}
	}
}

func matches(pattern, text string) bool {
	return regexp.MustCompile(`^(?s:` + pattern + `)$`).MatchString(text)
}

// home reads the home of a cluster that is in force.
func home(name string) string {
	return "cat /sys/fs/cgroup/cosched/" + name + "/cosched.cpus_preferred.effective"
}

// spin starts threads that run and sleep, and writes the PID of their process to a file.
func spin(file string, threads int) string {
	return fmt.Sprintf("spin -q -n %d -t 0 -b 1000 -s 1000 & echo $! >/tmp/%s; sleep 1; ", threads, file)
}

// lastThread sets the shell variable tid to the last thread of that process.
func lastThread(file string) string {
	return fmt.Sprintf("tid=$(ls /proc/$(cat /tmp/%s)/task | tail -n 1); ", file)
}

// emptied waits until no process is left in a cgroup and below it.
func emptied(cgroup string) string {
	return fmt.Sprintf("i=0; while grep -q 'populated 1' %s/cgroup.events && [ $i -lt 100 ]; do i=$((i+1)); sleep 0.1; done; ", cgroup)
}

// All verbs, as root, with processes and threads; and their errors.
func TestCommand(t *testing.T) {
	t.Parallel()
	play(t, vm.Config{Topology: topology(t, "smt8")}, []step{
		// Nothing is enabled, and reading does not change that.
		{sh: "cosched ls", out: "NAME +HOME[^\n]*"},
		{sh: "mkdir plain; cosched stat /sys/fs/cgroup/plain", status: 69,
			err: `cosched stat: /sys/fs/cgroup/plain/cosched.cpus_preferred: cosched is not enabled on this path: as root, echo \+cosched \| tee /sys/fs/cgroup/cgroup.subtree_control`},
		{sh: "cat cgroup.subtree_control"},
		{sh: "cosched topology", out: `CPUs online: 0-7.*\n0 +0-3 +0 +0 +0-1 2-3\n1 +4-7 +1 +1 +4-5 6-7\n.*\n0 +0-3 +10 +20\n1 +4-7 +20 +10`},

		// Clusters and homes.
		{sh: "cosched create shop --home llc:0 --weights 4:1000; cat cosched/shop/cosched.weights; " + home("shop"), out: "4 1000\n0-3"},
		{sh: "cosched create shop", status: 73, err: "cosched create: /sys/fs/cgroup/cosched/shop is there already[^\n]*"},
		{sh: "cosched set shop --home node:1; " + home("shop"), out: "4-7"},
		{sh: "cosched set shop --home socket:0; " + home("shop"), out: "0-3"},
		{sh: "cosched set shop --home near:6; " + home("shop"), out: "4-7"},
		{sh: "cosched set shop --home 0-7:1/2; " + home("shop"), out: "0,2,4,6"},
		{sh: "cosched set shop --home inherit --weights inherit; cat cosched/shop/cosched.weights; " + home("shop"), out: "100 150"},
		{sh: "cosched set shop --home 0-3; " + home("shop"), out: "0-3"},
		{sh: "cosched set shop --home auto; cat cosched/shop/cosched.cpus_preferred; " + home("shop"), out: "auto\n(0-3|4-7)"},
		{sh: "cosched set shop --home 0-3; " + home("shop"), out: "0-3"},
		{sh: "cosched set shop --home 7000 --force", status: 65, err: `cosched set: [^\n]*"7000": names a CPU that this machine cannot have: it can have 0-7`},
		{sh: "cosched set shop --home 3-1:5", status: 64, err: `cosched set: home "3-1:5" is not a CPU list[^\n]*USED/GROUP[^\n]*`},
		{sh: "echo 0 >/sys/devices/system/cpu/cpu7/online; cosched set shop --home 7", status: 65, err: `cosched set: [^\n]*"7": none of these CPUs is in /sys/devices/system/cpu/online, which is 0-6: [^\n]*`},
		{sh: "cosched set shop --home 6-7; " + home("shop"), out: "6", err: `cosched set: note: [^\n]*"6-7": of these CPUs only 6 are in [^\n]*`},
		{sh: "echo 1 >/sys/devices/system/cpu/cpu7/online; cosched set shop --home 0-3"},
		{sh: "cosched create night && echo +cpuset >cgroup.subtree_control && echo +cpuset >cosched/cgroup.subtree_control && echo 4-5 >cosched/night/cpuset.cpus"},
		{sh: "cosched set night --home 0-3", status: 65, err: `cosched set: [^\n]*"0-3": none of these CPUs is in /sys/fs/cgroup/cosched/night/cpuset.cpus.effective, which is 4-5: [^\n]*`},

		// The process of cosched run becomes the command, in the cluster, and leaves no other
		// process behind.
		{sh: "sh -c 'echo $$; exec cosched run --home llc:1 -- sh -c \"echo \\$\\$; cat /proc/self/cgroup; exit 7\"' >/tmp/o; s=$?; " +
			"read pid </tmp/o; sed s/$pid/PID/ /tmp/o; cat cosched/run-$pid/cosched.cpus_preferred; exit $s", status: 7, out: "PID\nPID\n0::/cosched/run-PID\n4-7"},
		{sh: "cosched run --home 0 -- sh -c 'kill -9 $$'", status: 137, err: ".*"},
		{sh: "ls -d cosched/run-* | wc -l", out: "1"},
		{sh: "cosched run --cluster shop --weights 5:6 cat /proc/self/cgroup cosched/shop/cosched.weights", out: "0::/cosched/shop\n5 6"},
		{sh: "cosched run --cluster new/one --home 1 -- cat /proc/self/cgroup; cosched rm -r new; ls -d cosched/new", status: 1, out: "0::/cosched/new/one", err: "ls: .*"},
		{sh: "ulimit -Sn 300; cosched run --home 0 sh -c 'ulimit -Sn'", out: "300"},
		{sh: "echo 'echo $1' >/tmp/script; cosched run --home 0 /tmp/script", status: 126, err: "cosched run: /tmp/script: cannot be executed: permission denied"},
		{sh: "chmod +x /tmp/script; cosched run --home 0 /tmp/script word", out: "word"},
		// It goes back from what was made for a command that cannot be executed.
		{sh: "echo '#!/no/such' >/tmp/bad; chmod 755 /tmp/bad; cosched run --cluster new/one --home 0 /tmp/bad; s=$?; ls -d cosched/new 2>/dev/null; exit $s", status: 126, err: "cosched run: /tmp/bad: cannot be executed: no such file or directory"},
		{sh: "cosched run --vm --cluster new/vm --home 0 /tmp/bad; s=$?; ls -d cosched/new 2>/dev/null; exit $s", status: 126, err: "cosched run: /tmp/bad: cannot be executed: no such file or directory"},
		{sh: "cosched run --home 0 nosuch", status: 127, err: "cosched run: nosuch: no such command in PATH"},
		{sh: "cosched run true", status: 125, err: "cosched run: neither a home nor a cluster[^\n]*"},
		{sh: "cosched run --home llc:2 true", status: 125, err: `cosched run: home "llc:2": this machine has no llc 2, only 0-1[^\n]*`},

		// Processes.
		{sh: spin("a", 3) + "cosched move shop $!; grep -c . cosched/shop/cgroup.threads; cat /proc/$!/cgroup", out: "4\n0::/cosched/shop"},
		{sh: "true & wait; cosched move shop $!", status: 66, err: `cosched move: /proc/\d+: no such process or thread: it has exited`},
		{sh: "cosched move shop 2", status: 65, err: "cosched move: /sys/fs/cgroup/cosched/shop/cgroup.procs: 2: refused: a kernel thread stays where it is"},

		// Threads: of a process in the cluster above, and of one that is elsewhere.
		{sh: "cosched create shop/till --home 0-1;" + lastThread("a") + "cosched move --threads shop/till $tid && " +
			"[ $(cat cosched/shop/till/cgroup.threads) = $tid ] && cat cosched/shop/till/cgroup.type cosched/shop/cgroup.type; " + home("shop/till"),
			out: "threaded\ndomain threaded\n0-1"},
		{sh: spin("b", 2) + "cosched move shop/till $! && cat /proc/$!/cgroup && echo $! >cgroup.procs", out: "0::/cosched/shop/till"},
		{sh: lastThread("b") + "cosched move --threads shop/till $tid; cat /proc/$(cat /tmp/b)/cgroup /proc/$tid/cgroup", out: "0::/cosched/shop\n0::/cosched/shop/till"},
		{sh: "cosched move --threads night $(cat /tmp/b)", status: 64, err: `cosched move: [^\n]*CLUSTER/night`},
		{sh: "cosched create --threaded shop/store --home 2; cat cosched/shop/store/cgroup.type", out: "threaded"},

		// Verbs that show clusters.
		{sh: "cosched ls", out: `NAME[^\n]*\nnight[^\n]*\nrun-[^\n]*\nshop +0-3 +0-3 +5:6 +5 [^\n]*\nshop/store +2 [^\n]*\nshop/till +0-1 +0-1 +5:6 +2 [^\n]*`},
		{sh: "cosched tree shop", out: `NAME[^\n]*\nshop [^\n]*\n├─ store [^\n]*\n└─ till [^\n]*`},
		{sh: "cosched tree --json shop", out: `\[\n.*"name": "shop",.*"children": \[.*"name": "shop/till",.*\]`},
		{sh: "cosched stat shop", out: `NAME[^\n]*\nshop +0-3 +5 +\d[^\n]*\n\nLLC[^\n]*\n0 +0-3 +4 +[^\n]*\n1 +4-7 +0 +[^\n]*`},
		{sh: "cosched stat shop --watch --count 2 --interval 300ms", out: `NAME[^\n]*\nshop +0-3 +5 +[1-5]\.\d\d +\d.*\n\nNAME.*`},
		{sh: "cosched stat --watch --json --count 1 --interval 300ms", out: `\[{"name":"night".*"seconds":0.3.*"since":{.*}\]`},
		// Two threads of till and one of shop, each busy for half of the time.
		{sh: "cosched top --count 1 --interval 300ms --filter shop --sort name", out: `[^\n]* clusters used [1-5]\.\d of 8 CPUs, [^\n]*\nNAME[^\n]*\nshop +0-3 +5 +[1-5]\.\d\d +\d[^\n]*\nshop/store[^\n]*\nshop/till[^\n]*`},
		{sh: "cosched dump shop | grep -c '\"path\"'; cosched dump --openmetrics | tail -n 1", out: "3\n# EOF"},
		{sh: "cosched record -o /tmp/r.gz --count 3 --interval 300ms && cosched replay --json --filter till /tmp/r.gz",
			out: `\{"time":[^\n]*"total":\{[^\n]*"clusters":\[\{"name":"shop/till",[^\n]*"home":"0-1",[^\n]*"at_home_percent":\d[^\n]*\n\{"time":[^\n]*`},
		{sh: "cosched plot /tmp/r.gz -o /tmp/p.svg && grep -c '>shop/till<' /tmp/p.svg && cosched plot /tmp/r.gz -o /tmp/p.png && head -c 4 /tmp/p.png | tail -c 3", out: "2\nPNG"},
		{sh: "cosched record -o /tmp/r.gz --append --count 1; head -c 300 /tmp/r.gz >/tmp/r; cosched replay /tmp/r", status: 65,
			err: "cosched replay: note: /tmp/r: its last line is not complete[^\n]*\ncosched replay: /tmp/r: a recording without samples[^\n]*"},
		// A cluster is removed and made again between two samples: the files that are open
		// belong to the cluster that is gone.
		{sh: "cosched create brief --home 0; (sleep 0.5; cosched rm brief; cosched create brief --home 1) & cosched record -o - --count 4 --interval 300ms | sed -n 's/.*\"name\":\"brief\"[^}]*\"home\":\"\\([^\"]*\\)\".*/\\1/p'; cosched rm brief", out: "0\n0\n1\n1"},
		{sh: "cosched create brief; (sleep 0.3; cosched rm brief) & cosched top brief --interval 100ms >/dev/null", status: 66, err: "cosched top: /sys/fs/cgroup/cosched/brief was removed while it was shown"},
		{sh: "cosched create brief; (sleep 1; cosched rm brief) & cosched stat brief -w --interval 100ms >/dev/null", status: 66, err: "cosched stat: /sys/fs/cgroup/cosched/brief was removed while it was shown"},
		{sh: "for i in 1 2 3 4 5 6 7 8; do for n in 1 2 3 4 5; do cosched create x$n; cosched rm x$n; done; done & for i in 1 2 3 4 5 6 7 8 9 10; do cosched ls >/dev/null || exit; done; wait"},

		// Removing.
		{sh: "cosched rm shop", status: 69, err: "cosched rm: /sys/fs/cgroup/cosched/shop has 2 cgroups below it[^\n]*"},
		{sh: "cosched rm -r shop", status: 69, err: "cosched rm: /sys/fs/cgroup/cosched/shop/till has 2 threads: [^\n]*"},
		{sh: "kill $(cat /tmp/a /tmp/b);" + emptied("cosched/shop") + "cosched rm -r shop; cosched rm shop", status: 66,
			err: "cosched rm: /sys/fs/cgroup/cosched/shop: no such cgroup[^\n]*"},
	})
}

// From its start to the prompt, each verb takes less than 50 ms of CPU time, if an instruction
// takes a nanosecond. There are few clusters, and verbs that watch do so for a tenth of a second.
func TestCommandStart(t *testing.T) {
	t.Parallel()
	const limit = 50000
	verbs := []string{"help", "completion bash", "topology", "ls", "create x --home 0-3", "set x --weights 4:1000", "move x $(cat /tmp/spin)", "run --cluster x true",
		"tree", "stat", "stat x --watch --count 1 --interval 100ms", "top --plain --count 1 --interval 100ms", "dump", "dump --openmetrics",
		"record -o /tmp/r --count 1 --interval 100ms", "replay --plain /tmp/r", "schedstat report", "schedstat record -o /tmp/s true", "schedstat report /tmp/s",
		"schedstat diff /tmp/s /tmp/s", "unit show x.service", "detect --pid 99999999", "rm nosuch"}
	play(t, vm.Config{Topology: topology(t, "smt8")}, []step{
		{sh: "sysctl -q kernel.sched_schedstats=1; mkdir watch; " + spin("spin", 1)},
		{sh: "used() { sed -n 's/^usage_usec //p' watch/cpu.stat; }; while read -r verb; do a=$(used); " +
			"sh -c \"echo \\$\\$ >watch/cgroup.procs; exec cosched $verb\" >/tmp/out 2>/dev/null; b=$(used); echo $((b - a)) $verb; done <<'END' >/tmp/used\n" +
			strings.Join(verbs, "\n") + fmt.Sprintf("\nEND\nsort -n /tmp/used | tail -n 3 >&2; grep -c . /tmp/used; while read -r us verb; do [ $us -gt 0 ] && [ $us -lt %d ] || echo $verb: $us us; done </tmp/used", limit),
			out: fmt.Sprint(len(verbs)), err: ".*"},
	})
}

// The verbs in a part of the tree that is delegated to a user.
func TestCommandDelegated(t *testing.T) {
	t.Parallel()
	const handOver = "chown 1000 web web/cgroup.procs web/cgroup.threads web/cgroup.subtree_control web/shell web/shell/cgroup.procs"
	play(t, vm.Config{Topology: topology(t, "smt8")}, []step{
		{sh: "mkdir web web/shell other; " + handOver},
		{as: "web/shell", sh: "cosched create shop", status: 77, err: `cosched create: /sys/fs/cgroup/web/cosched/cosched.cpus_preferred: cosched is not enabled on this path and you may not enable it: ` +
			`as root, echo \+cosched \| tee /sys/fs/cgroup/cgroup.subtree_control /sys/fs/cgroup/web/cgroup.subtree_control`},
		{sh: "echo +cosched >cgroup.subtree_control; echo 0-5 >web/cosched.cpus_preferred"},
		{as: "web/shell", sh: "cosched create shop --home 4-7; cat web/cosched/shop/cosched.cpus_preferred.effective", out: "4-5",
			err: `cosched create: note: [^\n]*"4-7": of these CPUs only 4-5 are in /sys/fs/cgroup/web/cosched/cosched.cpus_preferred.effective`},
		{as: "web/shell", sh: "cosched run --home llc:0 cat /proc/self/cgroup; cat web/cosched/run-*/cosched.cpus_preferred", out: `0::/web/cosched/run-\d+\n0-3`},
		{as: "web/shell", sh: "cosched run --cluster shop sh -c 'exit 3'", status: 3},
		{as: "web/shell", sh: spin("a", 2) + "cosched move shop $!; cat /proc/$!/cgroup", out: "0::/web/cosched/shop"},
		{as: "web/shell", sh: "cosched create shop/till;" + lastThread("a") + "cosched move --threads shop/till $tid; cat /proc/$tid/cgroup", out: "0::/web/cosched/shop/till"},
		{as: "web/shell", sh: "cosched ls", out: `NAME[^\n]*\nrun-[^\n]*\nshop +4-5 +4-7 [^\n]*\nshop/till +4-5 [^\n]*`},
		{as: "web/shell", sh: "cosched stat --watch --count 1 --interval 200ms", out: `NAME[^\n]*\nrun-[^\n]*\nshop .*`},
		{as: "web/shell", sh: "cosched record -o - --count 2 --interval 200ms | cosched replay - --sort name", out: `[^\n]*\nNAME[^\n]*\nrun-[^\n]*\nshop .*`},
		{as: "web/shell", sh: "cosched move shop 1", status: 77, err: `cosched move: /sys/fs/cgroup/web/cosched/shop/cgroup.procs: 1: permission denied: [^\n]*\(/sys/fs/cgroup\): be root`},
		{as: "web/shell", sh: "cosched set /sys/fs/cgroup/other --home 0", status: 77, err: `cosched set: /sys/fs/cgroup/other/cosched.cpus_preferred: "0": permission denied: [^\n]*`},
		{as: "web/shell", sh: "cosched create /sys/fs/cgroup/other/a", status: 77, err: `cosched create: [^\n]*/sys/fs/cgroup/other[^\n]*`},
		{as: "web/shell", sh: "cosched rm /sys/fs/cgroup/other", status: 77, err: `cosched rm: /sys/fs/cgroup/other: permission denied[^\n]*`},
		{as: "web/shell", sh: "kill $(cat /tmp/a);" + emptied("web/cosched/shop") + "cosched rm -r shop; ls -d web/cosched/shop", status: 1, err: "ls: .*"},
		// Nothing is delegated above this process.
		{as: "other", sh: "cosched ls", status: 77, err: "cosched ls: /sys/fs/cgroup/other/cgroup.procs: permission denied, here and above: [^\n]*systemd-run --user --scope"},
		// A user whose shell is in the delegated cgroup itself: only threaded
		// cgroups can be below it.
		{sh: "mkdir direct; chown 1000 direct direct/cgroup.procs direct/cgroup.threads direct/cgroup.subtree_control"},
		{as: "direct", sh: "cosched run --home 0-3 -- cat /proc/self/cgroup; cat direct/cosched/run-*/cgroup.type; cosched create shop --home 1; spin -q -t 0 -b 100 -s 1000 & cosched move shop $!; cat /proc/$!/cgroup; kill $!",
			out: `0::/direct/cosched/run-\d+\nthreaded\n0::/direct/cosched/shop`},
	})
}

// The counters of the scheduler: while a command runs, while a CPU goes offline, and a
// comparison.
func TestCommandSchedstat(t *testing.T) {
	t.Parallel()
	const (
		// The line for all CPUs in the table, with figures of the right order of magnitude:
		// 12 threads that want half a CPU each run for 1 s on 8 CPUs.
		all  = `all +\d\.\d\d +\d+\.\d\d +\d+\.\d\d +\d{4,} +\d{4,} +\d+\.\d\d +\d{4,} +\d+\.\d\d +\d+\n`
		load = "spin -q -n 12 -t 1000 -b 1000 -s 1000"
	)
	// Version 17 of the file, of Linux 7.3, has names of levels.
	onEither := func(between string) string {
		on := func(major, smt, mc, numa string) string {
			return `Linux ` + major + `\.[^\n]*\n` + between + smt + `: CPU 0-7 in 4 domains of 2 CPUs\n.*` +
				mc + `: CPU 0-7 in 2 domains of 4 CPUs\n.*` + numa + `: CPU 0-7 in 1 domain of 8 CPUs\n.*`
		}
		return "(" + on("6", "domain 0", "domain 1", "domain 2") + "|" + on("7", "SMT", "MC", "NUMA") + ")"
	}
	play(t, vm.Config{Topology: topology(t, "smt8")}, []step{
		{sh: "cosched schedstat report", status: 69, err: `cosched schedstat report: /proc/sys/kernel/sched_schedstats: 0: the kernel does not count: as root, sysctl kernel.sched_schedstats=1, [^\n]*`},
		{sh: "cosched schedstat record -o /tmp/r.json true; s=$?; ls /tmp/r.json; exit $s", status: 125, err: "cosched schedstat record: [^\n]*\nls: .*"},
		{sh: "sysctl -q kernel.sched_schedstats=1; cosched schedstat record -o /tmp/r.json -- " + load},
		{sh: "cosched schedstat report /tmp/r.json", out: load + `, [1-9]\.\d{3} s, [^\n]*, ` + onEither(`\nCPU [^\n]*\n0 .*\n7 [^\n]*\n`+all+"\n")},
		{sh: "cosched schedstat report --json /tmp/r.json | head -n 3", out: `{\n  "version": (16,\n  "kernel": "6|17,\n  "kernel": "7)\.[^\n]*",`},
		{sh: "cosched schedstat record -o /tmp/idle.json --for 1s; cosched schedstat diff /tmp/r.json /tmp/idle.json", out: `A .*\nB .*\n/ [^\n]* all CPUs +timeslices per s\n.*`},
		{sh: "cosched schedstat record -o /tmp/s.json -- sh -c 'kill -TERM $PPID; sleep 60'; s=$?; cosched schedstat report /tmp/s.json >/dev/null && exit $s", status: 143},
		{sh: "cat /proc/schedstat >/tmp/a; echo 0 >/sys/devices/system/cpu/cpu7/online; cat /proc/schedstat >/tmp/b; echo 1 >/sys/devices/system/cpu/cpu7/online; cosched schedstat report /tmp/a /tmp/b",
			out: `note: CPU 7 was online in one of the snapshots only, and is left out\nnote: the domains of CPU 0-6 were built anew [^\n]*\n\n.*`},
		{sh: "cosched schedstat report /tmp/b /tmp/a", status: 65, err: `cosched schedstat report: /tmp/b, /tmp/a: timestamp \d+, then \d+: in the wrong order, or of two boots`},
		{sh: "cosched schedstat report", out: `since boot; [^\n]*\n` + onEither(".*\n")},
	})
}

// Kernels whose controller is in all cgroups, is switched off, or does not exist.
func TestCommandKernels(t *testing.T) {
	t.Parallel()
	paper := topology(t, "paper")
	t.Run("implicit", func(t *testing.T) {
		play(t, vm.Config{Topology: paper, Cmdline: []string{"cgroup.cosched=implicit"}}, []step{
			{sh: "cosched ls", out: "NAME[^\n]*"},
			{sh: "cosched create shop --home llc:1; cat cgroup.subtree_control; " + home("shop"), out: "2-3"},
			{sh: "cosched run --cluster shop cat /proc/self/cgroup", out: "0::/cosched/shop"},
		})
	})
	t.Run("off", func(t *testing.T) {
		play(t, vm.Config{Topology: paper, Cmdline: []string{"cgroup_disable=cosched"}}, []step{
			{sh: "cosched create shop", status: 69, err: "cosched create: /sys/fs/cgroup/cgroup.controllers: the controller is switched off: boot without cgroup_disable=cosched"},
		})
	})
	t.Run("vanilla", func(t *testing.T) {
		play(t, vm.Config{Topology: paper, Kernel: kernel(t, "vanilla").Image}, []step{
			{sh: "cosched ls", status: 69, err: `cosched ls: /sys/fs/cgroup/cgroup.controllers: no cosched in "[^\n]*": boot a kernel with CONFIG_CGROUP_COSCHED=y`},
			{sh: "cosched top", status: 69, err: "cosched top: [^\n]*CONFIG_CGROUP_COSCHED=y"},
			{sh: "cosched run --home 0 true", status: 125, err: "cosched run: [^\n]*CONFIG_CGROUP_COSCHED=y"},
			{sh: "cosched topology --json", out: `{.*"llcs": \[.*}`},
			{sh: "ls -d cosched", status: 1, err: "ls: .*"},
			{sh: "sysctl -q kernel.sched_schedstats=1; cosched schedstat report", out: `since boot; [^\n]*\nLinux (6\..*\ndomain 1|7\..*\nPKG): CPU 0-3 .*`},
		})
	})
}
