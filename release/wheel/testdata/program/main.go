// Command program stands for drawgate.
package main

import "os"

func main() { _, _ = os.Stdout.WriteString(os.Args[1] + "\n") }
