package detect

import (
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Threads that hurry do not keep one another from running if one of them waits in a loop
// for another one and both have the same CPU. Threads of the runtime do that now and then.
func TestHurry(t *testing.T) {
	const child = "COSCHED_TEST_HURRY"
	if os.Getenv(child) != "" {
		waitInLoop(t)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHurry$", "-test.v")
	// Like loops of the runtime, those of this test are preempted by the kernel only.
	cmd.Env = append(os.Environ(), child+"=1", "GOMAXPROCS=3", "GODEBUG=asyncpreemptoff=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		_ = cmd.Process.Kill()
		<-ended
		t.Error("one thread waits for another that never runs")
	}
}

func waitInLoop(t *testing.T) {
	var cpus, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		t.Fatal(err)
	}
	for cpu := range 1024 {
		if cpus.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	var come atomic.Int32
	ready := make(chan struct{})
	for range 2 {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if err := unix.SchedSetaffinity(0, &one); err != nil {
				t.Error(err)
			}
			<-ready
			for come.Add(1); come.Load() < 2; {
			}
		}()
	}
	// Until both threads are there.
	time.Sleep(100 * time.Millisecond)
	hurry()
	close(ready)
	for come.Load() < 2 {
		time.Sleep(10 * time.Millisecond)
	}
}
