// Command oneliner limits each user to ten requests a minute, in this process.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/memstore"
)

func main() {
	lim, err := drawgate.New(memstore.New(nil), drawgate.PerMinute("api", 10), nil)
	if err != nil {
		log.Fatal(err)
	}
	for i := range 12 {
		d, err := lim.Allow(context.Background(), "user-17")
		if err != nil {
			log.Fatal(err) // the request was wrong, or the store cannot be reached: never a refusal
		}
		if !d.Allowed {
			fmt.Printf("request %d: refused: %v\n", i+1, d.Err())
			continue
		}
		fmt.Printf("request %d: allowed, %d left\n", i+1, d.Remaining())
	}
}
