package main

// ownerOf would return the name of the user to whom a file belongs.
func ownerOf(string) string { return "" }
