package main

import "syscall"

// dieWithParent ends the command when this process is killed: nobody would renew its hold. SIGKILL,
// because nobody would be there to insist on another signal. What the command has started cannot be
// ended by this.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
