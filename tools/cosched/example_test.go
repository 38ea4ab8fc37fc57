package cosched_test

import (
	"errors"
	"fmt"
	"log"
	"runtime"

	"golang.org/x/sys/unix"

	"cosched.io/cosched"
)

// A program puts itself into the cluster shop, and one of its threads into a part of it
// with a home of two CPUs.
func ExampleHost_MoveThread() {
	h := cosched.ThisHost()
	join := func() error {
		shop, err := h.Find("shop")
		if err != nil {
			return err
		}
		if _, err := h.Create(shop, false); err != nil {
			return err
		}
		if err := h.MoveProcess(shop, unix.Getpid()); err != nil {
			return err
		}
		till, err := h.Find("shop/till")
		if err != nil {
			return err
		}
		if _, err := h.Create(till, true); err != nil {
			return err
		}
		if _, err := h.SetHome(till, cosched.Home{CPUs: cosched.CPUs{0, 1}, Value: "0-1"}, false); err != nil {
			return err
		}
		runtime.LockOSThread() // this goroutine is this thread from now on
		return h.MoveThread(till, unix.Gettid())
	}
	if err := join(); errors.Is(err, errors.ErrUnsupported) {
		fmt.Println("no cosched: nothing was done")
	} else if err != nil {
		log.Print(err)
	}
}
