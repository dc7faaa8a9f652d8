// Uses the package that emit_go.py makes: opens a context and a worker, listens, asks about them, and shows an error.
package main

import (
	"fmt"
	"log"

	"example/hawser"
)

func main() {
	context, err := hawser.ContextOpen()
	if err != nil {
		log.Fatal(err)
	}
	worker, err := hawser.WorkerOpen(context)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := hawser.Listen(worker, "127.0.0.1", 0)
	if err != nil {
		log.Fatal(err)
	}
	kind, err := hawser.Kind(listener)
	if err != nil || kind != hawser.KindListener {
		log.Fatal("kind ", kind, err)
	}
	_, err = hawser.WorkerProgress(listener)
	failed, ok := err.(*hawser.Error)
	if !ok || failed.Code != hawser.EKind {
		log.Fatal("a listener made progress: ", err)
	}
	if err = hawser.CloseWait(context, 5e9); err != nil {
		log.Fatal(err)
	}
	_, err = hawser.Kind(worker)
	if failed, ok = err.(*hawser.Error); !ok || failed.Code != hawser.EStale {
		log.Fatal("the worker outlived its context: ", err)
	}
	fmt.Printf("ok: ABI %d, \"%s\"\n", hawser.AbiVersion(), failed.Text)
}
