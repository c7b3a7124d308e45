// Nil pointers, which Go's handler of SIGSEGV turns into panics, while registered memory is gone.
package main

// #cgo LDFLAGS: -libverbs
// void gone_open(void);
// void gone_round(int own);
// void gone_crash(void);
import "C"

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
)

var nowhere *struct{ field int }

func fault() (caught bool) {
	defer func() { caught = recover() != nil }()
	nowhere.field++
	return
}

func main() {
	C.gone_open()
	if len(os.Args) > 1 {
		C.gone_round(0)
		C.gone_crash()
	}
	var own atomic.Int64
	var over atomic.Bool
	var others sync.WaitGroup
	for i := 0; i < 3; i++ {
		others.Add(1)
		go func() {
			defer others.Done()
			for !over.Load() {
				if !fault() {
					panic("a nil pointer was followed")
				}
				own.Add(1)
			}
		}()
	}
	const rounds = 200
	for i := 0; i < rounds; i++ {
		C.gone_round(C.int(i % 2))
		if !fault() {
			panic("a nil pointer was followed")
		}
	}
	over.Store(true)
	others.Wait()
	if own.Load() < rounds {
		panic("hardly any faults of its own")
	}
	fmt.Println(rounds, "rounds,", own.Load(), "nil pointers beside them")
}
