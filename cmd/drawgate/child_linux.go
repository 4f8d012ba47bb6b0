package main

import "syscall"

// dieWithParent ends the command when this process is killed: nobody would renew its hold.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGTERM }
